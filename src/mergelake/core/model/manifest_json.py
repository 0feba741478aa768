"""Manifests as JSON, in log entries and in messages of tasks and nodes.

::

    {"id": "…", "partition_id": "202601", "rows": 8192, "columns": [0, 1], "key_range": ["…", "…"],
     "files": [[keys…], [rows…]], "marks": 1, …}

Fields with their default value are omitted, so defaults must never change. The file table is copied as text without
decoding.
"""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from mergelake.core.base.json_load import loads, typed
from mergelake.core.model.manifest import FileTable, PartManifest, ProjectionPart
from mergelake.core.model.stored_form import stored

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""A count or a version."""


class ManifestJson(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The JSON form of a `PartManifest`."""

    id: str = stored("id")
    partition_id: str = stored("partition_id")
    rows: Count = stored("rows")
    columns: tuple[int, ...] = stored("columns")
    key_range: tuple[str, str] = stored("key_range")
    files: Raw = stored("files")
    marks: Count = stored("marks", default=0)
    bytes_on_disk: Count = stored("bytes_on_disk", default=0)
    bytes_uncompressed: Count = stored("bytes_uncompressed", default=0)
    schema_version: Count = stored("schema_version", default=1)
    part_type: str = stored("part_type", default="Wide")
    storage: str = stored("storage", default="full")
    level: Count = stored("level", default=0)
    created_ms: int = stored("created_ms", default=0)
    base_version: Count = stored("base_version", default=0)
    partition: str = stored("partition", default="")
    minmax: dict[str, tuple[str, str]] = stored("minmax", default_factory=dict)
    volume: str = stored("volume", default="default")
    ttl: dict[str, tuple[int, ...]] = stored("ttl", default_factory=dict)
    projections: dict[str, tuple[str, Count, Count]] = stored("projections", default_factory=dict)

    @staticmethod
    def of(manifest: PartManifest) -> ManifestJson:
        """The JSON form of a manifest, to be encoded."""
        return ManifestJson(
            manifest.id,
            manifest.partition_id,
            manifest.rows,
            manifest.columns,
            manifest.key_range,
            Raw(manifest.files.text.encode()),
            manifest.marks,
            manifest.bytes_on_disk,
            manifest.bytes_uncompressed,
            manifest.schema_version,
            manifest.part_type,
            manifest.storage,
            manifest.level,
            manifest.created_ms,
            manifest.base_version,
            manifest.partition,
            dict(manifest.minmax),
            manifest.volume,
            dict(manifest.ttl),
            dict(manifest.projections),
        )

    def manifest(self) -> PartManifest:
        """The decoded manifest."""
        return PartManifest(
            self.id,
            self.partition_id,
            self.rows,
            _file_table(self.files),
            self.partition,
            self.minmax,
            self.key_range,
            self.marks,
            self.bytes_on_disk,
            self.bytes_uncompressed,
            self.columns,
            self.schema_version,
            self.part_type,
            self.storage,
            self.level,
            self.created_ms,
            self.base_version,
            self.volume,
            self.ttl,
            {name: ProjectionPart(*facts) for name, facts in self.projections.items()},
        )


_DECODER = msgspec.json.Decoder(ManifestJson)


def decode_manifest(data: bytes | str | Raw) -> PartManifest:
    """Inverse of encoding `ManifestJson.of`. Raises ValueError for invalid JSON or impossible counts."""
    return typed(_DECODER, data).manifest()


def _file_table(raw: Raw) -> FileTable:
    """The file table with the text that `encode_files` would write, because digests and comparisons use the text."""
    text = str(raw, "utf-8")
    if " " in text or not text.isascii():
        text = json.dumps(loads(text), separators=(",", ":"))
    return FileTable(text)
