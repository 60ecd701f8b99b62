"""The facade over a cache: what each day holds, which rows it gives, and what damage and change elsewhere do to it."""

import datetime as dt
import gzip
import json
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from hypaware_pipeline.cache import index, reader
from hypaware_pipeline.cache.day_rows import PLACE_BITS, DayRows
from hypaware_pipeline.cache.reader import Cache, DatasetPin
from hypaware_pipeline.errors import CacheMissing, PinLost, SourceUnreadable
from hypaware_pipeline.model import PLACE_COLUMN, SEQ_COLUMN, UNDATED, DatasetName, Day, SourceName
from hypaware_pipeline.row_sets import raw_days_of
from tests.builders import a_cache

DATA = Path(__file__).parent / "data"
LOGS, MESSAGES = DatasetName("logs"), DatasetName("ai_gateway_messages")
UNKNOWN, CLAUDE, CODEX = SourceName("unknown"), SourceName("claude"), SourceName("codex")
MEMORY_BYTES = 1 << 26


class Copy:
    """A cache copied away from where its metadata says it lies, with a clock that can be moved."""

    def __init__(self, tmp_path: Path, name: str) -> None:
        self.home = tmp_path / "moved here"
        self.root = self.home / "cache"
        shutil.copytree(DATA / name, self.root)
        self.index = tmp_path / "index"
        self.spill = tmp_path / "spill"
        self.spill.mkdir()
        self.now = dt.datetime(2026, 6, 20, 12, tzinfo=dt.UTC)

    def open(self) -> Cache:
        return Cache(self.home, index_dir=self.index, clock=lambda: self.now)

    def pin(self, dataset: str = LOGS) -> DatasetPin:
        return self.open().pin(DatasetName(dataset))

    def source(self, dataset: str = LOGS, source: str = UNKNOWN) -> Path:
        return self.root / "datasets" / dataset / f"source={source}"

    def table(self, dataset: str = LOGS, source: str = UNKNOWN) -> Path:
        directory = self.source(dataset, source)
        return directory / str(json.loads((directory / "cursor.json").read_text())["tableDir"])

    def set_cursor(self, dataset: str, source: str, **changes: object) -> None:
        path = self.source(dataset, source) / "cursor.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def swap_generation(self, dataset: str = LOGS, source: str = UNKNOWN, *, name: str = "table-1999999999999") -> None:
        """As a compaction does it, with the removal of the old generation, which HypAware leaves for a day."""
        self.table(dataset, source).rename(self.source(dataset, source) / name)
        self.set_cursor(dataset, source, tableDir=name)

    def sequences(self, pin: DatasetPin, days: Iterable[Day] | None = None) -> dict[SourceName, Counter[Any]]:
        """Sequence numbers per source of all rows of these days (None: of all), each day checked against its summary."""
        found: dict[SourceName, Counter[Any]] = {}
        wanted = list(pin.partitions() if days is None else days)
        with pin.read(wanted, spill_dir=self.spill, memory_bytes=MEMORY_BYTES) as rows:
            for day in wanted:
                for source, count in pin.summary(day).rows_by_source.items():
                    numbers = [n for batch in rows.batches(day, source) for n in batch.column(SEQ_COLUMN).to_pylist()]
                    assert len(numbers) == count
                    found.setdefault(source, Counter()).update(numbers)
        return found


def expected_sequences(name: str, dataset: str) -> dict[str, Counter[Any]]:
    """What HypAware's own reader returns, per source."""
    found = {}
    for path in (DATA / f"{name}-expected" / dataset).iterdir():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            numbers = [json.loads(line)[SEQ_COLUMN] for line in lines]
        found[path.name.split(".")[0]] = Counter(None if n is None else int(n) for n in numbers)
    return found


def counts(pin: DatasetPin) -> dict[str, int]:
    return {day: summary.rows for day, summary in pin.partitions().items() if summary.rows}


