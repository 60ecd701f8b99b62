"""Asset checks: one per asset of a sink, for all of its days, judged from plan and ledger.

Why not one per day: Dagster keeps one evaluation per check and run; a second one for a partition collides with the first, and a
check step is skipped exactly when the asset fails. The proof of a day is its receipt.

Why a sensor reports them: what they judge changes without any run, when the cache does and when an export fails. Whoever executes
one by hand gets the same verdict.

Why Dagster's latest evaluation is looked at, rather than remembering what was reported: a backfill runs the checks of its assets
too, and leaves one that never got its turn as skipped. That is put right like any other difference.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import dagster as dg

from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.export.verdicts import Verdict, judge
from hypaware_pipeline.orchestration.naming import Names
from hypaware_pipeline.orchestration.sink_assets import SinkAssets

EXPORTED = "exported"
"""The name of every check."""

_DIGEST = "verdict"


def sink_checks(installation: Installation, assets: SinkAssets, names: Names) -> list[dg.AssetChecksDefinition]:
    """The checks of a sink's assets."""
    return [_check(installation, assets, slug, names) for slug in assets.datasets]


def report_verdicts(instance: dg.DagsterInstance, verdicts: Mapping[dg.AssetKey, Verdict]) -> list[dg.AssetKey]:
    """Report the verdicts that are not Dagster's latest of their check; returns those it reported, by asset."""
    keys = {asset: dg.AssetCheckKey(asset, EXPORTED) for asset in verdicts}
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(keys.values()))
    changed = [asset for asset, key in keys.items() if _digest_of(latest.get(key)) != _digest(verdicts[asset])]
    for asset in changed:
        verdict = verdicts[asset]
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=asset,
                check_name=EXPORTED,
                passed=verdict.passed,
                severity=_severity(verdict),
                description=_sentence(verdict),
                metadata=_metadata(verdict),
            )
        )
    return changed


def _check(installation: Installation, assets: SinkAssets, slug: str, names: Names) -> dg.AssetChecksDefinition:
    dataset, sink = assets.datasets[slug], assets.sink

    @dg.asset_check(
        asset=names.sink_key(sink.slug, slug),
        name=EXPORTED,
        description="Every day that is due was exported, no row was refused, every source could be read.",
    )
    def check() -> dg.AssetCheckResult:
        begins = {sink.name: {dataset: assets.begins[dataset]}}
        with installation.open_ledger() as ledger:
            (verdict,) = judge(installation, ledger, [sink], begins=begins)
        return dg.AssetCheckResult(
            passed=verdict.passed, severity=_severity(verdict), description=_sentence(verdict), metadata=_metadata(verdict)
        )

    return check


def _severity(verdict: Verdict) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if verdict.severe else dg.AssetCheckSeverity.WARN


def _sentence(verdict: Verdict) -> str:
    if verdict.error is not None:
        return verdict.error
    said = [
        (len(verdict.failed), "days failed"),
        (len(verdict.waiting), "days before yesterday wait for an export"),
        (sum(verdict.parked.values()), "rows were refused"),
        (len(verdict.unreadable), "sources could not be read"),
    ]
    return ", ".join(f"{count} {what}" for count, what in said if count) or "everything that is due was exported"


def _metadata(verdict: Verdict) -> dict[str, Any]:
    shown = {
        key: value if isinstance(value, (int, str)) else dg.MetadataValue.json(value) for key, value in verdict.to_json().items()
    }
    return {**shown, _DIGEST: _digest(verdict)}


def _digest(verdict: Verdict) -> str:
    return hashlib.sha256(json.dumps(verdict.to_json(), sort_keys=True).encode()).hexdigest()[:16]


def _digest_of(record: Any) -> str | None:
    """The digest of the verdict in Dagster's record of an execution; None when there is none in it."""
    data = record.event.dagster_event.event_specific_data if record and record.event and record.event.dagster_event else None
    value = getattr(data, "metadata", {}).get(_DIGEST)
    return None if value is None else str(value.value)
