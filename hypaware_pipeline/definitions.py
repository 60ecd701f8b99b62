"""The code location: the configuration of this environment as Dagster definitions."""

import dagster as dg

from hypaware_pipeline.orchestration.build import build_definitions


@dg.definitions
def defs() -> dg.Definitions:
    """What the configuration shows. Steps run in their run's own process: another one each costs five seconds."""
    return dg.Definitions.merge(build_definitions(), dg.Definitions(executor=dg.in_process_executor))