def fingerprints(pin: DatasetPin) -> dict[Day, str]:
    return {day: summary.fingerprint for day, summary in pin.partitions().items()}


def changed(before: DatasetPin, after: DatasetPin) -> set[Day]:
    days = {*before.partitions(), *after.partitions()}
    return {day for day in days if before.summary(day).fingerprint != after.summary(day).fingerprint}


@pytest.fixture
def lived(tmp_path: Path) -> Copy:
    return Copy(tmp_path, "lived")


@pytest.fixture
def basic(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("basic"), "basic")


# --- what a cache holds ---------------------------------------------------------------------------------------------------------


def test_the_lived_logs_hold_what_hypaware_reads_of_them(lived: Copy) -> None:
    assert counts(lived.pin()) == {
        "2026-06-01": 5,
        "2026-06-02": 15,
        "2026-06-03": 40,
        "2026-06-04": 56,
        "2026-06-05": 19,
        "2026-06-06": 40,
        "undated": 3,
    }


@pytest.mark.parametrize("name", ["basic", "lived"])
def test_every_row_is_read_exactly_once_and_under_the_day_hypaware_counts_it(tmp_path: Path, name: str) -> None:
    copy = Copy(tmp_path, name)
    summary = json.loads((DATA / f"{name}-expected" / "summary.json").read_text())["datasets"]
    assert set(copy.open().dataset_names()) == set(summary)
    for dataset, sources in summary.items():
        pin = copy.pin(dataset)
        for source, told in sources.items():
            days = {day: rows for day, rows in told["by_day"].items() if day not in ("null", "2031-01-01")}
            found = {day: item.rows_by_source.get(source, 0) for day, item in pin.partitions().items() if day != UNDATED}
            assert {day: rows for day, rows in found.items() if rows} == days
            assert pin.summary(UNDATED).rows_by_source.get(source, 0) == told["rows"] - sum(days.values())
        assert copy.sequences(pin) == expected_sequences(name, dataset)


def test_the_order_in_which_days_are_asked_changes_nothing(lived: Copy) -> None:
    pin = lived.pin()
    assert lived.sequences(pin, reversed(list(pin.partitions()))) == lived.sequences(pin)


def test_a_day_alone_is_the_same_as_the_day_in_a_range(lived: Copy) -> None:
    pin = lived.pin()
    alone = sum((lived.sequences(pin, [day])[UNKNOWN] for day in pin.partitions()), Counter())
    assert alone == lived.sequences(pin)[UNKNOWN]


def test_a_day_or_a_source_without_rows_gives_none(lived: Copy) -> None:
    pin = lived.pin()
    day = Day("2026-01-01")
    assert pin.summary(day).rows == 0
    with pin.read([day], spill_dir=lived.spill, memory_bytes=MEMORY_BYTES) as rows:
        assert list(rows.batches(day, UNKNOWN)) == []
        assert list(rows.batches(day, SourceName("nobody"))) == []


def test_the_dataset_unites_what_is_declared_with_what_the_tables_have(lived: Copy) -> None:
    names = [column.name for column in lived.pin(MESSAGES).dataset.columns]
    assert len(names) == 56
    assert SEQ_COLUMN not in names


def test_a_dataset_of_a_third_party_is_read_by_its_own_schema(lived: Copy) -> None:
    (lived.root / "datasets" / "logs").rename(lived.root / "datasets" / "their_events")
    pin = lived.pin("their_events")
    assert (pin.dataset.known, pin.dataset.primary_timestamp) == (False, "timestamp")
    assert counts(pin)["2026-06-04"] == 56
    assert lived.sequences(pin) == expected_sequences("lived", LOGS)


