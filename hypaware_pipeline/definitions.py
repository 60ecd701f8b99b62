"""The code location: the configuration of this environment as Dagster definitions."""

import os
from pathlib import Path

import dagster as dg

from hypaware_pipeline.config import find_config_path
from hypaware_pipeline.errors import BadRequest, ConfigErrors
from hypaware_pipeline.export.installation import Installation
from hypaware_pipeline.orchestration.build import broken_definitions, build_definitions


@dg.definitions
def defs() -> dg.Definitions:
    """Read the configuration and build its definitions; a configuration that cannot be used shows as an asset that says why."""
    try:
        path: Path = find_config_path(None, os.environ)
        return build_definitions(Installation.load(path, os.environ))
    except (BadRequest, ConfigErrors) as error:
        return broken_definitions(error)
