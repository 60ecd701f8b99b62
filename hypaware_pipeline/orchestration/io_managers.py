"""Where rows enter a run and where they leave it.

Why nothing is read when an input is loaded: a range of days does not fit in memory. What travels through Dagster is a slice
that knows the cache and the days; the sink's side pins it and streams.

Why good partitions are logged before the failure is raised: a run covers many days. Dagster marks a partition materialized only
by an event, and emits one for *every* partition of the run when the output returns normally, those that failed included.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from hypaware_pipeline.config.references import Secrets
from hypaware_pipeline.errors import SinkHalted
from hypaware_pipeline.export.driver import Exporter
from hypaware_pipeline.export.leases import LeaseTerms
from hypaware_pipeline.export.outlook import counted
from hypaware_pipeline.export.plan import partition_of
from hypaware_pipeline.export.requeue import settle
from hypaware_pipeline.export.slices import CacheSlice
from hypaware_pipeline.ledger import Ledger, LedgerPlace
from hypaware_pipeline.model import UNDATED, DatasetName, Day, DayOutcome, ExportBatch, ExportOptions, ExportResult, SinkName
from hypaware_pipeline.orchestration.interrupts import closed_by_signals
from hypaware_pipeline.orchestration.partitions import days_of
from hypaware_pipeline.orchestration.resources import BlobStoreResource, EncoderResource, TableFormatResource
from hypaware_pipeline.plugins.contracts import Sink
from hypaware_pipeline.sinks.configured import ConfiguredSink

Observer = Callable[[DayOutcome], None]
"""Told of every day as it is done; the CLI's progress bar is one."""


def utc_now() -> datetime:
    """The clock of a run."""
    return datetime.now(UTC)


class CacheIOManager(dg.ConfigurableIOManager):
    """Hands the requested days of a dataset to an asset, as a lazy `CacheSlice`.

    Attributes:
        cache_root: The directory that holds `datasets/`.
        index_dir: Where the row index lies.
        spill_dir: Where sorting may spill.
        floor_day: Rows before it have no day.
        first_day: The first partition.
        datasets: Raw dataset names by the name in their asset key.
    """

    cache_root: str
    index_dir: str
    spill_dir: str
    floor_day: str
    first_day: str
    datasets: dict[str, str]

    def load_input(self, context: dg.InputContext) -> CacheSlice:
        """The slice of the days this run covers."""
        from hypaware_pipeline.cache.reader import Cache  # pyarrow and duckdb, 0.6 s: only in a run

        cache = Cache(Path(self.cache_root), index_dir=Path(self.index_dir), clock=utc_now, floor=Day(self.floor_day))
        dataset = DatasetName(self.datasets[context.asset_key.path[-1]])
        days = days_of(list(context.asset_partition_keys), Day(self.first_day))
        return CacheSlice(cache, dataset, days, Path(self.spill_dir))

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:  # noqa: ARG002
        """Nothing writes to the cache but HypAware."""
        raise dg.DagsterInvariantViolationError("the cache is only ever read; give this asset another IO manager")


