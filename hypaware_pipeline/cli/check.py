"""`hypaware-pipeline check`: what is wrong with an installation, and how to mend it. Exports nothing."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from hypaware_pipeline.cli.reporting import FindingsReport
from hypaware_pipeline.config import find_config_path
from hypaware_pipeline.errors import ConfigErrors
from hypaware_pipeline.export.findings import Finding
from hypaware_pipeline.export.health import cache_findings, config_findings, state_findings, unusable_config
from hypaware_pipeline.export.installation import Installation, utc_now
from hypaware_pipeline.export.sink_health import disk_findings, sink_findings


def check_command(config: Path | None, *, env: Mapping[str, str], as_json: bool) -> int:
    """Look at everything and say how it is; returns the exit code, 1 if anything stops an export.

    Raises:
        BadRequest: a directory named by the environment is not absolute.
    """
    report = FindingsReport(as_json=as_json)
    for finding in _findings(find_config_path(config, env), env):
        report.show(finding)
    report.finish()
    return report.exit_code


def _findings(path: Path, env: Mapping[str, str]) -> Iterator[Finding]:
    from hypaware_pipeline.orchestration.home_health import home_findings  # Dagster, 2 s

    sinks = []
    try:
        installation = Installation.load(path, env)
    except ConfigErrors as error:
        yield from unusable_config(error)
    else:
        sinks = list(installation.config.sinks.values())
        yield from config_findings(installation.config)
        yield from state_findings(installation)
        yield from cache_findings(installation)
        yield from sink_findings(installation, env)
        yield from disk_findings(installation)
    yield from home_findings(env, sinks, clock=utc_now)
