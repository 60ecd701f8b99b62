"""Table metadata: the versions of `v<N>.metadata.json` of one generation, and how a new one is committed.

Why a hard link decides a race: HypAware looks whether version N exists and then renames, which two writers can both win.
Linking a finished file to the name fails for the second of them, so that several writers on one table never lose a commit.

Why the JSON is not indented as HypAware's is: Python's indenting encoder is ten times slower, and a cache of many commits is
mostly metadata.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

from hypaware_pipeline.demo.manifests import FIRST_PARTITION_FIELD_ID, TableHead
from hypaware_pipeline.demo.table_schema import TableSchema

Metadata = dict[str, Any]

_LOG_ENTRIES: Final = 100


class CommitConflict(Exception):
    """Another writer committed this version first."""


def create(location: str, table_uuid: str, head: TableHead, now_ms: int) -> Metadata:
    """The metadata of a table without snapshots."""
    fields = head.partition_fields()
    return {
        "format-version": 3,
        "table-uuid": table_uuid,
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": now_ms,
        "last-column-id": len(head.schema.columns),
        "current-schema-id": head.schema.schema_id,
        "schemas": [head.schema.to_json()],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": fields}],
        "last-partition-id": FIRST_PARTITION_FIELD_ID + len(fields) - 1 if fields else 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "next-row-id": 0,
    }


def current_schema(metadata: Metadata) -> TableSchema:
    """The schema new files are written under."""
    found = next(schema for schema in metadata["schemas"] if schema["schema-id"] == metadata["current-schema-id"])
    return TableSchema.from_json(found)


def table_head(metadata: Metadata) -> TableHead:
    """What manifests of the table repeat."""
    return TableHead(current_schema(metadata), tuple(field["name"] for field in metadata["partition-specs"][0]["fields"]))


def current_snapshot(metadata: Metadata) -> Metadata | None:
    """The snapshot readers see; None for a table without one."""
    snapshot_id = metadata.get("current-snapshot-id")
    return next((snapshot for snapshot in metadata.get("snapshots", []) if snapshot["snapshot-id"] == snapshot_id), None)


def with_schema(metadata: Metadata, schema: TableSchema, now_ms: int) -> Metadata:
    """The metadata after a schema change."""
    changed = {**metadata, "last-updated-ms": now_ms, "current-schema-id": schema.schema_id}
    changed["schemas"] = [*metadata["schemas"], schema.to_json()]
    changed["last-column-id"] = max(column.id for column in schema.columns)
    return changed


def with_snapshot(metadata: Metadata, snapshot: Metadata) -> Metadata:
    """The metadata after a commit of data or deletes; `snapshot` lacks what follows from its place in the history."""
    parent = metadata.get("current-snapshot-id")
    placed = {
        **snapshot,
        "schema-id": metadata["current-schema-id"],
        "first-row-id": metadata["next-row-id"],
        "added-rows": int(snapshot["summary"].get("added-records", 0)),
        **({} if parent is None else {"parent-snapshot-id": parent}),
    }
    snapshot_id, now_ms = snapshot["snapshot-id"], snapshot["timestamp-ms"]
    return {
        **metadata,
        "last-sequence-number": snapshot["sequence-number"],
        "last-updated-ms": now_ms,
        "next-row-id": metadata["next-row-id"] + placed["added-rows"],
        "snapshots": [*metadata.get("snapshots", []), placed],
        "refs": {"main": {"snapshot-id": snapshot_id, "type": "branch"}},
        "current-snapshot-id": snapshot_id,
        "snapshot-log": [*metadata.get("snapshot-log", []), {"timestamp-ms": now_ms, "snapshot-id": snapshot_id}],
    }


def without_snapshots(metadata: Metadata, expired: set[int], now_ms: int) -> Metadata:
    """The metadata after these snapshots expired."""
    changed = {**metadata, "last-updated-ms": now_ms}
    for key in ("snapshots", "snapshot-log"):
        changed[key] = [entry for entry in metadata[key] if entry["snapshot-id"] not in expired]
    return changed


class MetadataStore:
    """The metadata directory of one table: the newest version, and the next."""

    def __init__(self, directory: Path, location: str) -> None:
        self._directory = directory
        self._location = location
        self._known: tuple[int, Metadata] = (0, {})

    def latest(self) -> tuple[int, Metadata]:
        """The highest version and its content; version 0 when there is none. The content is shared: never change it."""
        version = self._known[0]
        if version == 0:
            version = max((int(path.name[1:].split(".")[0]) for path in self._directory.glob("v*.metadata.json")), default=0)
        # Versions are never removed: probing the next is much cheaper than listing a directory of thousands.
        while self._path(version + 1).exists():
            version += 1
        if version != self._known[0]:
            self._known = (version, json.loads(self._path(version).read_text(encoding="utf-8")))
        return self._known

    def commit(self, version: int, metadata: Metadata, unique: str) -> None:
        """Make `metadata` version `version`; `unique` names the temporary file.

        Raises:
            CommitConflict: that version is there already.
        """
        previous, old = self._known
        if previous:
            entry = {
                "timestamp-ms": old["last-updated-ms"],
                "metadata-file": f"{self._location}/metadata/{self._path(previous).name}",
            }
            metadata = {**metadata, "metadata-log": [*old.get("metadata-log", []), entry][-_LOG_ENTRIES:]}
        path = self._path(version)
        _write_beside(path, metadata, unique)
        self._known = (version, metadata)
        hint = self._directory / f"version-hint.text.tmp.{unique}"
        hint.write_text(str(version), encoding="utf-8")
        hint.replace(self._directory / "version-hint.text")

    def _path(self, version: int) -> Path:
        return self._directory / f"v{version}.metadata.json"


def _write_beside(path: Path, metadata: Metadata, unique: str) -> None:
    temporary = path.with_name(f"{path.name}.tmp.{unique}")
    temporary.write_text(json.dumps(metadata, ensure_ascii=False), encoding="utf-8")
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise CommitConflict(str(path)) from error
    finally:
        temporary.unlink()
