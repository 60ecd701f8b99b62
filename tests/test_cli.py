import datetime as dt
import json
import os
import shutil

import pytest

from hypaware_pipeline.cli import demo, main
from hypaware_pipeline.demo.mishaps import wipe
from hypaware_pipeline.sinks.encoders.jsonl import JsonlEncoder
from tests.builders import a_cache
from tests.installations import JSONL, write_config

YEAR_LATER = "2027-06-10"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command line in this process: exit code, stdout, stderr."""
    home = tmp_path / "dagster"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")

    def run_command(*arguments):
        monkeypatch.setattr("sys.argv", ["hypaware-pipeline", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return stopped.value.code or 0, printed.out, printed.err

    return run_command


@pytest.fixture
def config(tmp_path, cache):
    return write_config(tmp_path / "home", cache.root)


def documents(text):
    return [json.loads(line) for line in text.splitlines()]


def test_export_exports_what_is_due_and_then_nothing_is(run, config, cache):
    cache.with_day("2026-06-05", rows=4).with_day("2026-06-06", rows=1)
    code, out, _ = run("export", "--config", str(config))
    assert code == 0
    assert [line.split()[:4] for line in out.splitlines()[1:]] == [["archive", "logs", "2", "5"], ["feed", "logs", "2", "5"]]
    code, out, _ = run("export", "--config", str(config))
    assert (code, out.strip()) == (0, "nothing was due")


def test_json_is_one_document_per_sink_dataset_and_day_and_nothing_else_on_stdout(run, config, cache):
    cache.with_day("2026-06-05").with_day("2026-06-06")
    code, out, _ = run("export", "feed", "--config", str(config), "--json")
    assert code == 0
    found = documents(out)
    assert [(each["sink"], each["dataset"], each["day"], each["status"], each["rows"]) for each in found] == [
        ("feed", "logs", "2026-06-05", "exported", 3),
        ("feed", "logs", "2026-06-06", "exported", 3),
    ]
    assert found[0]["files"][0].endswith("/logs/day=2026-06-05/unknown.jsonl.gz")


def test_all_exports_unchanged_days_too(run, config, cache):
    cache.with_day("2026-06-05")
    run("export", "--config", str(config))
    _, out, _ = run("export", "feed", "--all", "--json", "--config", str(config))
    assert [each["day"] for each in documents(out)] == ["2026-06-05"]


def test_a_dry_run_says_what_is_due_and_writes_nothing(run, config, cache):
    cache.with_day("2026-06-05")
    code, out, _ = run("export", "feed", "--dry-run", "--json", "--config", str(config))
    assert code == 0
    day = {"sink": "feed", "dataset": "logs", "day": "2026-06-05", "status": "due", "rows": 3}
    assert documents(out) == [{**day, "bytes": None, "again": False, "cause": "new", "reason": "new"}]
    assert not (config.parent / "out").exists()


def test_a_range_and_a_dataset_glob_narrow_what_is_exported(run, config, cache):
    for day in ("2026-06-04", "2026-06-05", "2026-06-06"):
        cache.with_day(day).with_day(day, dataset="ai_gateway_messages", source="claude")
    arguments = ("--from", "2026-06-05", "--to", "2026-06-05", "--dataset", "ai_*", "--json", "--config", str(config))
    _, out, _ = run("export", "feed", *arguments)
    assert [(each["dataset"], each["day"]) for each in documents(out)] == [("ai_gateway_messages", "2026-06-05")]


def test_undated_rows_have_a_document_of_their_own(run, config, cache):
    cache.with_day("2026-06-05").with_day("2026-06-05", timestamp=None, rows=2)
    _, out, _ = run("export", "feed", "--json", "--config", str(config))
    assert [(each["day"], each["rows"]) for each in documents(out)] == [("2026-06-05", 3), ("undated", 2)]


def test_days_that_could_not_be_exported_make_exit_code_1_and_are_named(run, config, cache):
    cache.with_day("2026-06-05").with_day("2026-06-06")
    run("export", "feed", "--from", "2026-06-06", "--config", str(config))
    (config.parent / "out/feed/logs/day=2026-06-05").write_text("")
    code, out, err = run("export", "feed", "--all", "--config", str(config))
    assert code == 1
    assert "not exported: feed/logs 2026-06-05" in err
    assert out.splitlines()[1].split()[:3] == ["feed", "logs", "1"]


def test_a_dataset_whose_only_source_cannot_be_read_is_said_although_its_days_are_unknown(run, config, cache):
    """It was `nothing was due`, exit code 0: a cache that could not be read looked like one without rows."""
    cache.with_day("2026-06-05")
    (cache.source_directory() / "cursor.json").write_text("{")
    code, _, err = run("export", "feed", "--config", str(config))
    assert code == 1
    assert "not exported: feed/logs: source 'unknown' could not be read" in err


def test_a_source_that_still_cannot_be_read_is_said_by_every_export(run, config, cache):
    """Only the first export said it; the ones after it were exit code 0 with rows missing."""
    cache.with_day("2026-06-05", source="a").with_day("2026-06-05", source="b")
    (cache.source_directory("logs", "b") / "cursor.json").write_text("{")
    first, _, err = run("export", "feed", "--config", str(config))
    assert "not exported: feed/logs: source" not in err, "its day says so"
    second, out, err = run("export", "feed", "--config", str(config), "--json")
    assert (first, second) == (1, 1)
    assert [(each["dataset"], each["day"], each["status"]) for each in documents(out)] == [("logs", None, "failed")]
    assert "source 'b' could not be read" in err


def test_a_broken_sink_is_named_and_the_others_are_exported(run, tmp_path, cache):
    cache.with_day("2026-06-05")
    sinks = {"feed": {**JSONL, "config": {"dir": "out/feed"}}, "odd": {**JSONL, "config": {}}}
    config = write_config(tmp_path / "home", cache.root, sinks=sinks)
    code, out, err = run("export", "--config", str(config), "--json")
    assert code == 1
    assert {each["sink"]: each["status"] for each in documents(out)} == {"odd": "failed", "feed": "exported"}
    assert "/sinks/odd/config/dir" in err


def test_days_before_the_first_day_are_said_and_the_first_day_moves_by_command(run, config, cache):
    cache.with_day("2026-06-05")
    run("export", "--config", str(config))
    cache.with_day("2026-06-01")
    code, _, err = run("export", "feed", "--config", str(config), "--json")
    assert code == 0
    assert "hypaware-pipeline first-day 2026-06-01" in err
    assert run("first-day", "2026-06-01", "--config", str(config))[0] == 0
    assert run("first-day", "--config", str(config))[1].strip() == "2026-06-01"
    _, out, _ = run("export", "feed", "--config", str(config), "--json")
    assert [each["day"] for each in documents(out)] == ["2026-06-01"]


def test_a_row_dated_tomorrow_waits_for_its_day_and_holds_nothing_up(run, config, cache):
    tomorrow = (dt.datetime.now(dt.UTC) + dt.timedelta(days=1)).date().isoformat()
    cache.with_day("2026-06-05").with_day(tomorrow, rows=2)
    code, out, err = run("export", "feed", "--config", str(config), "--json")
    assert code == 0
    assert [each["day"] for each in documents(out)] == ["2026-06-05"]
    assert f"2 rows of {tomorrow} are exported when that day comes" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "nosuch"], "no sink named nosuch; the config has archive, feed"),
        (["export", "--dataset", "x*"], "no dataset matches 'x*'; the cache has logs"),
        (["export", "--from", "2026-06-06", "--to", "2026-06-05"], "the earlier day comes first"),
        (["export", "--from", "yesterday"], "days are written YYYY-MM-DD"),
        (["export", "--from", "2026-6-5"], "days are written YYYY-MM-DD"),
        (["export", "--to", "2999-01-01"], "lies in the future"),
        (["first-day", "1970-01-01"], "must lie between 2023-01-01"),
        (["first-day", "2999-01-01"], "must lie between 2023-01-01"),
        (["first-day", "soon"], "days are written YYYY-MM-DD"),
    ],
)
def test_bad_input_is_exit_code_2_and_says_what_is_wrong(run, config, cache, arguments, said):
    cache.with_day("2026-06-05")
    code, out, err = run(*arguments, "--config", str(config))
    assert (code, out) == (2, "")
    assert said in err


def test_a_missing_config_and_a_missing_cache_are_exit_code_2(run, tmp_path, config, cache):
    code, _, err = run("export", "--config", str(tmp_path / "nowhere.json"))
    assert code == 2
    assert "nowhere.json" in err
    shutil.rmtree(cache.root, ignore_errors=True)
    code, _, err = run("export", "--config", str(config))
    assert code == 2
    assert str(cache.root) in err


def test_an_empty_cache_has_nothing_due(run, config, cache):
    (cache.root / "datasets").mkdir(parents=True)
    code, out, _ = run("export", "--config", str(config))
    assert (code, out.strip()) == (0, "nothing was due")


def test_a_corrupt_ledger_is_exit_code_1_and_named(run, config, cache):
    cache.with_day("2026-06-05")
    run("export", "--config", str(config))
    ledger = config.parent / "hypaware-pipeline.state" / "ledger.db"
    ledger.write_bytes(b"garbage" * 1000)
    code, _, err = run("export", "--config", str(config))
    assert code == 1
    assert "ledger.db" in err


def test_all_says_which_days_are_kept_and_why(run, config, cache):
    cache.with_day("2026-06-05", rows=2).with_day("2026-06-06", rows=2)
    assert run("export", "archive", "--config", str(config))[0] == 0
    cache.writer.retention(dt.datetime(2026, 6, 5, 0, 0, 1, tzinfo=dt.UTC))
    code, out, err = run("export", "archive", "--config", str(config), "--all")
    assert code == 0
    assert out.splitlines()[1].split()[:4] == ["archive", "logs", "1", "2"]
    # A day asked for was left out without a word.
    assert "archive/logs: 1 row of 2026-06-05 that the cache has no more: retention reached the day" in err


def test_a_plan_says_what_may_leave_the_sink_once_its_loss_was_accepted(run, config, cache):
    cache.with_day("2026-06-05", rows=2)
    assert run("export", "archive", "--config", str(config))[0] == 0
    wipe(cache.root)
    a_cache(cache.root, seed=2).with_day("2026-06-05", rows=2, timestamp="2026-06-05T12:00:00.000Z")
    code, _, err = run("export", "archive", "--config", str(config))
    assert code == 0
    assert "archive/logs: 2 rows of 2026-06-05 that the cache has no more: nothing proves" in err
    assert "until `hypaware-pipeline resume archive --accept-rewind`" in err
    assert "1 day kept at the sink as exported" in run("plan", "archive", "--config", str(config))[1]
    assert run("resume", "archive", "--accept-rewind", "--yes", "--config", str(config))[0] == 0
    code, out, _ = run("plan", "archive", "--config", str(config))
    assert code == 0
    assert "rows that were removed from the cache may leave the sink now" in out
    assert "1 settled" in out


def test_the_demo_exports_two_sinks_and_shows_a_query(run, tmp_path):
    home = tmp_path / "a demo"
    code, out, _ = run("demo", "--dir", str(home))
    assert code == 0
    assert "ai_gateway_messages" in out
    assert "output_tokens" in out
    assert (home / "exports/archive/logs").is_dir()
    assert (home / "exports/feed/logs").is_dir()
    assert f"'{home / 'hypaware-pipeline.json'}'" in out.splitlines()[-1]
    # A user's own `archive` shares Dagster's home with the demo; the demo's days would have looked exported there.
    assert {line.split()[0] for line in out.splitlines() if line.startswith("demo-")} >= {"demo-archive", "demo-feed"}


def test_a_demo_that_cannot_export_says_why_and_shows_nothing(run, tmp_path, monkeypatch):
    # It would have ended in a traceback: no file to show.
    for sink in demo._CONFIG["sinks"].values():
        monkeypatch.setitem(sink["config"], "dir", "hypaware-pipeline.json/below-a-file")
    code, out, err = run("demo", "--dir", str(tmp_path / "demo"))
    assert code == 1
    assert "SELECT" not in out
    assert "not exported: demo-archive" in err


def test_the_demo_is_not_recorded_in_the_users_own_ledger(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HYPAWARE_LEDGER_URL", "postgresql://ada@host/ledger")
    code, _, err = run("demo", "--dir", str(tmp_path / "demo"))
    assert code == 2
    assert "unset it for the demo" in err
    assert not (tmp_path / "demo").exists()


def test_the_demo_leaves_a_directory_alone_that_is_no_demo(run, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    code, _, err = run("demo", "--dir", str(tmp_path))
    assert code == 2
    assert "precious.txt" in err or "holds" in err
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_a_directory_whose_name_is_no_text_is_named_and_stops_nothing_else(run, config, cache):
    cache.with_day("2026-06-05").with_day("2026-06-05", dataset="ai_gateway_messages", source="claude")
    datasets = cache.root / "datasets"
    (datasets / "logs").rename(datasets / os.fsdecode(b"lo\xffgs"))
    code, out, err = run("export", "archive", "--config", str(config))
    assert code == 1
    assert [line.split()[1:4] for line in out.splitlines()[1:]] == [["ai_gateway_messages", "1", "3"], ["lo\\xffgs", "0", "0"]]
    assert "not exported: archive/lo\\xffgs 2026-06-05" in err
    assert "its path is not UTF-8" in err


def test_a_demo_that_cannot_be_written_says_where_to(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run("demo", "--dir", str(tmp_path / "file" / "demo"))
    assert code == 2
    assert "name another directory with --dir" in err


def test_a_shell_in_a_directory_that_was_removed_is_told_so(run, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, _, err = run("status")
    assert code == 2
    assert "was removed" in err


def test_what_an_encoder_prints_is_no_part_of_the_answer(run, config, cache, monkeypatch):
    cache.with_day("2026-06-05")
    encode = JsonlEncoder.encode

    def talking(self, *arguments):
        print("encoding")
        return encode(self, *arguments)

    monkeypatch.setattr(JsonlEncoder, "encode", talking)
    code, out, err = run("export", "feed", "--config", str(config), "--json")
    assert (code, [each["status"] for each in documents(out)]) == (0, ["exported"])
    assert "encoding" in err
