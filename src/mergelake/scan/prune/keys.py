"""The keys of a table, bound for pruning, and the key values in the manifests of parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import DataType
from mergelake.engines.order.keys import as_partition_key, columns_read, key_tree, partition_sources
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode
from mergelake.expr.functions.arithmetic import as_int, promoted
from mergelake.expr.nodes import ColumnRef, SyntaxNode, column_name
from mergelake.format.serializations.values import decode_values
from mergelake.log.model.parts import ActivePart
from mergelake.scan.prune.analyze import Key


@dataclass(frozen=True, slots=True)
class ScanKeys:
    """The keys that a scan can prune by."""

    minmax: Key
    """Source columns of the partition key."""
    partition: Key
    partition_types: tuple[DataType, ...]
    """Types of the partition values that parts store; those of the key may be wider (`_rest_as_written`)."""
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
    partition, kept, sources = _partition_key(schema)
    primary = schema.order_by if whole else schema.primary_key or schema.order_by
    flags = schema.order_desc or (False,) * len(primary)
    minmax = _bound([ColumnRef(name) for name in sources], schema)
    sorting = _bound([key_tree(text, schema.names) for text in primary], schema)
    return ScanKeys(minmax, partition, kept, sorting, flags[: len(primary)])


def _partition_key(schema: TableSchema) -> tuple[Key, tuple[DataType, ...], tuple[str, ...]]:
    """(partition key for comparison with predicates, types in which its values are stored, source columns)."""
    types = schema.types
    trees = [key_tree(text, schema.names) for text in schema.partition_by]
    adjusted = [as_partition_key(tree) for tree in trees]
    kept = [bind(tree, types) for tree in adjusted]
    nodes = [_rest_as_written(bind(tree, types), node) for tree, node in zip(trees, kept, strict=True)]
    names = tuple(column_name(tree) for tree in adjusted)
    read = [columns_read(tree, node, types) for tree, node in zip(adjusted, kept, strict=True)]
    sources = partition_sources(trees, read, types)
    return Key(tuple(nodes), names, single_point=True), tuple(node.type for node in kept), sources


def _rest_as_written(written: BoundNode, kept: BoundNode) -> BoundNode:
    """`k % 8` for the key `moduloLegacy(k, 8)` where both are equal for every `k`; otherwise `kept`."""
    if not (isinstance(written, BoundCall) and isinstance(kept, BoundCall) and kept.function == "moduloLegacy"):
        return kept
    if written.args != kept.args:
        return kept
    (number, divisor), narrow = kept.args, t.inner_type(kept.type)
    kinds = as_int(t.inner_type(number.type)), as_int(divisor.type)
    if not all(isinstance(kind, t.Int) and kind.bits <= 64 for kind in kinds) or not isinstance(narrow, t.Int):
        return kept
    a, b = (kind for kind in kinds if isinstance(kind, t.Int))
    common = promoted(a, b)
    exact = all(k.signed == common.signed or (common.signed and k.bits < common.bits) for k in (a, b))
    fits = isinstance(divisor, BoundLiteral) and abs(divisor.value) <= 1 << (narrow.bits - narrow.signed)
    return written if exact and fits else kept


def _bound(trees: Sequence[SyntaxNode], schema: TableSchema) -> Key:
    types = schema.types
    return Key(tuple(bind(tree, types) for tree in trees), tuple(column_name(tree) for tree in trees))


def minmax_columns(parts: Sequence[ActivePart], keys: ScanKeys) -> tuple[list[pa.Array], list[pa.Array]]:
    """Minimum and maximum of each partition source column, one value a part. Every part must have rows."""
    low, high = [], []
    for name, data_type in zip(keys.minmax.names, keys.minmax.types, strict=True):
        pairs = [part.manifest.minmax[name] for part in parts]
        low.append(decode_keys([pair[0] for pair in pairs], [data_type])[0])
        high.append(decode_keys([pair[1] for pair in pairs], [data_type])[0])
    return low, high


def partition_values(partitions: Sequence[str], keys: ScanKeys) -> tuple[pa.Array, ...]:
    """Values of each partition expression, from `PartManifest.partition` of each part or partition."""
    kept = decode_keys(partitions, keys.partition_types)
    pairs = zip(kept, keys.partition_types, keys.partition.types, strict=True)
    return tuple(a if own == wanted else a.cast(storage_type(wanted)) for a, own, wanted in pairs)


def key_ends(parts: Sequence[ActivePart], keys: ScanKeys) -> tuple[tuple[pa.Array, ...], tuple[pa.Array, ...]]:
    """The primary key of the first and of the last row of each part."""
    types = keys.primary.types
    first = decode_keys([part.manifest.key_range[0] for part in parts], types)
    return first, decode_keys([part.manifest.key_range[1] for part in parts], types)


def decode_keys(values: Sequence[str], types: Sequence[DataType]) -> tuple[pa.Array, ...]:
    """Decode key values of manifests (hex of the single-value binary form) into one array for each key column."""
    return tuple(decode_values(bytes.fromhex("".join(values)), types, len(values)))