class SinkIOManager(dg.ConfigurableIOManager):
    """Exports a slice to one sink: composes an encoder and a blob store, records receipts, reports per partition.

    Attributes:
        sink: The sink's name as configured.
        prefix: Under which its objects lie in the store.
        destination: Digest of everything that shapes its objects.
        ledger: Where receipts are recorded: a file, or a URL without its password.
        first_day: The first partition, which also stands for undated rows.
        takeover: Whether to go on where somebody else wrote.
        lease_wait_seconds: How long to wait for another export of the same (sink, dataset).
    """

    sink: str
    prefix: str
    destination: str
    ledger: str
    first_day: str
    takeover: bool
    lease_wait_seconds: float
    encoder: dg.ResourceDependency[EncoderResource]
    blob_store: dg.ResourceDependency[BlobStoreResource]
    table_format: dg.ResourceDependency[TableFormatResource]
    observer: dg.ResourceDependency[Any]

    def load_input(self, context: dg.InputContext) -> Any:  # noqa: ARG002
        """What a sink holds is read by engines, not by assets of this run."""
        raise dg.DagsterInvariantViolationError(f"sink '{self.sink}' is written, not read; read its objects with a query engine")

    def handle_output(self, context: dg.OutputContext, obj: CacheSlice) -> None:
        """Export every day of the slice.

        Raises:
            dagster.Failure: some days were not exported; its metadata names their partitions in `retry_partitions`. The
                others are recorded as materialized.
        """
        with self._ledger(os.environ) as ledger:
            sink = self._built(context, obj, ledger)
            by_partition: dict[Day, list[DayOutcome]] = {}
            terms = LeaseTerms.of(f"run {context.run_id}", wait_seconds=self.lease_wait_seconds)
            exporter: Sink[CacheSlice] = Exporter(sink, ledger, utc_now, terms)
            with closing(exporter), closed_by_signals(exporter.close) as ended:

                def told(outcome: DayOutcome) -> None:
                    if outcome.done or not ended.is_set():  # a day that the end cut off did not fail
                        settle(ledger, outcome)
                    if outcome.day == UNDATED and outcome.done and outcome.receipt is None:
                        return  # nobody asked: it came along with the first partition, and there is nothing of it
                    self.observer(outcome)
                    _log(context, outcome)
                    by_partition.setdefault(partition_of(outcome.day, Day(self.first_day)), []).append(outcome)

                result = exporter.export_batch(ExportBatch(obj.dataset, tuple(obj.days), obj), ExportOptions(told))
                exporter.flush()
                self._report(context, sink, result, by_partition)

    def _report(
        self, context: dg.OutputContext, sink: ConfiguredSink, result: ExportResult, by_partition: Mapping[Day, list[DayOutcome]]
    ) -> None:
        """Record the good partitions as materialized.

        Raises:
            dagster.Failure: there are others.
        """
        done = ", ".join((counted(result.partitions_exported, "day"), counted(result.rows, "row"), f"{result.bytes} bytes"))
        context.log.info(f"{sink.name}/{context.asset_key.path[-1]}: {result.status}; {done}")
        retry = {partition_of(day, Day(self.first_day)) for day in result.retry_partitions}
        failed = {key: outcomes for key, outcomes in by_partition.items() if key in retry}
        if not failed:
            for key, outcomes in by_partition.items():
                context.step_context.add_asset_metadata(
                    metadata=_metadata(sink, outcomes), asset_key=context.asset_key, partition_key=key
                )
            return
        for key, outcomes in by_partition.items():
            if key not in failed:
                event = dg.AssetMaterialization(context.asset_key, partition=key, metadata=_metadata(sink, outcomes))
                context.log_event(event)
        raise _failure(failed, of=len(by_partition))

    def _built(self, context: dg.OutputContext, rows: CacheSlice, ledger: Ledger) -> ConfiguredSink:
        """The sink.

        Raises:
            dagster.Failure: it cannot be built; it is halted, and every day failed.
        """
        try:
            return self._sink(os.environ)
        except SinkHalted as error:
            name, reason = SinkName(self.sink), str(error)
            ledger.retries.halt(name, reason)
            for day in rows.days:
                outcome = DayOutcome(name, rows.dataset, day, "failed", None, reason, seconds=0.0, retry_after_seconds=None)
                settle(ledger, outcome)
            keys = dg.MetadataValue.json(sorted(context.asset_partition_keys))
            raise dg.Failure(reason, metadata={"retry_partitions": keys}, allow_retries=False) from None

    def _ledger(self, env: Mapping[str, str]) -> Ledger:
        """The ledger, its password looked up now."""
        return LedgerPlace.remembered(self.ledger, env).open(clock=utc_now)

    def _sink(self, env: Mapping[str, str]) -> ConfiguredSink:
        """The sink, its variables looked up now: nothing of them was in any definition."""
        secrets = Secrets(self.sink, env)
        return ConfiguredSink.of(
            SinkName(self.sink),
            self.destination,
            encoder=self.encoder.build(secrets),
            store=self.blob_store.build(secrets),
            table_format=self.table_format.build(secrets),
            prefix=self.prefix,
            secrets=secrets,
            takeover=self.takeover,
        )


def _log(context: dg.OutputContext, outcome: DayOutcome) -> None:
    text = f"{outcome.sink}/{outcome.dataset} {outcome.day}: {outcome.status}"
    if outcome.receipt is not None:
        text += f", {counted(outcome.receipt.exported_rows, 'row')}, {outcome.receipt.bytes} bytes"
    if outcome.error is not None:
        context.log.error(f"{text}; {outcome.error}")
    else:
        context.log.info(f"{text} in {outcome.seconds:.1f} s")


def _failure(failed: dict[Day, list[DayOutcome]], *, of: int) -> dg.Failure:
    reasons: dict[str, str] = {
        key: "; ".join(outcome.error for outcome in outcomes if outcome.error) for key, outcomes in failed.items()
    }
    first = min(reasons)
    return dg.Failure(
        description=f"{len(failed)} of {counted(of, 'day')} not exported; {first}: {reasons[first]}",
        metadata={"retry_partitions": dg.MetadataValue.json(sorted(failed)), "reasons": dg.MetadataValue.json(reasons)},
        allow_retries=False,
    )


def _metadata(sink: ConfiguredSink, outcomes: list[DayOutcome]) -> dict[str, Any]:
    """What the UI shows and plots of one partition, in this order: first what is looked for, last what fills a page.

    Numbers have one stable key each.
    """
    receipts = [outcome.receipt for outcome in outcomes if outcome.receipt is not None]
    rows = sum(receipt.exported_rows for receipt in receipts)
    seconds = sum(outcome.seconds for outcome in outcomes)
    undated = sum(receipt.exported_rows for receipt in receipts if receipt.day == UNDATED)
    uris = [sink.uri(file.key) for receipt in receipts for file in receipt.files]
    return {
        "dagster/partition_row_count": rows,
        "bytes": sum(receipt.bytes for receipt in receipts),
        **({"dagster/uri": uris[0].rsplit("/", 1)[0]} if uris else {}),
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / seconds, 1) if seconds else 0.0,
        "parked": sum(receipt.parked_rows for receipt in receipts),
        "withheld": sum(receipt.withheld_rows for receipt in receipts),
        "kept": sum(receipt.kept_rows for receipt in receipts),
        "undated": undated,
        "status": ", ".join(sorted({outcome.status for outcome in outcomes})),
        "files": dg.MetadataValue.json(uris),
        "receipt": dg.MetadataValue.json([receipt.shown() for receipt in receipts]),
    }
