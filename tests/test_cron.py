"""Schedules: what is taken, and when they fire, judged by a second reading of HypAware's rules and by Dagster's own clockwork."""

import datetime as dt
import itertools
import re

import pytest
from dagster._utils.schedules import is_valid_cron_string, schedule_execution_time_iterator
from hypothesis import example, given
from hypothesis import strategies as st

from hypaware_pipeline.config.cron import cron_grammar_problem, cron_problem, next_firing, plain_cron

# --- what is taken -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "0 * * * *",
        "*/15 8-17 * 1,6 1-5",
        "5/10 * * * *",
        "0-59/1 0-23 1-31 1-12 0-7",
        "  0 0 1 1 7  ",
        "0\t0 1 1 *",
        "*/999 * * * *",
    ],
)
def test_a_schedule_hypaware_takes_is_taken(text: str) -> None:
    assert cron_problem(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("@hourly", "0 0 1 1", "60 * * * *", "0 0 1 1 1 1", "0 24 * * *", "0 0 0 * *", "0 0 32 * *", "0 0 * 13 *", "0 0 * * 8"),
        *("5-1 * * * *", "*/0 * * * *", "*/ * * * *", "1,,2 * * * *", ", * * * *", "MON * * * *", "0 0 * * MON", "? * * * *"),
        *("0 0 L * *", "-1 * * * *", "1.5 * * * *", "٣ * * * *", "0 * * * *\n0", "é", "", "@ * * * *", "1-2-3 * * * *"),
        *("* * * * */x", "0 0 1W * *", "0 0 * * 1#2", "/5 * * * *"),
    ],
)
def test_a_schedule_hypaware_refuses_is_refused(text: str) -> None:
    assert cron_problem(text) is not None
    assert cron_grammar_problem(text) is not None


@pytest.mark.parametrize("text", ["0 0 30 2 *", "0 0 30,31 2 *", "0 0 31 4,6,9,11 *", "0 0 31/2 2,4 *"])
def test_a_schedule_that_never_fires_is_refused_as_such(text: str) -> None:
    assert cron_problem(text) == "schedule never fires: no year has such a day"
    assert cron_grammar_problem(text) is None


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 30 2 1", "0 0 31 2,3 *", "0 0 30 2 */1"])
def test_a_schedule_that_fires_rarely_is_taken(text: str) -> None:
    assert cron_problem(text) is None


# --- when it fires -------------------------------------------------------------------------------------------------------------


def hypaware_fires(text: str, moment: dt.datetime) -> bool:
    """HypAware's own reading, field by field, on one minute; only day of week 7 is Sunday here."""
    fields = text.split()
    values = (moment.minute, moment.hour, moment.day, moment.month, moment.isoweekday() % 7)
    least = (0, 0, 1, 1, 0)
    minute, hour, day, month, weekday = (
        any(matches(part, value, first) or (number == 4 and value == 0 and matches(part, 7, first)) for part in field.split(","))
        for number, (field, value, first) in enumerate(zip(fields, values, least, strict=True))
    )
    either = fields[2] != "*" and fields[4] != "*"
    return minute and hour and month and ((day or weekday) if either else (day and weekday))


def matches(part: str, value: int, least: int) -> bool:
    core, _, step = part.partition("/")
    if core == "*":
        return (value - least) % int(step or 1) == 0
    low, _, high = core.partition("-")
    return int(low) <= value <= int(high or low) and (value - int(low)) % int(step or 1) == 0


def dagster_fires(text: str, start: dt.datetime, end: dt.datetime) -> list[dt.datetime]:
    plain = plain_cron(text)
    assert is_valid_cron_string(plain)
    ticks = schedule_execution_time_iterator(start.timestamp(), plain, "UTC")
    return list(itertools.takewhile(lambda tick: tick < end, (tick.astimezone(dt.UTC) for tick in ticks)))


