"""Partition and sorting keys: expressions over a table's columns, computed for whole blocks.

A key that is a plain column costs nothing: its array is used without a copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.lexer import quoted_name
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.core.types.types import DataType
from mergelake.expr import (
    BoundCall,
    BoundColumn,
    BoundLiteral,
    BoundNode,
    Call,
    ColumnRef,
    SyntaxNode,
    bind,
    columns_of,
    compile_expression,
    parse,
    referenced_columns,
)

Block: TypeAlias = pa.Table | pa.RecordBatch
"""Columns in the storage form, named as in the schema."""

_NULL = t.Nullable(t.Nothing())
_COMPARISONS = ("equals", "notEquals", "less", "lessOrEquals", "greater", "greaterOrEquals")
_OWN_TYPES = ("CAST", "if", "multiIf", "coalesce", "ifNull", "assumeNotNull", "nullIf")
"""Functions whose result type does not follow the LowCardinality of their argument."""
_CARRIED = "\x1fkey:"
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One expression of a key, bound to the columns of its table."""

    text: str
    type: DataType
    columns: tuple[str, ...]
    """Columns that it reads."""
    evaluate: Callable[[Block], pa.Array]
    """Its values for a block, in the storage form."""
    plain: bool
    """Whether it is a column of the table, not computed."""

    @property
    def carried(self) -> str:
        """The name of a block's column with its precomputed values, which no table column can have."""
        return f"{_CARRIED}{self.text}"

    def values(self, block: Block) -> pa.Array:
        """The precomputed values of the block, if it carries them, or else `evaluate`."""
        return whole_column(block, self.carried) if self.carried in block.schema.names else self.evaluate(block)


@dataclass(frozen=True, slots=True)
class TableKeys:
    """All keys of a table."""

    partition: tuple[KeyColumn, ...]
    sorting: tuple[KeyColumn, ...]
    descending: tuple[bool, ...]
    """A flag for each column of the sorting key."""
    primary_length: int
    """The primary key is the sorting key's first columns, this many."""

    partition_sources: tuple[KeyColumn, ...]
    """Columns and subcolumns that the partition key reads, once each: parts store their minimum and maximum."""

    @property
    def primary(self) -> tuple[KeyColumn, ...]:
        """The primary key."""
        return self.sorting[: self.primary_length]


def table_keys(schema: TableSchema) -> TableKeys:
    """The keys of a table, bound once and then used for many blocks."""
    partition = tuple(bind_partition_key(text, schema) for text in schema.partition_by)
    trees = [key_tree(text, schema.names) for text in schema.partition_by]
    sources = partition_sources(trees, [key.columns for key in partition], schema.types)
    return TableKeys(
        partition,
        tuple(bind_key(text, schema) for text in schema.order_by),
        schema.order_desc or (False,) * len(schema.order_by),
        len(schema.primary_key or schema.order_by),
        tuple(_bound(name, str(ColumnRef(name)), schema) for name in sources),
    )


def partition_sources(
    trees: Sequence[SyntaxNode], read: Sequence[Sequence[str]], types: Mapping[str, DataType]
) -> tuple[str, ...]:
    """Names of the columns and subcolumns (`t.a`) that the partition key reads, each once.

    `trees` are its expressions, and `read` the columns that each reads.
    """
    sources: dict[str, None] = {}
    for tree, columns in zip(trees, map(set, read), strict=True):
        names = referenced_columns(tree)
        sources.update(dict.fromkeys(n for n in names if columns.issuperset(columns_of(bind(ColumnRef(n), types)))))
    return tuple(sources)


def columns_read(tree: SyntaxNode, node: BoundNode, types: Mapping[str, DataType]) -> tuple[str, ...]:
    """Columns that an expression of a key reads: `tree`, bound as `node`."""
    columns = columns_of(node)
    if columns or node.type != _NULL or (isinstance(tree, Call) and tree.function in _COMPARISONS):
        return columns
    # In a key, `k * NULL` is not a constant but a value for each row of `k`; `k = NULL` is a constant.
    mentioned = (bind(ColumnRef(name), types) for name in referenced_columns(tree))
    return tuple(dict.fromkeys(name for each in mentioned for name in columns_of(each)))


def bind_key(text: str, schema: TableSchema) -> KeyColumn:
    """One key expression over the columns of `schema`; raises the errors of the compiler."""
    return _bound(text, text, schema)


def bind_partition_key(text: str, schema: TableSchema) -> KeyColumn:
    """One expression of a partition key: as `bind_key`, with ClickHouse's legacy modulo (`as_partition_key`)."""
    tree = key_tree(text, schema.names)
    adjusted = as_partition_key(tree)
    key = _bound(text, text if adjusted == tree else str(adjusted), schema)
    if isinstance(key.type, t.Date) and _keeps_dictionary(bind(adjusted, schema.types)):
        return replace(key, type=t.LowCardinality(key.type))  # then the partition id is a number
    return key


def _keeps_dictionary(node: BoundNode) -> bool:
    """Whether ClickHouse's type of the value is LowCardinality: it is, for one such column and constants."""
    if isinstance(node, BoundColumn):
        return isinstance(node.type, t.LowCardinality)
    if not isinstance(node, BoundCall) or node.function in _OWN_TYPES:
        return False
    varying = [arg for arg in node.args if not isinstance(arg, BoundLiteral)]
    return len(varying) == 1 and _keeps_dictionary(varying[0])


def as_partition_key(node: SyntaxNode) -> SyntaxNode:
    """`node` as ClickHouse computes it in a partition key: each `modulo` is `moduloLegacy`.

    Formerly the result had the width of the divisor, and partitions are still named by such results: with a signed `k`,
    `k % 200` is an Int8. Source: ClickHouse, `MergeTreePartition::adjustPartitionKey`.
    """
    if not isinstance(node, Call):
        return node
    name = "moduloLegacy" if node.function == "modulo" or node.function.lower() == "mod" else node.function
    return Call(name, tuple(as_partition_key(arg) for arg in node.args))


def _bound(text: str, computed: str, schema: TableSchema) -> KeyColumn:
    name = plain_column(text, schema.names)
    if name is not None:
        evaluate = partial(whole_column, name=name)
        return KeyColumn(text, schema.column(name).type, (name,), evaluate, plain=True)
    compiled = compile_expression(computed, schema.types)
    columns = compiled.columns or columns_read(parse(computed), compiled.node, schema.types)
    return KeyColumn(text, compiled.type, columns, compiled.evaluate, plain=False)


def key_tree(text: str, names: Sequence[str]) -> SyntaxNode:
    """The syntax tree of a key expression; `names` are the table's columns."""
    name = plain_column(text, names)
    return parse(text) if name is None else ColumnRef(name)


def plain_column(text: str, names: Sequence[str]) -> str | None:
    """The column that `text` names, quoted or not; None for any other expression.

    A column may be called `a-b`: that text is the column unless it can be read as an expression over the others.
    """
    bare = text.strip()
    quoted = quoted_name(bare)
    if quoted is not None:
        return quoted if quoted in names else None
    if bare not in names:
        return None
    if _BARE.fullmatch(bare):
        return bare
    try:
        reads = referenced_columns(parse(bare))
    except MergelakeError:
        return bare
    return None if all(name in names for name in reads) else bare


def whole_column(block: Block, name: str) -> pa.Array:
    """One column of a block as a single array."""
    column = block.column(name)
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.combine_chunks()
