"""Names and keys of objects at a blob destination.

Layout: `<prefix>/<dataset>/day=<day>/<source>.<ext>`, the receipts `_receipt.<sink>.json` beside them. What a later generation
has of a source lies in `<source>.g<generation>.<ext>`, what was added to an object that may not be written anew in
`<source>.<first>-<last>.<ext>`, by the sequence numbers of its rows.

Which names stay as they are? Those of lower-case ASCII letters, digits, `_` and single `-`, beginning with a letter or
digit, at most 100 long: every name HypAware itself gives. They are safe on any disk, in S3, in a glob and in SQL, whatever
the disk thinks of case.

What of the others? They keep what is safe of them and carry a hash of the raw name behind `--`, which no unchanged name may
hold: `a b` and `a_b`, or `Logs` and `logs` on a disk that ignores case, never share an object. A dot counts as unsafe
because what follows the first dot of a file name is ours (extension, and generation once a source has more than one); `=`
because readers would derive a column from it.

Why the key rules live here and not in a store: every store must refuse the same keys, or an object could be moved to a
place where it cannot be read back.
"""

import hashlib
import re

from hypaware_pipeline.model import UNDATED, DatasetName, Day, Part, SinkName

UNDATED_SEGMENT = "__HIVE_DEFAULT_PARTITION__"
"""What readers of hive partitions take for NULL, so that they still read `day` as a DATE."""

_CLAIM_NAME = "_claim.json"
_UNCHANGED = re.compile(r"(?!.*--)[a-z0-9][a-z0-9_-]{0,99}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")
_STEM_CHARS = 80
_HASH_CHARS = 12


def safe_name(raw: str) -> str:
    """A name fit for one segment of a key; different raw names give different names even where case is ignored."""
    if _UNCHANGED.fullmatch(raw):
        return raw
    digest = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    stem = _UNSAFE.sub("_", raw).strip("_")[:_STEM_CHARS] or "name"
    return f"{stem}--{digest}"


def dataset_prefix(prefix: str, dataset: DatasetName) -> str:
    """The directory of a dataset; `prefix` is empty or a safe key itself."""
    name = safe_name(dataset)
    return f"{prefix}/{name}" if prefix else name


def day_prefix(prefix: str, dataset: DatasetName, day: Day) -> str:
    """The directory of one day of a dataset."""
    return f"{dataset_prefix(prefix, dataset)}/day={UNDATED_SEGMENT if day == UNDATED else day}"


def object_key(prefix: str, dataset: DatasetName, day: Day, part: Part, extension: str) -> str:
    """The key of an object with rows of one source and day; `extension` without its leading dot."""
    marks = [*([] if part.mark is None else [f"g{part.mark}"]), *([] if part.span is None else ["{}-{}".format(*part.span)])]
    return f"{day_prefix(prefix, dataset, day)}/{'.'.join([safe_name(part.source), *marks, extension])}"


def receipt_key(prefix: str, dataset: DatasetName, day: Day, sink: SinkName) -> str:
    """The key of the receipt of one sink for one day; the leading `_` hides it from readers of data."""
    return f"{day_prefix(prefix, dataset, day)}/{receipt_name(sink)}"


def receipt_name(sink: SinkName) -> str:
    """What follows the last `/` in the key of every receipt of a sink."""
    return f"_receipt.{safe_name(sink)}.json"


def claim_key(prefix: str, dataset: DatasetName) -> str:
    """The key of the marker that says who writes a dataset."""
    return f"{dataset_prefix(prefix, dataset)}/{_CLAIM_NAME}"


def probe_key(prefix: str, token: str) -> str:
    """The key of what is put and removed to see whether a destination can be written; beside the datasets, in none of them."""
    return f"{prefix}/_probe.{token}" if prefix else f"_probe.{token}"


def is_receipt(key: str) -> bool:
    """Whether a key is that of a receipt, whichever sink's."""
    name = key.rsplit("/", 1)[-1]
    return name.startswith("_receipt.") and name.endswith(".json")


def is_claim(key: str) -> bool:
    """Whether a key is that of a marker, whichever dataset's."""
    return key.rsplit("/", 1)[-1] == _CLAIM_NAME


def check_key(key: str) -> tuple[str, ...]:
    """The segments of a key that is safe in every store.

    Raises:
        ValueError: it is empty or absolute, holds a backslash, a control character or a lone surrogate, or has a segment that is
            empty or begins with a dot (`.`, `..`, and the names of unfinished objects).
    """
    if not key:
        raise ValueError("an object key must not be empty")
    if "\\" in key or any(ord(char) < 0x20 or ord(char) == 0x7F or 0xD800 <= ord(char) <= 0xDFFF for char in key):
        raise ValueError(f"object key {key!r} holds a backslash, a control character or a lone surrogate")
    if key.startswith("/"):
        raise ValueError(f"object key {key!r} is absolute; keys are relative to the destination")
    segments = tuple(key.split("/"))
    if any(segment == "" or segment.startswith(".") for segment in segments):
        raise ValueError(f"object key {key!r} has a segment that is empty or begins with a dot")
    return segments
