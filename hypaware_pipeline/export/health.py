"""Whether an installation can export: its config, its cache and its state, looked at without exporting.

Why every dataset is pinned: only that tells whether its sources can be read, and the row index it leaves behind is what the next
export would have had to make.

Why rows that wait in the spool are never a problem: they stop no export, they only miss it.
"""

import datetime as dt
from collections.abc import Iterable, Iterator

from rich.filesize import decimal

from hypaware_pipeline.cache.layout import read_cursor, resolve_root, source_locations
from hypaware_pipeline.cache.spool import Spool, spools
from hypaware_pipeline.config import Config
from hypaware_pipeline.errors import CacheError, ConfigErrors, LedgerError, StateUnusable
from hypaware_pipeline.export.findings import Finding, ago, ok, problem, warning
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.outlook import span
from hypaware_pipeline.model import DatasetName

SPOOL_WAITS_AT_MOST = dt.timedelta(days=1)
"""HypAware's own sinks empty it every hour or so; a spool that waits for longer has nobody who asks for it."""


def unusable_config(error: ConfigErrors) -> Iterator[Finding]:
    """What is wrong with a config file that cannot be used at all."""
    for each in error.errors:
        if each.kind == "config_missing":  # whose message shows a whole file
            yield problem("config", f"there is no {error.path}; `hypaware-pipeline init` makes one")
        else:
            yield problem("config", f"{error.path}: {each}")


def config_findings(config: Config) -> Iterator[Finding]:
    """The config file: what works, what is wrong with the sinks that do not, and what is wrong beside them."""
    breaking = {str(error) for errors in config.broken_sinks.values() for error in errors}
    if not config.sinks and not breaking:
        yield problem(
            "config", f"{config.path} has no sinks, so nothing is exported; docs/configuration.md shows what one looks like"
        )
    else:
        yield ok(
            "config", f"{config.path}: {len(config.sinks)} of {len(config.sinks) + len(config.broken_sinks)} sinks can be used"
        )
    for name, errors in config.broken_sinks.items():
        for error in errors:
            yield problem(f"sink {name}", str(error))
    for error in config.problems:
        if str(error) not in breaking:
            yield warning("config", str(error))
    for note in config.notes:
        yield warning("HypAware's config", note)


def state_findings(installation: Installation) -> Iterator[Finding]:
    """The state directory and the ledger, which may lie elsewhere."""
    try:
        with installation.open_ledger():
            yield ok("ledger", installation.ledger.shown)
    except (StateUnusable, LedgerError) as error:
        yield problem("ledger", str(error))


def cache_findings(installation: Installation) -> Iterator[Finding]:
    """The cache: every dataset, every source of it that cannot be read, and what waits in its spool."""
    try:
        root = resolve_root(installation.config.cache_root)
        names = installation.cache().dataset_names()
        waiting = spools(root)
    except CacheError as error:
        yield problem("cache", str(error))
        return
    if names:
        yield ok("cache", f"{root}: {', '.join(names)}")
    else:
        yield warning("cache", f"{root} holds no dataset yet; let HypAware record something")
    for name in names:
        yield from _dataset_findings(installation, name)
    yield from spool_findings(installation, waiting)


def spool_findings(installation: Installation, waiting: Iterable[Spool]) -> Iterator[Finding]:
    """What waits in the spool of each dataset."""
    now = installation.clock()
    asked = [sink.name for sink in installation.config.sinks.values() if sink.before_tick]
    mend = f"see what before_tick of sink '{asked[0]}' says at its ticks" if asked else "before_tick in a sink's config does that"
    for spool in waiting:
        where = f"spool of {spool.dataset}"
        if spool.since is None:
            yield ok(where, "nothing waits")
            continue
        text = waiting_text(spool.bytes, spool.since, now)
        if now - spool.since < SPOOL_WAITS_AT_MOST:
            yield ok(where, text)
        else:
            yield warning(
                where, f"{text}. They are exported once HypAware moves them into tables: `hyp cache refresh` does; {mend}"
            )


def waiting_text(count: int, since: dt.datetime, now: dt.datetime) -> str:
    """So many bytes that wait in a spool, and for how long."""
    return f"{decimal(count)} of rows wait; the first came {ago(since, now)}"


def _dataset_findings(installation: Installation, name: DatasetName) -> Iterator[Finding]:
    where = f"dataset {name}"
    try:
        pin = installation.cache().pin(name)
        layouts = {
            str(read_cursor(location).layout)
            for location in source_locations(resolve_root(installation.config.cache_root), name)
            if location.source in pin.sources
        }
    except CacheError as error:
        yield problem(where, str(error))
        return
    rows = {day: summary.rows for day, summary in sorted(pin.partitions().items()) if summary.rows}
    if rows:
        yield ok(
            where, f"{sum(rows.values())} rows of {span(list(rows))} in {len(pin.sources)} sources ({', '.join(sorted(layouts))})"
        )
    elif pin.sources:
        yield ok(where, f"no rows in {len(pin.sources)} sources ({', '.join(sorted(layouts))})")
    reasons = {str(source): reason for summary in pin.partitions().values() for source, reason in summary.unreadable.items()}
    for source, reason in sorted({**reasons, **{str(source): reason for source, reason in pin.unreadable.items()}}.items()):
        yield problem(where, f"source '{source}' cannot be read: {reason}")
