"""Encoder and blob store as Dagster resources.

Why one resource class for every encoder and one for every store: a plugin is named in the config and found through the
registry. A new store needs no new Dagster class, and the launchpad shows which plugin runs with which settings.
"""

from typing import Any

import dagster as dg

from hypaware_pipeline.plugins.contracts import BlobStore, Encoder
from hypaware_pipeline.plugins.registry import BUNDLED


class EncoderResource(dg.ConfigurableResource[Encoder]):
    """An encoder plugin with its settings."""

    plugin: str
    settings: dict[str, Any]

    def build(self) -> Encoder:
        """The encoder; imports what it needs only now."""
        return BUNDLED.encoder(self.plugin, self.settings)


class BlobStoreResource(dg.ConfigurableResource[BlobStore]):
    """A blob store plugin with its settings."""

    plugin: str
    settings: dict[str, Any]

    def build(self) -> BlobStore:
        """The store; imports what it needs only now."""
        return BUNDLED.store(self.plugin, self.settings)
