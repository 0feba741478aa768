"""The messages between a reader and a node that serves the bytes of its volatile parts.

::

    request   {"kind": "ready", "table": directory, "ids": […]}        which of these volatile parts are ready?
    answer    a sealed JSON object: {"ready": [[id, manifest]], "left": [ids], "digest"}

    request   {"kind": "bytes", "table": directory, "key": object, "ranges": [[start, length]]}
    answer    the bytes of the ranges, one after the other; nothing if the object is not there (any more)

`left` are ids that did not fit into the answer: they are asked for again. The bytes have no digest of their own: a
reader verifies them by the manifest and by the checksums of compressed blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.base.json_load import fields, items, typed, value
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.manifest_json import ManifestJson, decode_manifest
from mergelake.core.model.stored_form import stored
from mergelake.log.storage.encoding import UNREADABLE, is_sealed, sealed

SERVICE = "volatile"
READY_MAX_BYTES = 8 << 20
"""Approximate most bytes of the manifests of one answer."""
BYTES_MAX, RANGES_MAX = 4 << 20, 1024
"""Most bytes, and ranges, of one request for bytes."""
IDS_MAX = 1024


class ReadyRequest(msgspec.Struct, frozen=True, tag_field="kind", tag="ready", forbid_unknown_fields=True):
    """Which of these volatile parts are ready."""

    table: str = stored("table")
    ids: tuple[str, ...] = stored("ids")


class BytesRequest(msgspec.Struct, frozen=True, tag_field="kind", tag="bytes", forbid_unknown_fields=True):
    """Ranges (start, length) of one object of a volatile part; `key` is relative to the table's directory."""

    table: str = stored("table")
    key: str = stored("key")
    ranges: tuple[tuple[int, int], ...] = stored("ranges")

    @property
    def fits(self) -> bool:
        """Whether its answer is within the limits, and its ranges can be."""
        lengths = [length for _, length in self.ranges]
        positive = min((number for each in self.ranges for number in each), default=0) >= 0
        return positive and len(lengths) <= RANGES_MAX and sum(lengths) <= BYTES_MAX


_REQUEST: msgspec.json.Decoder[ReadyRequest | BytesRequest] = msgspec.json.Decoder(ReadyRequest | BytesRequest)


def encode_request(request: ReadyRequest | BytesRequest) -> bytes:
    """The bytes of a request."""
    return msgspec.json.encode(request)


def decode_request(data: bytes) -> ReadyRequest | BytesRequest:
    """Inverse of `encode_request`. Raises ValueError."""
    return typed(_REQUEST, data)


@dataclass(frozen=True, slots=True)
class ReadyAnswer:
    """The volatile parts that are ready, and the ids that are to be asked for again."""

    ready: tuple[tuple[str, PartManifest], ...]
    left: tuple[str, ...] = ()


def encode_ready(found: Iterable[tuple[str, PartManifest]]) -> bytes:
    """The answer for these parts, as many as fit."""
    ready: list[tuple[str, ManifestJson]] = []
    left: list[str] = []
    size = 0
    for volatile_id, manifest in found:
        if size > READY_MAX_BYTES:
            left.append(volatile_id)
            continue
        size += len(manifest.files.text)
        ready.append((volatile_id, ManifestJson.of(manifest)))
    return sealed({"ready": ready, "left": left})


def decode_ready(data: bytes) -> ReadyAnswer:
    """Inverse of `encode_ready`; raises CorruptDataError."""
    what = "The answer of a node about its volatile parts"
    try:
        if not is_sealed(data, what, ""):
            raise CorruptDataError(f"{what} has no digest")
        raw = fields(data)
        pairs = [items(pair) for pair in items(raw["ready"])]
        ready = tuple((str(value(volatile_id)), decode_manifest(manifest)) for volatile_id, manifest in pairs)
        return ReadyAnswer(ready, tuple(map(str, value(raw["left"]))))
    except UNREADABLE as cause:
        raise CorruptDataError(f"{what} lacks or garbles a field", found=str(cause)) from cause


def cut_ranges(ranges: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Ranges (start, length), long ones cut, in groups that fit into one request each; their order stays."""
    groups: list[list[tuple[int, int]]] = [[]]
    room = BYTES_MAX
    for start, length in ranges:
        at, end = start, start + length
        while at < end:
            if not room or len(groups[-1]) == RANGES_MAX:
                groups.append([])
                room = BYTES_MAX
            step = min(end - at, room)
            groups[-1].append((at, step))
            at, room = at + step, room - step
    return [group for group in groups if group]
