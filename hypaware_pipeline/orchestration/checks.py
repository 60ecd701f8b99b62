"""Asset checks: one per asset of a sink, for all of its days, judged from plan and ledger.

Why not one per day: Dagster keeps one evaluation per check and run; a second one for a partition collides with the first, and a
check step is skipped exactly when the asset fails. The proof of a day is its receipt.

Why a sensor reports them: what they judge changes without any run, when the cache does and when an export fails. Whoever executes
one by hand gets the same verdict.

Why all of Dagster's latest evaluation is compared, rather than remembering what was reported: a backfill runs the checks of its
assets too, and leaves one that never got its turn as skipped. That is put right like any other difference.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.verdicts import Verdict, judge
from hypaware_pipeline.orchestration.naming import Names
from hypaware_pipeline.orchestration.sink_assets import SinkAssets

EXPORTED = "exported"
"""The name of every check."""


def sink_checks(installation: Installation, assets: SinkAssets, names: Names) -> list[dg.AssetChecksDefinition]:
    """The checks of a sink's assets."""
    return [_check(installation, assets, slug, names) for slug in assets.datasets]


def report_verdicts(instance: dg.DagsterInstance, verdicts: Mapping[dg.AssetKey, Verdict]) -> list[dg.AssetKey]:
    """Report the verdicts that are not Dagster's latest of their check; returns those it reported, by asset."""
    evaluations = {
        dg.AssetCheckKey(asset, EXPORTED): dg.AssetCheckEvaluation(asset_key=asset, check_name=EXPORTED, **_said(verdict))
        for asset, verdict in verdicts.items()
    }
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(evaluations))
    changed = [evaluation for key, evaluation in evaluations.items() if not _says(latest.get(key), evaluation)]
    for evaluation in changed:
        instance.report_runless_asset_event(evaluation)
    return [evaluation.asset_key for evaluation in changed]


def _check(installation: Installation, assets: SinkAssets, slug: str, names: Names) -> dg.AssetChecksDefinition:
    dataset, sink = assets.datasets[slug], assets.sink

    @dg.asset_check(
        asset=names.sink_key(sink.slug, slug),
        name=EXPORTED,
        description=(
            "Every day that is due was exported, no row was parked, every source could be read. "
            "Today and yesterday may wait for the next tick."
        ),
    )
    def check() -> dg.AssetCheckResult:
        begins = {sink.name: {dataset: assets.begins[dataset]}}
        with installation.open_ledger() as ledger:
            (verdict,) = judge(installation, ledger, [sink], begins=begins)
        return dg.AssetCheckResult(**_said(verdict))

    return check


def _said(verdict: Verdict) -> dict[str, Any]:
    """A verdict as Dagster's evaluations and results take it."""
    found = verdict.to_json().items()
    return {
        "passed": verdict.passed,
        "severity": dg.AssetCheckSeverity.ERROR if verdict.severe else dg.AssetCheckSeverity.WARN,
        "description": verdict.sentence(),
        "metadata": {key: value if isinstance(value, (int, str)) else dg.MetadataValue.json(value) for key, value in found},
    }


def _says(record: Any, evaluation: dg.AssetCheckEvaluation) -> bool:
    """Whether Dagster's record of an execution, if there is one, says what an evaluation does."""
    event = record.event.dagster_event if record and record.event else None
    said = event.event_specific_data if event else None
    if not isinstance(said, dg.AssetCheckEvaluation):
        return False
    return _compared(said) == _compared(evaluation)


def _compared(evaluation: dg.AssetCheckEvaluation) -> tuple[Any, ...]:
    return evaluation.passed, evaluation.severity, evaluation.description, dict(evaluation.metadata)
