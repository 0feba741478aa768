"""A folded state as one columnar object, `_log/checkpoints/<20 digits>.arrow`.

Two Arrow IPC streams (zstd), small enough to be read whole by one request:

1. active parts, one row each; the schema's metadata holds the header, a JSON object under `mergelake`;
2. retired parts, one row each;

then 16 bytes, the digest of all before them. (Arrow follows the offsets that it reads: damaged bytes must not reach
it.)

The header holds the format, the version, counters, schemas, floors and the deduplication windows, and
`state_hash`: the digest of the state's content, recomputed and compared on every load.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from mergelake.core.errors import CorruptDataError
from mergelake.core.manifest import PartManifest
from mergelake.core.names import PartInfo
from mergelake.core.schema import TableSchema
from mergelake.log.encoding import require_format
from mergelake.log.state import ActivePart, Insert, RetiredPart, State

CHECKPOINT_FORMAT = 1
_DIGEST_BYTES = 16

_INFO = [
    ("partition_id", pa.string()),
    ("min_block", pa.int64()),
    ("max_block", pa.int64()),
    ("level", pa.uint32()),
    ("mutation", pa.int64()),
]
_NUMBERS = ("rows", "marks", "bytes_on_disk", "bytes_uncompressed", "schema_version", "created_ms")
_TEXTS = ("id", "partition", "part_type", "storage", "volume", "files")
_PARTS = pa.schema(
    [
        *_INFO,
        ("added", pa.int64()),
        ("added_ms", pa.int64()),
        *((name, pa.string()) for name in _TEXTS),
        *((name, pa.int64()) for name in _NUMBERS),
        ("entry_level", pa.uint32()),
        ("key_low", pa.string()),
        ("key_high", pa.string()),
        ("columns", pa.string()),
        ("minmax", pa.string()),
        ("ttl", pa.string()),
    ]
)
_RETIRED = pa.schema(
    [
        *_INFO,
        ("id", pa.string()),
        *((name, pa.int64()) for name in ("rows", "bytes_on_disk", "added", "retired", "retired_ms")),
    ]
)
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def state_hash(state: State) -> str:
    """32 hex digits that name the content of a state: equal states have equal hashes, on every machine."""
    digest = hashlib.blake2b(_dumps(_header(state)).encode(), digest_size=16)
    for part in state.parts():
        m = part.manifest
        fixed = (
            *(part.name, part.added, part.added_ms, m.id, m.partition_id, m.rows, m.partition, *m.key_range, m.marks),
            *(m.bytes_on_disk, m.bytes_uncompressed, m.columns, m.schema_version, m.part_type, m.storage, m.level),
            *(m.created_ms, m.volume, _text_of_map(m.minmax), _text_of_map(m.ttl), m.files),
        )
        digest.update(repr(fixed).encode())
    for gone in state.retired:
        numbers = (gone.rows, gone.bytes_on_disk, gone.added, gone.retired, gone.retired_ms)
        digest.update(repr((gone.id, str(gone.info), *numbers)).encode())
    return digest.hexdigest()


def encode_checkpoint(state: State) -> bytes:
    """The checkpoint object of a state."""
    header = {**_header(state), "format": CHECKPOINT_FORMAT, "state_hash": state_hash(state)}
    sink = pa.BufferOutputStream()
    parts = _part_columns(list(state.parts()))
    schema = _PARTS.with_metadata({"mergelake": _dumps(header)})
    _write(sink, schema, parts)
    _write(sink, _RETIRED, _retired_columns(state.retired))
    data = bytes(sink.getvalue())
    return data + _digest(data)


def decode_checkpoint(data: bytes, key: str = "") -> State:
    """Inverse of `encode_checkpoint`. `key` is the object's, for errors.

    Raises CorruptDataError if the bytes are damaged or do not add up to the recorded hash, and
    UNKNOWN_FORMAT_VERSION for a newer format.
    """
    body, found = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if _digest(body) != found:
        raise CorruptDataError(
            "A checkpoint does not hold what was written",
            object_key=key,
            expected=_digest(body).hex(),
            found=found.hex(),
        )
    try:
        source = pa.BufferReader(body)
        parts_reader = pa.ipc.open_stream(source)
        header = json.loads(parts_reader.schema.metadata[b"mergelake"])
    except (pa.ArrowInvalid, OSError, KeyError, TypeError, ValueError) as cause:
        raise CorruptDataError("A checkpoint is not readable", object_key=key, found=str(cause)) from cause
    require_format(int(header["format"]), CHECKPOINT_FORMAT, f"Checkpoint {key}")
    try:
        parts = parts_reader.read_all()
        retired = pa.ipc.open_stream(source).read_all()
        state = _state(header, parts, retired)
    except (pa.ArrowInvalid, OSError, KeyError, TypeError, ValueError) as cause:
        raise CorruptDataError("A checkpoint is not readable", object_key=key, found=str(cause)) from cause
    recomputed = state_hash(state)
    if recomputed != header["state_hash"]:
        raise CorruptDataError(
            "A checkpoint does not hold the state that was written",
            object_key=key,
            expected=header["state_hash"],
            found=recomputed,
        )
    return state


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def _write(sink: pa.BufferOutputStream, schema: pa.Schema, columns: list[pa.Array]) -> None:
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _header(state: State) -> dict[str, Any]:
    return {
        "version": state.version,
        "timestamp_ms": state.timestamp_ms,
        "schemas": [schema.to_json() for schema in state.schemas.values()],
        "schema_version": state.schema_version,
        "dropped": state.dropped,
        "block_counter": state.block_counter,
        "floors": dict(state.floors),
        "floor": state.floor,
        # Lists, not objects: the windows are first in, first out, and their order is part of the state.
        "tokens": [[name, i.version, list(i.partition_ids)] for name, i in state.tokens.items()],
        "hashes": [[name, i.version, list(i.partition_ids)] for name, i in state.hashes.items()],
    }


def _info_columns(infos: list[PartInfo]) -> dict[str, list[Any]]:
    return {name: [getattr(info, name) for info in infos] for name, _ in _INFO}


def _part_columns(parts: list[ActivePart]) -> list[pa.Array]:
    manifests = [part.manifest for part in parts]
    columns = _info_columns([part.info for part in parts])
    columns["added"] = [part.added for part in parts]
    columns["added_ms"] = [part.added_ms for part in parts]
    for name in (*_TEXTS, *_NUMBERS):
        columns[name] = [getattr(m, name) for m in manifests]
    columns["entry_level"] = [m.level for m in manifests]
    columns["key_low"] = [m.key_range[0] for m in manifests]
    columns["key_high"] = [m.key_range[1] for m in manifests]
    columns["columns"] = [_dumps(list(m.columns)) for m in manifests]
    columns["minmax"] = [_text_of_map(m.minmax) for m in manifests]
    columns["ttl"] = [_text_of_map(m.ttl) for m in manifests]
    return [pa.array(columns[field.name], field.type) for field in _PARTS]


def _retired_columns(retired: tuple[RetiredPart, ...]) -> list[pa.Array]:
    columns = _info_columns([part.info for part in retired])
    for name in _RETIRED.names[len(_INFO) :]:
        columns[name] = [getattr(part, name) for part in retired]
    return [pa.array(columns[field.name], field.type) for field in _RETIRED]


def _infos(columns: dict[str, list[Any]]) -> list[PartInfo]:
    names: dict[str, str] = {}  # one string object a partition, not one a part
    ids = [names.setdefault(partition_id, partition_id) for partition_id in columns["partition_id"]]
    return list(map(PartInfo, ids, *(columns[name] for name, _ in _INFO[1:])))


def _state(header: dict[str, Any], parts: pa.Table, retired: pa.Table) -> State:
    columns = parts.to_pydict()
    column_ids = {text: tuple(json.loads(text)) for text in set(columns["columns"])}
    partitions: dict[str, list[ActivePart]] = {}
    numbers = (columns[name] for name in _NUMBERS)
    texts = (columns[name] for name in _TEXTS)
    rest = (columns[name] for name in ("entry_level", "key_low", "key_high", "columns", "minmax", "ttl"))
    rows = zip(_infos(columns), columns["added"], columns["added_ms"], *texts, *numbers, *rest, strict=True)
    for info, added, added_ms, *fields in rows:
        part_id, partition, part_type, storage, volume, files = fields[:6]
        row_count, marks, on_disk, uncompressed, schema_version, created_ms = fields[6:12]
        level, low, high, ids, minmax, ttl = fields[12:]
        manifest = PartManifest(
            id=part_id,
            partition_id=info.partition_id,
            rows=row_count,
            files=files,
            partition=partition,
            minmax=_pairs(minmax),
            key_range=(low, high),
            marks=marks,
            bytes_on_disk=on_disk,
            bytes_uncompressed=uncompressed,
            columns=column_ids[ids],
            schema_version=schema_version,
            part_type=part_type,
            storage=storage,
            level=level,
            created_ms=created_ms,
            volume=volume,
            ttl=_pairs(ttl),
        )
        partitions.setdefault(info.partition_id, []).append(ActivePart(info, manifest, added, added_ms))
    return State(
        version=header["version"],
        timestamp_ms=header["timestamp_ms"],
        schemas={raw["version"]: TableSchema.from_json(raw) for raw in header["schemas"]},
        schema_version=header["schema_version"],
        dropped=header["dropped"],
        block_counter=header["block_counter"],
        partitions={name: tuple(held) for name, held in partitions.items()},
        floors=dict(header["floors"]),
        floor=header["floor"],
        tokens=_inserts(header["tokens"]),
        hashes=_inserts(header["hashes"]),
        retired=_retired(retired.to_pydict()),
    )


def _text_of_map(values: Mapping[str, Any]) -> str:
    return _dumps(dict(values)) if values else ""


def _pairs(text: str) -> dict[str, Any]:
    return {name: (low, high) for name, (low, high) in json.loads(text).items()} if text else {}


def _inserts(raw: list[list[Any]]) -> Any:
    return {name: Insert(version, tuple(partitions)) for name, version, partitions in raw}


def _retired(columns: dict[str, list[Any]]) -> tuple[RetiredPart, ...]:
    rest = (columns[name] for name in ("rows", "bytes_on_disk", "added", "retired", "retired_ms"))
    return tuple(map(RetiredPart, columns["id"], _infos(columns), *rest))
