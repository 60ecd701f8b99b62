"""`hypaware-pipeline ledger rebuild`: what was exported, as the receipts at the destinations tell it."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import typer

from hypaware_pipeline.cli.agenda import Selection
from hypaware_pipeline.config import SinkConfig, find_config_path
from hypaware_pipeline.errors import CacheError, LedgerError, SinkError
from hypaware_pipeline.export.beginnings import beginnings, move_first_day
from hypaware_pipeline.export.installation import Installation, build_sink
from hypaware_pipeline.export.lineage import join
from hypaware_pipeline.export.outlook import counted, span
from hypaware_pipeline.export.rebuild import DatasetFound, SinkFound, earlier_first_day, look, take
from hypaware_pipeline.ledger import Ledger
from hypaware_pipeline.model import DatasetName, Day, SinkName


def rebuild_command(config: Path | None, names: Sequence[str], *, env: Mapping[str, str], yes: bool) -> int:
    """Say what lies at the destinations, record it when told to; returns the exit code, 0 if nothing was left out.

    Raises:
        BadRequest, ConfigErrors, StateUnusable: the request cannot be carried out as it stands.
        LedgerError: the ledger cannot be read or written.
    """
    installation = Installation.load(find_config_path(config, env), env)
    selection = Selection(sinks=[SinkName(name) for name in names])
    sinks = selection.of_sinks(installation)
    said = _Said()
    for name, errors in installation.config.broken_sinks.items():
        if not names or name in names:
            said.left_out(f"sink {name}: {'; '.join(str(error) for error in errors)}")
    first_day = beginnings(installation).first_day
    with installation.open_ledger() as ledger:
        found = [each for sink in sinks if (each := _look(sink, ledger, env, said)) is not None]
        for each in found:
            for line in _lines(each, installation.config.sinks[each.sink.name], ledger.id):
                typer.echo(line)
            said.left_out(*_problems(each))
        to_do = [each for each in found if each.to_record() or each.to_claim(ledger.id)]
        earlier = earlier_first_day(found, installation.config, first_day)
        if any(each.to_claim(ledger.id) for each in found):
            typer.echo(f"this ledger ({ledger.id}) is to claim the directories; no other can export there after that")
        if earlier:
            typer.echo(f"partitions are to begin on {earlier} again, not on {first_day}")
        if not to_do:
            typer.echo("there is nothing to record: the ledger knows all that can be taken from the destinations")
        elif yes or _agreed():
            _take(installation, ledger, to_do, earlier, said)
        else:
            said.left_out("nothing was recorded; `hypaware-pipeline ledger rebuild --yes` records without asking")
    return said.exit_code


class _Said:
    """What was left out is said on stderr, and decides the exit code."""

    def __init__(self) -> None:
        self.exit_code = 0

    def left_out(self, *texts: str) -> None:
        """Something that was not taken, or could not be done."""
        for text in texts:
            typer.echo(f"left out: {text}", err=True)
            self.exit_code = 1


def _look(sink: SinkConfig, ledger: Ledger, env: Mapping[str, str], said: _Said) -> SinkFound | None:
    """What lies at a sink's destination. Whatever a store raises ends at its sink."""
    try:
        built = build_sink(sink, env)
    except SinkError as error:
        said.left_out(f"sink {sink.name}: {error}")
        return None
    try:
        return look(built, ledger)
    except SinkError as error:
        said.left_out(f"sink {sink.name}: {built.mask(str(error))}")
    except LedgerError:
        raise
    except Exception as error:
        said.left_out(f"sink {sink.name}: {built.mask(f'unexpected {type(error).__name__}: {error}')}")
    return None


def _take(installation: Installation, ledger: Ledger, found: Sequence[SinkFound], earlier: Day | None, said: _Said) -> None:
    for each in found:
        try:
            take(each, ledger)
        except SinkError as error:
            said.left_out(f"sink {each.sink.name}: {each.sink.mask(str(error))}")
            continue
        typer.echo(f"{each.sink.name}: {counted(len(each.to_record()), 'receipt')} recorded")
    _join(installation, ledger, {receipt.dataset for each in found for receipt in each.to_record()}, said)
    if earlier:
        move_first_day(installation, ledger, earlier)
        typer.echo(f"partitions begin on {earlier} now; reload the code location, or restart `hypaware-pipeline dev`, to see it")
    typer.echo("`hypaware-pipeline plan` says what is due now")


def _join(installation: Installation, ledger: Ledger, datasets: Iterable[DatasetName], said: _Said) -> None:
    """Compare what was recorded with the cache as it is, so that whatever vanishes from now on is known to have been removed."""
    for dataset in sorted(datasets):
        try:
            join(installation.cache(), ledger, dataset, now=installation.clock())
        except CacheError as error:
            said.left_out(
                f"{dataset}: its receipts could not be compared with the cache: {error}. Rows of these days that HypAware "
                "removes stay at the sinks until `hypaware-pipeline resume SINK --accept-rewind`"
            )


def _agreed() -> bool:
    return sys.stdin.isatty() and typer.confirm("Record this?")


def _lines(found: SinkFound, sink: SinkConfig, ledger_id: str) -> Iterator[str]:
    """What was found at one destination, a line per dataset."""
    if not found.datasets:
        yield f"{found.sink.name}: no receipts of this sink lie at its destination"
    for each in found.datasets:
        if each.refused is None:
            yield f"{found.sink.name}/{each.directory}: {'; '.join(_parts(each, found, sink, ledger_id))}"


def _parts(each: DatasetFound, found: SinkFound, sink: SinkConfig, ledger_id: str) -> Iterator[str]:
    count = len(each.receipts)
    yield f"{counted(count, 'receipt')} to record" + (
        f", {span(sorted(receipt.day for receipt in each.receipts))}" if count else ""
    )
    if stale := sum(receipt.destination != found.sink.destination for receipt in each.receipts):
        yield f"{stale} of these of other settings of the sink, so that their days are due"
    if each.known:
        yield f"{each.known} that the ledger knows"
    if each.others:
        yield f"{each.others} of other sinks, left alone"
    if each.dataset is not None and not sink.takes(each.dataset):
        yield "the sink takes this dataset no more; what lies there stays"
    if each.claimed_by is None:
        yield "claimed by no ledger"
    elif each.claimed_by != ledger_id:
        yield f"claimed by ledger {each.claimed_by}"


def _problems(found: SinkFound) -> Iterator[str]:
    for each in found.datasets:
        name = f"{found.sink.name}/{each.directory}"
        if each.refused is not None:
            yield f"{name}: {each.refused}"
        yield from (f"{name}: {problem}" for problem in each.problems)
