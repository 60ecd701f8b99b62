"""The benchmark package: sides run apart from each other, and failures are told. What they measure is not tested."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES
from benchmarks.lab import ROOT, Lab, Sample, Side, ratio, table


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def a_sample(seconds: float) -> Sample:
    return Sample(seconds, seconds, 1, {})


def test_the_list_says_of_every_benchmark_what_it_measures() -> None:
    done = benchmarks("--list")
    assert done.returncode == 0
    assert all(f"\n{name}: " in done.stdout for name in NAMES)
    assert "took" not in done.stdout


def test_an_unknown_benchmark_is_refused_with_those_there_are() -> None:
    done = benchmarks("speed")
    assert done.returncode == 2
    assert "no benchmark named speed; there are throughput, memory" in done.stderr


def test_what_a_benchmark_records_it_can_record_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path, quick=True)
    cache = str(tmp_path / "cache")
    lab.run(Side("benchmarks.caches:fill_logs", {"cache": cache, "rows": 40, "one_file": False, "rows_per_file": 20}))
    with lab.scratch() as home:
        for _ in range(2):
            lab.run(
                Side("benchmarks.installations:record_all", {"home": str(home), "cache": cache, "sinks": {"archive": "parquet"}})
            )


def test_a_side_runs_in_a_process_of_its_own_and_answers_with_figures(tmp_path: Path) -> None:
    lab = Lab(tmp_path, quick=True)
    cache = str(tmp_path / "cache")
    lab.run(Side("benchmarks.caches:fill_logs", {"cache": cache, "rows": 40, "one_file": False, "rows_per_file": 20}))
    with lab.scratch() as home:
        arguments = {"home": str(home), "cache": cache, "dataset": "logs", "day": "2026-06-01", "kind": "parquet"}
        exported = lab.run(Side("benchmarks.installations:export_day", arguments))
        copied = lab.run(
            Side(
                "benchmarks.installations:duckdb_copy",
                {"cache": cache, "out": str(home / "copy.parquet"), "dataset": "logs", "variants": True},
            )
        )
    assert exported.figures["rows"] == copied.figures["rows"] == 40
    assert exported.peak_bytes > 50_000_000
    assert 0 < exported.seconds < exported.seconds + exported.cpu_seconds
    assert not home.exists()


def test_a_side_that_fails_says_why(tmp_path: Path) -> None:
    side = Side("benchmarks.caches:append_logs", {"cache": str(tmp_path / "cache"), "rows": "many", "seed": 1})
    with pytest.raises(RuntimeError, match="TypeError"):
        Lab(tmp_path, quick=True).run(side)


def test_a_ratio_compares_round_by_round() -> None:
    # The machine was ten times slower in the last two rounds, for both sides or one: the medians alone would give 0.05.
    side = [a_sample(2), a_sample(20), a_sample(20)]
    floor = [a_sample(1), a_sample(10), a_sample(1)]
    assert ratio(side, floor) == 0.5


def test_a_table_is_aligned_markdown() -> None:
    assert table("Title", ("side", "ms"), [("engine", "12"), ("a", "3")]).splitlines() == [
        "Title",
        "",
        "| side   | ms |",
        "|--------|---:|",
        "| engine | 12 |",
        "| a      |  3 |",
    ]