def minutes(start: dt.datetime, end: dt.datetime) -> list[dt.datetime]:
    return [start + dt.timedelta(minutes=number) for number in range(int((end - start).total_seconds()) // 60)]


def fields(least: int, most: int) -> st.SearchStrategy[str]:
    numbers = st.integers(least, most)
    core = st.one_of(st.just("*"), numbers.map(str), st.tuples(numbers, numbers).map(lambda pair: "{}-{}".format(*sorted(pair))))
    part = st.one_of(core, st.tuples(core, st.integers(1, most + 3)).map(lambda pair: f"{pair[0]}/{pair[1]}"))
    return st.one_of(st.just("*"), st.lists(part, min_size=1, max_size=3).map(",".join))


CRONS = st.tuples(fields(0, 59), fields(0, 23), fields(1, 31), fields(1, 12), fields(0, 7)).map(" ".join)
YEARS = range(2023, 2029)
"""With one leap year at least, and every weekday on every date."""


@given(text=CRONS, year=st.sampled_from(YEARS), month=st.integers(1, 12), day=st.integers(1, 28))
@example(text="5/10 * * * *", year=2026, month=6, day=1)
@example(text="0 0 * * 7", year=2026, month=6, day=6)
@example(text="0 0 */2 * 1", year=2026, month=6, day=1)
@example(text="0 12 1-31 * 1", year=2026, month=6, day=1)
@example(text="7-7 3-3 * * 5-7", year=2026, month=6, day=1)
@example(text="0 0 29 2 *", year=2028, month=2, day=28)
@example(text="0 0 28-29 2 *", year=2027, month=2, day=28)
def test_dagster_fires_at_exactly_the_minutes_hypaware_means(text: str, year: int, month: int, day: int) -> None:
    if cron_problem(text) is not None:
        return
    start = dt.datetime(year, month, day, tzinfo=dt.UTC)
    end = start + dt.timedelta(hours=26)
    assert dagster_fires(text, start, end) == [moment for moment in minutes(start, end) if hypaware_fires(text, moment)]


@given(days=fields(1, 31), months=fields(1, 12), weekdays=fields(0, 7))
@example(days="*", months="*", weekdays="7")
@example(days="*/2", months="2", weekdays="*/2")
@example(days="31", months="2,4", weekdays="*")
def test_the_days_of_six_years_are_hypawares_and_none_of_them_means_refused(days: str, months: str, weekdays: str) -> None:
    text = f"0 0 {days} {months} {weekdays}"
    start, end = dt.datetime(YEARS[0], 1, 1, tzinfo=dt.UTC), dt.datetime(YEARS[-1] + 1, 1, 1, tzinfo=dt.UTC)
    expected = [
        moment for number in range((end - start).days) if hypaware_fires(text, moment := start + dt.timedelta(days=number))
    ]
    if cron_problem(text) is not None:
        assert expected == []
    else:
        assert dagster_fires(text, start, end) == expected


@given(CRONS)
def test_a_schedule_is_written_anew_in_what_everybody_reads_alike(text: str) -> None:
    if cron_problem(text) is None:
        plain = plain_cron(text)
        assert all(re.fullmatch(r"\*(/[0-9]+)?|[0-9]+(,[0-9]+)*", field) for field in plain.split())
        assert plain_cron(plain) == plain


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("0 * * * *", "0 * * * *"),
        ("*/15 8-17 * 1,6 1-5", "*/15 8,9,10,11,12,13,14,15,16,17 * 1,6 1,2,3,4,5"),
        ("5/10 */6 * * 7", "5 */6 * * 0"),
        ("0-59 0,12 1-31 * *", "* */12 * * *"),
        ("0 0 1-31 * 1", "0 0 * * *"),
    ],
)
def test_a_schedule_stays_readable(text: str, plain: str) -> None:
    assert plain_cron(text) == plain


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("*/15 * * * *", "2026-06-10T12:00:00", "2026-06-10T12:15"),
        ("*/15 * * * *", "2026-06-10T12:14:59", "2026-06-10T12:15"),
        ("5/10 * * * *", "2026-06-10T12:05:30", "2026-06-10T13:05"),
        ("30 8 * * *", "2026-06-10T08:30:00", "2026-06-11T08:30"),
        ("0 0 1 * 1", "2026-06-10T12:00:00", "2026-06-15T00:00"),
        ("0 0 * * 7", "2026-06-10T12:00:00", "2026-06-14T00:00"),
        ("59 23 31 12 *", "2026-12-31T23:59:00", "2027-12-31T23:59"),
        ("0 0 29 2 *", "2026-06-10T12:00:00", "2028-02-29T00:00"),
        ("0 0 29 2 *", "2097-01-01T00:00:00", "2104-02-29T00:00"),
    ],
)
def test_the_next_firing_is_the_first_minute_after_now_that_the_schedule_names(text: str, after: str, expected: str) -> None:
    now = dt.datetime.fromisoformat(f"{after}+00:00")
    assert next_firing(text, now) == dt.datetime.fromisoformat(f"{expected}+00:00")


@given(
    st.sampled_from(["*/7 */5 * * *", "0 0 1,15 * 3", "10 4 */2 * *", "0 12 31 * *", "3-40/9 1-5 * 2,11 *"]),
    st.datetimes(dt.datetime(2024, 1, 1), dt.datetime(2030, 1, 1)),
)
def test_dagster_fires_next_when_we_say(text: str, moment: dt.datetime) -> None:
    after = moment.replace(tzinfo=dt.UTC)
    ticks = schedule_execution_time_iterator(after.timestamp(), plain_cron(text), "UTC", ascending=True)
    assert next_firing(text, after) == next(tick for tick in ticks if tick > after)