@pytest.mark.parametrize("name", ["a 'b' \"c\"", "x,y", "naïve-日本", "two\nlines", "50%25 off", "table", "a=b"])
def test_datasets_and_sources_of_any_name_are_read(lived: Copy, name: str) -> None:
    moved = lived.root / "datasets" / name / f"source={name}"
    moved.parent.mkdir()
    lived.source().rename(moved)
    assert name in lived.open().dataset_names()
    assert lived.sequences(lived.pin(name)) == {name: expected_sequences("lived", LOGS)[UNKNOWN]}


def test_older_layouts_give_the_same_rows(lived: Copy) -> None:
    expected = expected_sequences("lived", LOGS)[UNKNOWN]
    epoch = lived.root / "datasets" / "epoch_logs" / "source=a" / "date=2026-06-05"
    shutil.copytree(lived.table(), epoch / "epoch=2")
    (epoch / "cursor.json").write_text('{"epoch": 2, "rowCount": 178}')
    shutil.copytree(lived.table(), lived.root / "datasets" / "legacy_logs" / "source=a")
    assert lived.sequences(lived.pin("epoch_logs")) == {"source=a,date=2026-06-05": expected}
    assert lived.sequences(lived.pin("legacy_logs")) == {"a": expected}


def test_a_missing_cache_is_an_error_and_an_empty_one_is_empty(tmp_path: Path) -> None:
    cache = Cache(tmp_path, index_dir=tmp_path / "index", clock=lambda: dt.datetime(2026, 6, 20, tzinfo=dt.UTC))
    for ask in (cache.dataset_names, cache.earliest_day, lambda: cache.pin(LOGS)):
        with pytest.raises(CacheMissing):
            ask()
    (tmp_path / "datasets").mkdir()
    assert cache.dataset_names() == ()
    assert cache.earliest_day() is None
    pin = cache.pin(LOGS)
    assert (pin.partitions(), pin.dataset.name, pin.sources) == ({}, LOGS, frozenset())


def test_the_earliest_day_is_the_first_dated_one_of_any_dataset(lived: Copy) -> None:
    """An undated row, one of 2031 and a broken source have no say in it."""
    assert lived.open().earliest_day() == "2026-06-01"
    (lived.source() / "cursor.json").write_text("{")
    assert lived.open().earliest_day() == "2026-06-02"


# --- which days changed --------------------------------------------------------------------------------------------------------


def test_rows_were_removed_when_the_newest_deletion_of_any_source_says(lived: Copy, basic: Copy) -> None:
    assert lived.pin().summary(UNDATED).removed_at == dt.datetime.fromtimestamp(1795951643.744, tz=dt.UTC)
    assert basic.pin(MESSAGES).summary(Day("2026-06-05")).removed_at is None


def set_current(table: Path, snapshot: int) -> None:
    """Make an earlier snapshot of a table its current one."""
    path = max(table.glob("metadata/v*.metadata.json"), key=lambda item: int(item.name[1:].split(".")[0]))
    value = json.loads(path.read_text())
    value["current-snapshot-id"] = value["snapshots"][snapshot]["snapshot-id"]
    path.write_text(json.dumps(value))


def test_a_compaction_makes_no_day_due(lived: Copy) -> None:
    """HypAware rewrites small tables every hour; going by files, every day would be exported again every hour."""
    set_current(lived.table(), 0)
    compacted = lived.pin()
    lived.set_cursor(LOGS, UNKNOWN, tableDir="table")
    before = lived.pin()
    assert len(compacted.partitions()) > 4
    assert changed(before, compacted) == set()


def test_a_flush_makes_the_days_of_its_rows_due_and_no_other(lived: Copy) -> None:
    set_current(lived.table(), 2)
    before = lived.pin()
    set_current(lived.table(), 3)
    assert changed(before, lived.pin()) == {"2026-06-01"}


def test_rows_that_move_to_another_source_make_their_days_due(basic: Copy) -> None:
    before = basic.pin(MESSAGES)
    basic.source(MESSAGES, CODEX).rename(basic.source(MESSAGES, "renamed"))
    after = basic.pin(MESSAGES)
    assert counts(after) == counts(before)
    assert changed(before, after) == set(before.partitions())


