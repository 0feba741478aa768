"""The record of a volatile part on the disk of a node: `<table>/volatile/<volatile id>.json`, with its manifest.

It has a digest of its own: the manifest in it becomes that of the published part.
"""

from __future__ import annotations

import json

import msgspec

from mergelake.core.base.json_load import fields, loads, value
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.manifest_json import ManifestJson, decode_manifest
from mergelake.core.model.names import PartInfo
from mergelake.format.codecs.hashes import file_hash

Record = tuple[str, PartInfo, PartManifest]
"""Id and name of the volatile part, and the manifest of its bytes."""


def records_of(directory: str) -> str:
    """The directory of the records of a table."""
    return f"{directory}/volatile"


def record_key(directory: str, volatile_id: str) -> str:
    """The key of a record on the disk."""
    return f"{records_of(directory)}/{volatile_id}.json"


def encode_record(volatile_id: str, info: PartInfo, manifest: PartManifest) -> bytes:
    """The bytes of a record."""
    content = {"id": volatile_id, "name": str(info), "manifest": ManifestJson.of(manifest)}
    record = msgspec.json.encode(content).decode()
    return json.dumps({"record": record, "digest": file_hash(record.encode())}).encode()


def decode_record(data: bytes) -> Record | None:
    """Inverse of `encode_record`; None if the bytes are damaged."""
    try:
        sealed = loads(data)
        if file_hash(sealed["record"].encode()) != sealed["digest"]:
            return None
        raw = fields(sealed["record"].encode())
        return value(raw["id"]), PartInfo.parse(value(raw["name"])), decode_manifest(raw["manifest"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
