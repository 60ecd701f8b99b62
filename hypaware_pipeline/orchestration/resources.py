"""Encoder, blob store and table format as Dagster resources.

Why one resource class for every encoder, one for every store: a plugin is named in the config and found through the
registry. A new store needs no new Dagster class, and the launchpad shows which plugin runs with which settings.
"""

from typing import Any

import dagster as dg
from pydantic import Field

from hypaware_pipeline.config.references import Secrets
from hypaware_pipeline.plugins.contracts import BlobStore, Encoder, TableFormat
from hypaware_pipeline.plugins.registry import BUNDLED


class EncoderResource(dg.ConfigurableResource[Encoder]):
    """An encoder plugin with its settings."""

    plugin: str
    settings: dict[str, Any]

    def build(self, secrets: Secrets) -> Encoder:
        """The encoder; imports what it needs, and looks up variables, only now."""
        return BUNDLED.encoder(self.plugin, self.settings, secrets)


class BlobStoreResource(dg.ConfigurableResource[BlobStore]):
    """A blob store plugin with its settings."""

    plugin: str
    settings: dict[str, Any]

    def build(self, secrets: Secrets) -> BlobStore:
        """The store; imports what it needs, and looks up variables, only now."""
        return BUNDLED.store(self.plugin, self.settings, secrets)


class TableFormatResource(dg.ConfigurableResource[TableFormat]):
    """A table format plugin with its settings; without a plugin, none: the objects of the sink lie as they are."""

    plugin: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)

    def build(self, secrets: Secrets) -> TableFormat | None:
        """The table format; imports what it needs, and looks up variables, only now."""
        return None if self.plugin is None else BUNDLED.table_format(self.plugin, self.settings, secrets)