def test_another_day_alone_makes_nothing_due(lived: Copy) -> None:
    before = lived.pin()
    lived.now += dt.timedelta(days=200)
    assert changed(before, lived.pin()) == set()


def test_a_row_of_the_future_finds_its_day_when_it_comes(lived: Copy) -> None:
    before = lived.pin()
    assert counts(before)["undated"] == 3
    lived.now = dt.datetime(2030, 12, 31, 0, 0, tzinfo=dt.UTC)
    after = lived.pin()
    assert (counts(after)["2031-01-01"], counts(after)["undated"]) == (1, 2)
    assert changed(before, after) == {"2031-01-01", "undated"}
    assert lived.sequences(after) == lived.sequences(before)


def test_today_is_a_day_in_utc_and_tomorrow_is_not_the_future(lived: Copy) -> None:
    west = dt.timezone(dt.timedelta(hours=-10))
    lived.now = dt.datetime(2030, 12, 30, 15, 0, tzinfo=west)  # already the 31st in UTC
    assert counts(lived.pin())["2031-01-01"] == 1


def test_rows_before_the_floor_are_undated(lived: Copy) -> None:
    cache = Cache(lived.root, index_dir=lived.index, clock=lambda: lived.now, floor=Day("2026-06-04"))
    pin = cache.pin(LOGS)
    assert counts(pin) == {"2026-06-04": 56, "2026-06-05": 19, "2026-06-06": 40, "undated": 63}
    assert lived.sequences(pin) == expected_sequences("lived", LOGS)
    assert cache.earliest_day() == "2026-06-04"


# --- which rows ----------------------------------------------------------------------------------------------------------------


def numbers_of(rows: DayRows) -> Counter[Any]:
    return Counter(int(key) if known else None for key, known in zip(rows.keys, rows.sequenced, strict=True))


@pytest.mark.parametrize("dataset", [LOGS, MESSAGES])
@pytest.mark.parametrize("name", ["basic", "lived"])
def test_the_rows_of_a_day_are_those_it_counts_and_gives(tmp_path: Path, name: str, dataset: DatasetName) -> None:
    copy = Copy(tmp_path, name)
    pin = copy.pin(dataset)
    for day, summary in pin.partitions().items():
        rows = pin.rows_of(day)
        assert {source: len(each) for source, each in rows.items()} == summary.rows_by_source
        assert {source: numbers_of(each) for source, each in rows.items()} == copy.sequences(pin, [day])
        for each in rows.values():
            assert {pin.home_day(int(raw)) for raw in raw_days_of(each.tokens)} == {day}


def test_places_say_which_file_and_which_row_in_order(basic: Copy) -> None:
    pin = basic.pin(MESSAGES)
    rows = pin.table_rows(CODEX)
    files = pin.source_pin(CODEX).files
    assert len(files) > 1
    assert np.all(np.diff(rows.places) > 0)
    for place, key in zip(rows.places.tolist(), rows.keys.tolist(), strict=True):
        file = pq.read_table(files[place >> PLACE_BITS].path, columns=[SEQ_COLUMN])
        assert file.column(0)[place % 2**PLACE_BITS].as_py() == key


def test_the_rows_of_a_table_are_those_of_all_its_days(lived: Copy) -> None:
    pin = lived.pin()
    days = [pin.rows_of(day)[UNKNOWN] for day in pin.partitions()]
    assert numbers_of(pin.table_rows(UNKNOWN)) == numbers_of(DayRows.together(days))
    with pytest.raises(KeyError):
        pin.table_rows(SourceName("nobody"))


