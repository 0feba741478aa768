"""Parts of a state as columns of Arrow, one row each: in a checkpoint, and in its segments.

Rows in a checkpoint itself hold the file tables. Rows of a segment hold only a digest of the file table and the keys
outside the part's directory; the texts follow in frames (`segment`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.base.json_load import loads
from mergelake.core.model.manifest import FileTable, PartManifest, ProjectionPart
from mergelake.core.model.names import PartInfo
from mergelake.log.model.parts import ActivePart, RetiredPart

_INFO = [
    ("partition_id", pa.string()),
    ("min_block", pa.int64()),
    ("max_block", pa.int64()),
    ("level", pa.uint32()),
    ("mutation", pa.int64()),
]
_NUMBERS = ("rows", "marks", "bytes_on_disk", "bytes_uncompressed", "schema_version", "created_ms", "base_version")
_TEXTS = ("id", "partition", "part_type", "storage", "volume")
_REPEATED = pa.dictionary(pa.int32(), pa.string())
"""Texts that many parts share."""
_FACTS = [
    *_INFO,
    ("added", pa.int64()),
    ("added_ms", pa.int64()),
    *((name, pa.string() if name == "id" else _REPEATED) for name in _TEXTS),
    *((name, pa.int64()) for name in _NUMBERS),
    ("entry_level", pa.uint32()),
    ("key_low", pa.string()),
    ("key_high", pa.string()),
    ("columns", _REPEATED),
    ("minmax", pa.large_string()),
    ("ttl", pa.string()),
    ("projections", _REPEATED),
]
WITH_FILES = pa.schema([*_FACTS, ("files", pa.large_string())])
"""Parts with their file tables."""
WITHOUT_FILES = pa.schema([*_FACTS, ("files_digest", pa.binary(8)), ("outside", pa.list_(pa.large_string()))])
"""Parts whose file tables lie elsewhere."""
RETIRED = pa.schema(
    [
        *_INFO,
        ("id", pa.string()),
        *((name, pa.int64()) for name in ("rows", "bytes_on_disk", "added", "retired", "retired_ms")),
        ("refers", pa.string()),
        ("noted", pa.int64()),
    ]
)
DIGEST_BYTES = 16
# For tables of some kB, handing work to other threads takes longer than doing it.
_WRITE = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


def digest_of(data: bytes) -> bytes:
    """The digest of encoded rows, `DIGEST_BYTES` bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def require_digest(data: bytes, digest: bytes, message: str, key: str, offset: int = -1) -> None:
    """Raise CorruptDataError, with the object's key and an offset in it, if bytes do not have this digest."""
    actual = digest_of(data)
    if actual != digest:
        raise CorruptDataError(message, object_key=key, offset=offset, expected=digest.hex(), found=actual.hex())


def dumps(value: Any) -> str:
    """JSON in canonical form."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def table_of(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    """A table of one batch."""
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def write_stream(sink: pa.BufferOutputStream, table: pa.Table, header: Any = None) -> None:
    """Write an Arrow IPC stream of one batch; `header` is stored as JSON in the schema's metadata."""
    if header is not None:
        table = table.replace_schema_metadata({"mergelake": dumps(header)})
    with pa.ipc.new_stream(sink, table.schema, options=_WRITE) as writer:
        writer.write_table(table.combine_chunks().unify_dictionaries(), max(table.num_rows, 1))


def open_stream(source: pa.BufferReader) -> pa.RecordBatchStreamReader:
    """The stream that begins where `source` stands."""
    return pa.ipc.open_stream(source, options=_READ)


def header_of(schema: pa.Schema) -> Any:
    """The header that was given to `write_stream`."""
    return loads(schema.metadata[b"mergelake"])


def part_columns(parts: Sequence[ActivePart]) -> dict[str, Sequence[Any]]:
    """The columns that both schemas have in common."""
    manifests = [part.manifest for part in parts]
    columns = _info_columns([part.info for part in parts])
    columns["added"] = [part.added for part in parts]
    columns["added_ms"] = [part.added_ms for part in parts]
    columns["id"] = [m.id for m in manifests]
    columns["partition"] = [m.partition for m in manifests]
    columns["part_type"] = [m.part_type for m in manifests]
    columns["storage"] = [m.storage for m in manifests]
    columns["volume"] = [m.volume for m in manifests]
    columns["rows"] = [m.rows for m in manifests]
    columns["marks"] = [m.marks for m in manifests]
    columns["bytes_on_disk"] = [m.bytes_on_disk for m in manifests]
    columns["bytes_uncompressed"] = [m.bytes_uncompressed for m in manifests]
    columns["schema_version"] = [m.schema_version for m in manifests]
    columns["created_ms"] = [m.created_ms for m in manifests]
    columns["base_version"] = [m.base_version for m in manifests]
    columns["entry_level"] = [m.level for m in manifests]
    columns["key_low"] = [m.key_range[0] for m in manifests]
    columns["key_high"] = [m.key_range[1] for m in manifests]
    columns["columns"] = [dumps(list(m.columns)) for m in manifests]
    columns["minmax"] = [_text_of_map(m.minmax) for m in manifests]
    columns["ttl"] = [_text_of_map(m.ttl) for m in manifests]
    columns["projections"] = [_text_of_map(m.projections) for m in manifests]
    return columns


