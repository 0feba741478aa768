"""A table's keys as pruning sees them, and what a part's manifest tells about its key values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from mergelake.core.schema import TableSchema
from mergelake.core.types import DataType
from mergelake.expr.binder import bind
from mergelake.expr.bound import columns_of
from mergelake.expr.nodes import column_name
from mergelake.expr.parser import parse
from mergelake.format.values import decode_values
from mergelake.log.state import ActivePart
from mergelake.scan.analyze import Key


@dataclass(frozen=True, slots=True)
class ScanKeys:
    """The keys that a scan can prune by."""

    minmax: Key
    """Source columns of the partition key."""
    partition: Key
    primary: Key
    descending: tuple[bool, ...]
    """For each primary key column."""

    @property
    def bounded(self) -> dict[int, int]:
        """Primary key columns that are partition source columns: their numbers in both keys."""
        nodes = self.minmax.nodes
        return {i: nodes.index(node) for i, node in enumerate(self.primary.nodes) if node in nodes}


def scan_keys(schema: TableSchema, *, whole: bool = False) -> ScanKeys:
    """The keys of a table, bound against its columns; `whole` takes the sorting key for the primary one."""
    partition = _key(schema.partition_by, schema, single_point=True)
    sources = tuple(dict.fromkeys(name for node in partition.nodes for name in columns_of(node)))
    primary = schema.order_by if whole else schema.primary_key or schema.order_by
    flags = schema.order_desc or (False,) * len(primary)
    return ScanKeys(_key(sources, schema, quoted=True), partition, _key(primary, schema), flags[: len(primary)])


def _key(texts: Sequence[str], schema: TableSchema, *, single_point: bool = False, quoted: bool = False) -> Key:
    trees = [parse(f"`{text}`" if quoted else text) for text in texts]
    types = schema.types
    return Key(tuple(bind(tree, types) for tree in trees), tuple(column_name(tree) for tree in trees), single_point)


def minmax_columns(parts: Sequence[ActivePart], keys: ScanKeys) -> tuple[list[pa.Array], list[pa.Array]]:
    """Minimum and maximum of each partition source column, one value a part. Every part must have rows."""
    low, high = [], []
    for name, data_type in zip(keys.minmax.names, keys.minmax.types, strict=True):
        pairs = [part.manifest.minmax[name] for part in parts]
        low.append(decode_keys([pair[0] for pair in pairs], [data_type])[0])
        high.append(decode_keys([pair[1] for pair in pairs], [data_type])[0])
    return low, high


def partition_values(parts: Sequence[ActivePart], keys: ScanKeys) -> tuple[pa.Array, ...]:
    """Values of each partition expression, one value a part."""
    return decode_keys([part.manifest.partition for part in parts], keys.partition.types)


def key_ends(parts: Sequence[ActivePart], keys: ScanKeys) -> tuple[tuple[pa.Array, ...], tuple[pa.Array, ...]]:
    """The primary key of the first and of the last row of each part."""
    types = keys.primary.types
    first = decode_keys([part.manifest.key_range[0] for part in parts], types)
    return first, decode_keys([part.manifest.key_range[1] for part in parts], types)


def decode_keys(values: Sequence[str], types: Sequence[DataType]) -> tuple[pa.Array, ...]:
    """Key values as manifests keep them (hex of the single value binary form), one array for each key column."""
    return tuple(decode_values(bytes.fromhex("".join(values)), types, len(values)))
