"""Sorted rows of one partition, and the parts written from them: what inserts and merges of small parts share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.engines.order.keys import TableKeys, table_keys
from mergelake.engines.order.sorting import sort_order
from mergelake.engines.projections.projections import BoundProjection, table_projections
from mergelake.engines.rules.states import StateFunctions
from mergelake.engines.ttl.ttl import packed_infos, table_ttl
from mergelake.format.files.partition import Partition
from mergelake.parts.write.part_spec import NO_TTL, PartTarget, PartTtl, ProjectionRows, SortedRows
from mergelake.parts.write.writer import write_part
from mergelake.table.write.together import Together, encode_together


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of one part: complete, sorted, of one partition."""

    block: pa.Table
    partition: Partition
    level: int
    part_id: str | None = None
    """None: a new random id."""
    base_version: int = 0


def in_order(rows: pa.Table, keys: TableKeys, codes: NDArray[Any] | None = None) -> pa.Table:
    """Rows in the order of the key, first by `codes` if given, with the key's computed values as columns."""
    sorting, descending = keys.sorting, keys.descending
    columns, types = [key.evaluate(rows) for key in sorting], [key.type for key in sorting]
    for key, values in zip(sorting, columns, strict=True):
        if not key.plain and key.carried not in rows.column_names:
            rows = rows.append_column(key.carried, values)
    if codes is not None:
        columns, types = [pa.array(codes), *columns], [t.Int(64, signed=True), *types]
        descending = (False, *descending)
    order = sort_order(columns, types, descending)
    return rows if order is None else rows.take(pa.array(order))


def write_pieces(
    target: PartTarget,
    keys: TableKeys,
    pieces: Sequence[Piece],
    threads: int = 1,
    functions: StateFunctions | None = None,
) -> Iterator[PartManifest]:
    """Write each piece as a part, one after the other; small ones are encoded together. `functions`: `write_piece`."""
    blocks = [piece.block for piece in pieces]
    encoded = encode_together(blocks, target.schema, keys, target.settings)
    ttls = _expiry(blocks, target.schema)
    for at, piece in enumerate(pieces):
        shared, ttl = encoded[at] if encoded else None, ttls[at] if ttls else None
        yield write_piece(target, keys, piece, threads, functions, shared, ttl)


def _expiry(blocks: Sequence[pa.Table], schema: TableSchema) -> list[PartTtl] | None:
    """When the rows of each block expire; None if none does."""
    ttl = table_ttl(schema)
    if not ttl or not blocks:
        return None
    names = [column.name for column in schema.columns if column.name in ttl.reads]
    rows = pa.concat_tables([block.select(names) for block in blocks]).combine_chunks()
    each = ttl.infos_each(rows, np.cumsum([block.num_rows for block in blocks]).tolist())
    return [PartTtl(packed_infos(infos), ttl.file(infos)) for infos in each]


def write_piece(
    target: PartTarget,
    keys: TableKeys,
    piece: Piece,
    threads: int,
    functions: StateFunctions | None,
    shared: Together | None = None,
    ttl: PartTtl | None = None,
) -> PartManifest:
    """Write one part; `shared` holds its columns if they were encoded together with those of others.

    `functions` make the states of its projections. Without them projections that need some are left out: ClickHouse
    reads such a part itself, and the next merge writes them. `ttl` says when its rows expire, if that is known.
    """
    block = piece.block
    if ttl is None:
        (ttl,) = _expiry([block], target.schema) or (NO_TTL,)
    values = shared.sorting if shared else [key.values(block) for key in keys.sorting]
    sources = () if shared else keys.partition_sources
    rows = SortedRows(
        block,
        values[: keys.primary_length],
        [array for array, key in zip(values, keys.sorting, strict=True) if not key.plain],
        {source.text: (source.evaluate(block), source.type) for source in sources},
        ttl,
        shared.encoded if shared else None,
        [projection_rows(p, block, functions) for p in table_projections(target.schema) if functions or not p.foreign],
    )
    manifest = write_part(
        target, rows, partition=piece.partition, level=piece.level, part_id=piece.part_id, threads=threads
    )
    return replace(manifest, base_version=piece.base_version)


def projection_rows(projection: BoundProjection, block: pa.Table, functions: StateFunctions | None) -> ProjectionRows:
    """The rows of a projection of a part with the rows of `block`; `functions` as for `BoundProjection.block`."""
    own = projection.block(block, functions)
    keys = table_keys(projection.schema)
    values = [key.values(own) for key in keys.sorting]
    computed = [array for array, key in zip(values, keys.sorting, strict=True) if not key.plain]
    types = [key.type for key in keys.primary]
    return ProjectionRows(
        projection.name, projection.digest, projection.schema, types, SortedRows(own, values, computed)
    )