def test_which_rows_there_are_is_known_without_reading_a_data_file(lived: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    lived.pin()
    monkeypatch.setattr(index, "_read_rows", lambda *_: pytest.fail("a data file was read"))
    pin = lived.pin()
    assert sum(len(pin.rows_of(day)[UNKNOWN]) for day in pin.partitions()) == len(pin.table_rows(UNKNOWN)) == 178


def test_rows_are_known_again_after_a_compaction_and_in_another_place(tmp_path: Path) -> None:
    """A row that seemed another one would be exported a second time."""
    cache = a_cache(tmp_path / "cache")
    for day in ("2026-06-03", "2026-06-01", "2026-06-03"):
        cache.with_day(day, rows=20)
    before = a_pin(cache.root, tmp_path / "index")
    cache.writer.compact("logs", "unknown")
    after = a_pin(cache.root.rename(tmp_path / "moved"), tmp_path / "other-index")
    assert identities(after) == identities(before)
    assert len(identities(after)) == 60


def a_pin(root: Path, index_dir: Path, dataset: DatasetName = LOGS) -> DatasetPin:
    return Cache(root, index_dir=index_dir, clock=lambda: dt.datetime(2026, 6, 20, tzinfo=dt.UTC)).pin(dataset)


def identities(pin: DatasetPin, source: SourceName = UNKNOWN) -> set[tuple[int, ...]]:
    rows = pin.table_rows(source)
    return set(zip(*(array.tolist() for array in (rows.keys, rows.tokens, rows.hashes, rows.sequenced)), strict=True))


@pytest.mark.parametrize("name", ["basic", "lived"])
def test_rows_that_are_read_say_which_of_the_rows_of_their_day_they_are(tmp_path: Path, name: str) -> None:
    copy = Copy(tmp_path, name)
    pin = copy.pin()
    for day in pin.partitions():
        rows = pin.rows_of(day)[UNKNOWN]
        known = dict(zip(rows.places.tolist(), rows.keys.tolist(), strict=True))
        with pin.read([day], spill_dir=copy.spill, memory_bytes=MEMORY_BYTES, only={UNKNOWN: rows.places % 2 == 0}) as read:
            for batch in read.batches(day, UNKNOWN):
                places, keys = (batch.column(column).to_pylist() for column in (PLACE_COLUMN, SEQ_COLUMN))
                assert keys == [known[place] for place in places]
                assert all(place % 2 == 0 for place in places)


def chosen(copy: Copy, pin: DatasetPin, day: Day, only: dict[SourceName, np.ndarray]) -> dict[SourceName, list[Any]]:
    with pin.read([day], spill_dir=copy.spill, memory_bytes=MEMORY_BYTES, only=only) as rows:
        return {
            source: [n for batch in rows.batches(day, source) for n in batch.column(SEQ_COLUMN).to_pylist()]
            for source in pin.summary(day).rows_by_source
        }


@pytest.mark.parametrize("day", [Day("2026-06-04"), UNDATED])
def test_of_a_day_only_chosen_rows_are_read_in_the_order_of_all(lived: Copy, day: Day) -> None:
    pin = lived.pin()
    every = chosen(lived, pin, day, {})[UNKNOWN]
    rows = pin.rows_of(day)[UNKNOWN]
    mask = np.arange(len(rows)) % 2 == 0
    wanted = set(rows.keys[mask].tolist())
    assert 0 < len(wanted) < len(every)
    assert chosen(lived, pin, day, {UNKNOWN: mask}) == {UNKNOWN: [n for n in every if n in wanted]}
    assert chosen(lived, pin, day, {UNKNOWN: np.zeros(len(rows), bool)}) == {UNKNOWN: []}


def test_a_source_that_is_not_named_gives_all_its_rows(basic: Copy) -> None:
    pin, day = basic.pin(MESSAGES), Day("2026-06-05")
    every = chosen(basic, pin, day, {})
    rows = pin.rows_of(day)[CODEX]
    last = np.arange(len(rows)) == len(rows) - 1
    assert chosen(basic, pin, day, {CODEX: last}) == {CLAUDE: every[CLAUDE], CODEX: rows.keys[last].tolist()}


def test_masks_that_do_not_fit_are_refused(lived: Copy) -> None:
    """Shifted against the rows they would choose others."""
    pin, day = lived.pin(), Day("2026-06-04")
    for days, mask in [([day], np.ones(3, bool)), ([day, UNDATED], np.ones(56, bool))]:
        with pytest.raises(ValueError, match=r"masks of \['unknown'\] are not over the rows of 2026-06-04"):
            pin.read(days, spill_dir=lived.spill, memory_bytes=MEMORY_BYTES, only={UNKNOWN: mask})


def test_a_file_that_vanishes_before_its_rows_are_asked_for_is_explained(lived: Copy) -> None:
    pin = lived.pin()
    shutil.rmtree(lived.index)
    lived.swap_generation()
    with pytest.raises(PinLost, match="pin again"):
        pin.rows_of(Day("2026-06-04"))
    pin = lived.pin()
    shutil.rmtree(lived.index)
    for path in lived.table().glob("data/*"):
        path.unlink()
    with pytest.raises(SourceUnreadable, match=r"'unknown': a file is gone"):
        pin.table_rows(UNKNOWN)


def test_sources_that_were_migrated_are_named_as_they_were(lived: Copy) -> None:
    old = lived.root / "datasets" / LOGS / "client=claude"
    shutil.copytree(lived.table(), old / "date=2026-06-01" / "epoch=1")
    (old / "date=2026-06-01" / "cursor.json").write_text('{"epoch": 1, "rowCount": 178}')
    (before,) = lived.pin().sources - {UNKNOWN}
    (old / ".retired").mkdir()
    (old / "date=2026-06-01").rename(old / ".retired" / "date=2026-06-01")
    pin = lived.pin()
    assert (pin.sources, pin.migrated) == ({UNKNOWN}, {before})


# --- the index is kept ----------------------------------------------------------------------------------------------------------


def test_an_unchanged_cache_is_judged_without_reading_a_data_file(lived: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprints(lived.pin())
    read: list[str] = []
    actual = index._read_rows
    monkeypatch.setattr(index, "_read_rows", lambda file, recipe: read.append(file.name) or actual(file, recipe))
    assert fingerprints(lived.pin()) == before
    assert read == []
    shutil.rmtree(lived.index)
    assert fingerprints(lived.pin()) == before
    assert len(read) == 3


def test_the_index_of_a_source_that_left_the_cache_is_forgotten(basic: Copy) -> None:
    basic.pin(LOGS)
    before = basic.pin(MESSAGES)
    assert len(list(basic.index.glob("*/*/*/days"))) == 3
    shutil.rmtree(basic.source(MESSAGES, CODEX))
    basic.pin(MESSAGES)
    assert len(list(basic.index.glob("*/*/*/days"))) == 2
    shutil.copytree(DATA / "basic" / "datasets" / MESSAGES / "source=codex", basic.source(MESSAGES, CODEX))
    assert fingerprints(basic.pin(MESSAGES)) == fingerprints(before)


def test_an_index_directory_that_cannot_be_written_costs_time_only(lived: Copy) -> None:
    lived.index.write_text("a file where the directory should be")
    pin = lived.pin()
    assert counts(pin)["2026-06-04"] == 56
    assert lived.sequences(pin) == expected_sequences("lived", LOGS)


# --- damage to one thing --------------------------------------------------------------------------------------------------------


def damage_cursor(copy: Copy) -> None:
    (copy.source(MESSAGES, CODEX) / "cursor.json").write_text('{"epoch": 0, "la')


def damage_no_cursor(copy: Copy) -> None:
    (copy.source(MESSAGES, CODEX) / "cursor.json").unlink()


def damage_metadata(copy: Copy) -> None:
    path = max(copy.table(MESSAGES, CODEX).glob("metadata/v*.metadata.json"), key=lambda item: int(item.name[1:].split(".")[0]))
    path.write_text(path.read_text()[:1000])


def damage_table(copy: Copy) -> None:
    shutil.rmtree(copy.table(MESSAGES, CODEX))


def damage_manifests(copy: Copy) -> None:
    for path in copy.table(MESSAGES, CODEX).glob("metadata/*.avro"):
        path.write_bytes(b"garbage")


@pytest.mark.parametrize("damage", [damage_cursor, damage_no_cursor, damage_metadata, damage_table, damage_manifests])
def test_a_broken_source_is_named_and_the_other_goes_on(basic: Copy, damage: Any) -> None:
    before = basic.pin(MESSAGES)
    damage(basic)
    pin = basic.pin(MESSAGES)
    assert pin.unreadable.keys() == {CODEX}
    assert pin.sources == {CLAUDE}
    assert basic.sequences(pin) == {CLAUDE: expected_sequences("basic", MESSAGES)[CLAUDE]}
    assert changed(before, pin) == set(before.partitions())
    for day, summary in pin.partitions().items():
        assert summary.unreadable.keys() == {CODEX}
        with (
            pin.read([day], spill_dir=basic.spill, memory_bytes=MEMORY_BYTES) as rows,
            pytest.raises(SourceUnreadable, match="codex"),
        ):
            list(rows.batches(day, CODEX))


def one_day_file(pin: DatasetPin, source: SourceName) -> tuple[Path, Day]:
    """A data file whose rows are all of one day."""
    indexed = pin._indexes[source]
    file = next(file for file in indexed.pin.files if len(indexed.totals[file.name]) == 1)
    (raw,) = indexed.totals[file.name]
    return file.path, reader.HomeDays(0, 10**6).of(raw)


@pytest.mark.parametrize("known", [True, False], ids=["indexed", "never indexed"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"garbage")], ids=["gone", "garbage"])
def test_a_lost_data_file_costs_its_source_its_days_and_nothing_else(basic: Copy, known: bool, damage: Any) -> None:
    """What the source still has of the day would replace the whole day at a destination."""
    before = basic.pin(MESSAGES)
    path, day = one_day_file(before, CODEX)
    if not known:
        shutil.rmtree(basic.index)
    damage(path)
    pin = basic.pin(MESSAGES)
    assert pin.unreadable == {}
    assert {d for d, summary in pin.partitions().items() if summary.unreadable} == {day}
    assert path.name in pin.summary(day).unreadable[CODEX]
    assert pin.summary(day).rows_by_source == {CLAUDE: before.summary(day).rows_by_source[CLAUDE]}
    assert changed(before, pin) == {day}
    assert basic.sequences(pin)[CODEX] < expected_sequences("basic", MESSAGES)[CODEX]


def test_damage_the_index_cannot_see_fails_the_reading_of_its_source_only(basic: Copy) -> None:
    pin = basic.pin(MESSAGES)
    path, day = one_day_file(pin, CODEX)
    path.write_bytes(b"x" * path.stat().st_size)
    with pin.read([day], spill_dir=basic.spill, memory_bytes=MEMORY_BYTES) as rows:
        with pytest.raises(SourceUnreadable, match=path.name):
            list(rows.batches(day, CODEX))
        assert sum(batch.num_rows for batch in rows.batches(day, CLAUDE)) == pin.summary(day).rows_by_source[CLAUDE]


def test_a_lost_file_of_unknown_days_condemns_its_source(basic: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    before = basic.pin(MESSAGES)
    path, _ = one_day_file(before, CODEX)
    shutil.rmtree(basic.index)
    path.unlink()
    monkeypatch.setattr(reader.SourcePin, "day_bounds", lambda *_: None)
    pin = basic.pin(MESSAGES)
    assert pin.unreadable.keys() == {CODEX}
    assert pin.sources == {CLAUDE}
    assert all(summary.unreadable.keys() == {CODEX} for summary in pin.partitions().values())


# --- HypAware at work meanwhile -------------------------------------------------------------------------------------------------


def test_a_generation_swapped_away_under_a_pin_asks_for_a_new_one(lived: Copy) -> None:
    pin = lived.pin()
    lived.swap_generation()
    day = Day("2026-06-04")
    with pin.read([day], spill_dir=lived.spill, memory_bytes=MEMORY_BYTES) as rows, pytest.raises(PinLost, match="pin again"):
        list(rows.batches(day, UNKNOWN))
    assert not pin.still_current()
    assert lived.sequences(lived.pin()) == expected_sequences("lived", LOGS)


def test_a_source_that_vanished_under_a_pin_asks_for_a_new_one(lived: Copy) -> None:
    pin = lived.pin()
    shutil.rmtree(lived.source())
    day = Day("2026-06-04")
    with pin.read([day], spill_dir=lived.spill, memory_bytes=MEMORY_BYTES) as rows, pytest.raises(PinLost):
        list(rows.batches(day, UNKNOWN))


def test_a_data_file_deleted_under_a_pin_is_damage_when_nothing_else_changed(lived: Copy) -> None:
    """Pinned again and again it would never be read, and never be reported."""
    pin = lived.pin()
    for path in lived.table().glob("data/*.parquet"):
        path.unlink()
    assert pin.still_current()
    day = Day("2026-06-04")
    with (
        pin.read([day], spill_dir=lived.spill, memory_bytes=MEMORY_BYTES) as rows,
        pytest.raises(SourceUnreadable, match=r"is gone .* though its table references it"),
    ):
        list(rows.batches(day, UNKNOWN))


def test_a_flush_under_a_pin_changes_nothing_it_gives(lived: Copy) -> None:
    newest = max(lived.table().glob("metadata/v*.metadata.json"))
    held = newest.read_bytes()
    newest.unlink()
    (newest.parent / "version-hint.text").unlink()
    pin = lived.pin()
    before = lived.sequences(pin)
    newest.write_bytes(held)
    assert lived.sequences(pin) == before != lived.sequences(lived.pin())
    assert pin.same_tables()
    assert not pin.still_current()


def test_a_generation_swapped_away_while_it_is_indexed_is_pinned_again(lived: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    actual, swaps = index._sizes, iter([lived.swap_generation])

    def swapped_first(pin: Any) -> dict[str, int]:
        for swap in swaps:
            swap()
        return actual(pin)

    monkeypatch.setattr(index, "_sizes", swapped_first)
    pin = lived.pin()
    assert not pin.has_losses
    assert counts(pin)["2026-06-04"] == 56


def test_tables_of_one_moment_are_pinned_together(basic: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first source is swapped after it was pinned and before the last one is: rows may have moved between them."""
    actual, swaps = reader.index_source, iter([basic.swap_generation])

    def swapped_after(pin: Any, *args: Any) -> Any:
        found = actual(pin, *args)
        for swap in swaps:
            swap(MESSAGES, CLAUDE)
        return found

    monkeypatch.setattr(reader, "index_source", swapped_after)
    pin = basic.pin(MESSAGES)
    assert pin.still_current()
    assert basic.sequences(pin) == expected_sequences("basic", MESSAGES)


def test_tables_that_never_stop_being_swapped_are_given_up(lived: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    actual, generations = reader.index_source, iter(range(100))

    def always_swapped(pin: Any, *args: Any) -> Any:
        found = actual(pin, *args)
        lived.swap_generation(name=f"table-{next(generations)}")
        return found

    monkeypatch.setattr(reader, "index_source", always_swapped)
    with pytest.raises(PinLost, match="try again"):
        lived.pin()


def test_a_reader_leaves_nothing_behind(lived: Copy) -> None:
    lived.sequences(lived.pin())
    assert list(lived.spill.iterdir()) == []
