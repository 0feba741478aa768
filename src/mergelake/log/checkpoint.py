"""A folded state as one columnar object, `_log/checkpoints/<20 digits>.arrow`.

Two Arrow IPC streams (zstd), small enough to be read whole by one request:

1. active parts (those under Live volatile parts too), then detached ones, one row each; the schema's metadata holds
   the header, a JSON object under `mergelake`;
2. retired parts, one row each;

then 16 bytes, the digest of all before them. (Arrow follows the offsets that it reads: damaged bytes must not reach
it.)

The header holds the format, the version, counters, schemas, floors, deduplication windows, volatile parts, mutations,
tags, holds, leases, and `state_hash`: the digest of the state's content, recomputed and compared on every load.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from mergelake.core.errors import CorruptDataError
from mergelake.core.json_load import loads
from mergelake.core.manifest import PartManifest
from mergelake.core.names import PartInfo
from mergelake.core.schema import TableSchema
from mergelake.log.authority import Authority
from mergelake.log.encoding import require_format, tuples
from mergelake.log.operations import MergeRecipe
from mergelake.log.part_map import Partitions, Retired
from mergelake.log.state import (
    ActivePart,
    DetachedPart,
    Lease,
    PendingMutation,
    RetiredPart,
    State,
    VolatilePart,
    listed,
    window_of,
)

CHECKPOINT_FORMAT = 2
_DIGEST_BYTES = 16

_INFO = [
    ("partition_id", pa.string()),
    ("min_block", pa.int64()),
    ("max_block", pa.int64()),
    ("level", pa.uint32()),
    ("mutation", pa.int64()),
]
_NUMBERS = ("rows", "marks", "bytes_on_disk", "bytes_uncompressed", "schema_version", "created_ms", "born")
_TEXTS = ("id", "partition", "part_type", "storage", "volume", "files")
_PARTS = pa.schema(
    [
        *_INFO,
        ("added", pa.int64()),
        ("added_ms", pa.int64()),
        *((name, pa.large_string() if name == "files" else pa.string()) for name in _TEXTS),
        *((name, pa.int64()) for name in _NUMBERS),
        ("entry_level", pa.uint32()),
        ("key_low", pa.string()),
        ("key_high", pa.string()),
        ("columns", pa.string()),
        ("minmax", pa.large_string()),
        ("ttl", pa.string()),
    ]
)
_RETIRED = pa.schema(
    [
        *_INFO,
        ("id", pa.string()),
        *((name, pa.int64()) for name in ("rows", "bytes_on_disk", "added", "retired", "retired_ms")),
        ("refers", pa.string()),
    ]
)
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def state_hash(state: State) -> str:
    """32 hex digits that name the content of a state: equal states have equal hashes, on every machine."""
    digest = hashlib.blake2b(_dumps(_header(state)).encode(), digest_size=16)
    for part in _rows(state):
        m = part.manifest
        fixed = (
            *(part.name, part.added, part.added_ms, m.id, m.partition_id, m.rows, m.partition, *m.key_range, m.marks),
            *(m.bytes_on_disk, m.bytes_uncompressed, m.columns, m.schema_version, m.part_type, m.storage, m.level),
            *(m.created_ms, m.born, m.volume, _text_of_map(m.minmax), _text_of_map(m.ttl), m.files),
        )
        digest.update(repr(fixed).encode())
    for gone in state.retired:
        numbers = (gone.rows, gone.bytes_on_disk, gone.added, gone.retired, gone.retired_ms, gone.refers)
        digest.update(repr((gone.id, str(gone.info), *numbers)).encode())
    return digest.hexdigest()


def encode_checkpoint(state: State) -> bytes:
    """The checkpoint object of a state."""
    header = {**_header(state), "format": CHECKPOINT_FORMAT, "state_hash": state_hash(state)}
    sink = pa.BufferOutputStream()
    parts = _part_columns(_rows(state))
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
        header = loads(parts_reader.schema.metadata[b"mergelake"])
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


def _rows(state: State) -> list[ActivePart]:
    """Active and detached parts: the latter as if they had been added when they were detached."""
    aside = (ActivePart(part.info, part.manifest, part.detached, part.detached_ms) for part in state.detached)
    return [*state.parts(), *aside]


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
        # Left out of those that were written before it was known, so that their hashes still hold.
        **({"dropped_version": state.dropped_version} if state.dropped_version else {}),
        "block_counter": state.block_counter,
        "floors": dict(state.floors),
        "floor": state.floor,
        **({"holes": {name: list(map(str, held)) for name, held in state.holes.items()}} if state.holes else {}),
        # Lists, not objects: the windows are first in, first out, and their order is part of the state.
        "tokens": listed(state.tokens),
        "hashes": listed(state.hashes),
        "detached": len(state.detached),
        "volatile": [
            {**asdict(part), "info": part.name, "sources": [[id, str(info)] for id, info in part.sources]}
            for name in sorted(state.volatile)
            for part in state.volatile[name]
        ],
        "mutations": [asdict(mutation) for mutation in state.mutations],
        "tags": dict(state.tags),
        "holds": {holder: list(held) for holder, held in state.holds.items()},
        "leases": {node: [lease.version, lease.until_ms] for node, lease in state.leases.items()},
        "fence": state.fence,
        "history": state.history,
        "authority": [state.authority.url, state.authority.since],
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


def _retired_columns(retired: Collection[RetiredPart]) -> list[pa.Array]:
    columns = _info_columns([part.info for part in retired])
    for name in _RETIRED.names[len(_INFO) :]:
        columns[name] = [getattr(part, name) for part in retired]
    columns["refers"] = [" ".join(part.refers) for part in retired]
    return [pa.array(columns[field.name], field.type) for field in _RETIRED]


def _infos(columns: dict[str, list[Any]]) -> list[PartInfo]:
    names: dict[str, str] = {}  # one string object a partition, not one a part
    ids = [names.setdefault(partition_id, partition_id) for partition_id in columns["partition_id"]]
    return list(map(PartInfo, ids, *(columns[name] for name, _ in _INFO[1:])))


def _state(header: dict[str, Any], parts: pa.Table, retired: pa.Table) -> State:
    columns = parts.to_pydict()
    column_ids = {text: tuple(loads(text)) for text in set(columns["columns"])}
    parts_found: list[ActivePart] = []
    numbers = (columns[name] for name in _NUMBERS)
    texts = (columns[name] for name in _TEXTS)
    rest = (columns[name] for name in ("entry_level", "key_low", "key_high", "columns", "minmax", "ttl"))
    rows = zip(_infos(columns), columns["added"], columns["added_ms"], *texts, *numbers, *rest, strict=True)
    for info, added, added_ms, *fields in rows:
        part_id, partition, part_type, storage, volume, files = fields[:6]
        row_count, marks, on_disk, uncompressed, schema_version, created_ms, born = fields[6:13]
        level, low, high, ids, minmax, ttl = fields[13:]
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
            born=born,
            volume=volume,
            ttl=_pairs(ttl),
        )
        parts_found.append(ActivePart(info, manifest, added, added_ms))
    active = len(parts_found) - header["detached"]
    partitions: dict[str, list[ActivePart]] = {}
    for part in parts_found[:active]:
        partitions.setdefault(part.info.partition_id, []).append(part)
    return State(
        version=header["version"],
        timestamp_ms=header["timestamp_ms"],
        schemas={raw["version"]: TableSchema.from_json(raw) for raw in header["schemas"]},
        schema_version=header["schema_version"],
        dropped=header["dropped"],
        dropped_version=header.get("dropped_version", 0),
        block_counter=header["block_counter"],
        partitions=Partitions.of(partitions),
        floors=dict(header["floors"]),
        floor=header["floor"],
        holes={name: tuple(map(PartInfo.parse, held)) for name, held in header.get("holes", {}).items()},
        tokens=window_of(header["tokens"]),
        hashes=window_of(header["hashes"]),
        retired=Retired().plus(_retired(retired.to_pydict())),
        volatile=_volatile(header["volatile"]),
        mutations=tuple(PendingMutation(**tuples(raw)) for raw in header["mutations"]),
        detached=tuple(DetachedPart(p.info, p.manifest, p.added, p.added_ms) for p in parts_found[active:]),
        tags=header["tags"],
        holds=tuples(header["holds"]),
        leases={node: Lease(*lease) for node, lease in header["leases"].items()},
        fence=header["fence"],
        history=header["history"],
        authority=Authority(*header["authority"]),
    )


def _text_of_map(values: Mapping[str, Any]) -> str:
    return _dumps(dict(values)) if values else ""


def _pairs(text: str) -> dict[str, Any]:
    return {name: (low, high) for name, (low, high) in loads(text).items()} if text else {}


def _volatile(raw: list[dict[str, Any]]) -> dict[str, tuple[VolatilePart, ...]]:
    out: dict[str, tuple[VolatilePart, ...]] = {}
    for fields in raw:
        info = PartInfo.parse(fields["info"])
        sources = tuple((id, PartInfo.parse(name)) for id, name in fields["sources"])
        part = VolatilePart(**{**fields, "info": info, "sources": sources, "recipe": MergeRecipe(**fields["recipe"])})
        out[info.partition_id] = (*out.get(info.partition_id, ()), part)
    return out


def _retired(columns: dict[str, list[Any]]) -> tuple[RetiredPart, ...]:
    rest = (columns[name] for name in ("rows", "bytes_on_disk", "added", "retired", "retired_ms"))
    refers = (tuple(text.split()) for text in columns["refers"])
    return tuple(map(RetiredPart, columns["id"], _infos(columns), *rest, refers))
