"""One configured sink with its parts made: what the engine exports to.

Why the writer is one of two: a plain blob sink names its objects itself, a table format arranges them. To the engine both are a
`SinkWriter`, and what is the same for both stands here: the claim, addresses, and what must not be said aloud.
"""

from dataclasses import dataclass, field

from hypaware_pipeline.config.references import Secrets
from hypaware_pipeline.model import DatasetName, SinkName
from hypaware_pipeline.plugins.contracts import BlobStore, Encoder, SinkWriter, TableFormat
from hypaware_pipeline.sinks.blob import BlobSink
from hypaware_pipeline.sinks.claims import Claim, DatasetClaim


@dataclass(frozen=True, slots=True)
class ConfiguredSink:
    """One configured sink.

    Attributes:
        destination: Digest of everything that shapes the objects; stands in every receipt.
        writer: What writes its days.
        store: Where they are written to.
        prefix: Under which everything lies, relative to the store's root; may be empty.
        secrets: What was filled in while its parts were made.
        takeover: Whether to go on where somebody else wrote.
    """

    name: SinkName
    destination: str
    writer: SinkWriter
    store: BlobStore
    prefix: str
    secrets: Secrets = field(repr=False)
    takeover: bool = False

    @classmethod
    def of(
        cls,
        name: SinkName,
        destination: str,
        *,
        encoder: Encoder,
        store: BlobStore,
        table_format: TableFormat | None,
        prefix: str,
        secrets: Secrets,
        takeover: bool,
    ) -> "ConfiguredSink":
        """A sink from its parts; without a table format its objects lie as they are."""
        writer = (
            BlobSink(name, encoder, store, prefix)
            if table_format is None
            else table_format.writer(name, encoder, store, prefix=prefix)
        )
        return cls(name, destination, writer, store, prefix, secrets, takeover)

    def claim(self, dataset: DatasetName, ledger_id: str) -> DatasetClaim:
        """The claim to a dataset's directory, for one export."""
        return DatasetClaim(self.store, self.prefix, dataset, Claim(ledger_id, self.name), takeover=self.takeover)

    def uri(self, key: str) -> str:
        """Where an object is, without what came from a variable."""
        return self.mask(self.store.uri(key))

    def mask(self, text: str) -> str:
        """A text about the sink, without what came from a variable."""
        return self.secrets.mask(text)