def completed(rows: pa.Table) -> pa.Table:
    """Rows with the columns that were not there yet when they were written."""
    if "projections" in rows.column_names:
        return rows
    at = rows.schema.get_field_index("ttl") + 1
    none = pa.array([""] * rows.num_rows, _REPEATED)
    return rows.add_column(at, pa.field("projections", _REPEATED), none)


def lists_of(table: pa.Table) -> dict[str, list[Any]]:
    """The columns as Python lists, like `to_pydict`, but about three times as fast."""
    return {name: _list_of(table[name]) for name in table.column_names}


def _list_of(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_list(kind) and not any(len(chunk.flatten()) for chunk in column.chunks):
        return [[] for _ in range(len(column))]
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        cells: list[Any] = column.to_numpy().tolist()
    elif pa.types.is_dictionary(kind):
        cells = []
        for chunk in column.chunks:
            values = chunk.dictionary.to_pylist()
            cells += [values[index] for index in chunk.indices.to_numpy().tolist()]
    else:
        cells = column.to_pylist()
    return cells


def rows_of(parts: Sequence[ActivePart]) -> pa.Table:
    """Parts as `WITHOUT_FILES`."""
    manifests = [part.manifest for part in parts]
    digests = [manifest.files.digest for manifest in manifests]
    outside = [list(manifest.keys_outside()) for manifest in manifests]
    return table_of(WITHOUT_FILES, {**part_columns(parts), "files_digest": digests, "outside": outside})


def parts_of(columns: Mapping[str, Sequence[Any]], files: Iterable[FileTable]) -> list[ActivePart]:
    """Inverse of `part_columns`; `files` are the file tables of the rows."""
    column_ids = {text: tuple(loads(text)) for text in set(columns["columns"])}
    texts = (columns[name] for name in _TEXTS)
    numbers = (columns[name] for name in _NUMBERS)
    rest = (columns[name] for name in ("entry_level", "key_low", "key_high", "columns", "minmax", "ttl", "projections"))
    projections = columns["projections"]
    known = {text: _projections(text) for text in set(projections)}
    rows = zip(_infos(columns), columns["added"], columns["added_ms"], files, *texts, *numbers, *rest, strict=True)
    pairs: dict[str, dict[str, Any]] = {text: _pairs(text) for name in ("minmax", "ttl") for text in set(columns[name])}
    parts: list[ActivePart] = []
    for info, added, added_ms, table, *fields in rows:
        part_id, partition, part_type, storage, volume = fields[:5]
        row_count, marks, on_disk, uncompressed, schema_version, created_ms, base_version = fields[5:12]
        level, low, high, ids, minmax, ttl, projected = fields[12:]
        manifest = PartManifest(
            id=part_id,
            partition_id=info.partition_id,
            rows=row_count,
            files=table,
            partition=partition,
            minmax=pairs[minmax],
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
            base_version=base_version,
            volume=volume,
            ttl=pairs[ttl],
            projections=known[projected],
        )
        parts.append(ActivePart(info, manifest, added, added_ms))
    return parts


def retired_columns(retired: Collection[RetiredPart]) -> dict[str, Sequence[Any]]:
    """Columns of `RETIRED`."""
    columns = _info_columns([part.info for part in retired])
    columns["id"] = [part.id for part in retired]
    columns["rows"] = [part.rows for part in retired]
    columns["bytes_on_disk"] = [part.bytes_on_disk for part in retired]
    columns["added"] = [part.added for part in retired]
    columns["retired"] = [part.retired for part in retired]
    columns["retired_ms"] = [part.retired_ms for part in retired]
    columns["refers"] = [" ".join(part.refers) for part in retired]
    columns["noted"] = [part.noted for part in retired]
    return columns


def retired_of(columns: Mapping[str, Sequence[Any]]) -> tuple[RetiredPart, ...]:
    """Inverse of `retired_columns`. A missing `noted` is replaced by the newest `retired` so far."""
    rest = (columns[name] for name in ("rows", "bytes_on_disk", "added", "retired", "retired_ms"))
    refers = (tuple(text.split()) for text in columns["refers"])
    noted = columns["noted"] if "noted" in columns else accumulate(columns["retired"], max)
    return tuple(map(RetiredPart, columns["id"], _infos(columns), *rest, refers, noted))


def _info_columns(infos: Sequence[PartInfo]) -> dict[str, Sequence[Any]]:
    return {
        "partition_id": [info.partition_id for info in infos],
        "min_block": [info.min_block for info in infos],
        "max_block": [info.max_block for info in infos],
        "level": [info.level for info in infos],
        "mutation": [info.mutation for info in infos],
    }


def _infos(columns: Mapping[str, Sequence[Any]]) -> list[PartInfo]:
    names: dict[str, str] = {}  # one string object a partition, not one a part
    ids = [names.setdefault(partition_id, partition_id) for partition_id in columns["partition_id"]]
    return list(map(PartInfo, ids, *(columns[name] for name, _ in _INFO[1:])))


def _text_of_map(values: Mapping[str, Any]) -> str:
    return dumps(dict(values)) if values else ""


def _projections(text: str) -> dict[str, ProjectionPart]:
    return {name: ProjectionPart(*facts) for name, facts in loads(text).items()} if text else {}


def _pairs(text: str) -> dict[str, Any]:
    return {name: tuple(values) for name, values in loads(text).items()} if text else {}
