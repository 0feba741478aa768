"""From a stream of batches to blocks: cut to size, then completed with the columns that were not given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from mergelake.core.arrow import storage_type
from mergelake.core.errors import error
from mergelake.core.schema import Column, TableSchema, unknown_column
from mergelake.core.settings import TableSettings
from mergelake.core.text import quote_string
from mergelake.core.types import DataType
from mergelake.expr import compile_expression
from mergelake.format.defaults import default_array, default_elements
from mergelake.format.streams import shared_sizes_stream
from mergelake.table.keys import Block, whole_column


def cut_blocks(batches: Iterable[Block], rows_max: int, bytes_max: int) -> Iterator[pa.Table]:
    """The same rows in the same order, in blocks of up to `rows_max` rows and about `bytes_max` bytes.

    Small batches are gathered, large ones cut; a block without rows never comes out. Zero is no limit.
    """
    rows_max = rows_max or 1 << 62
    bytes_max = bytes_max or 1 << 62
    held: list[pa.Table] = []
    held_rows = held_bytes = 0
    for batch in batches:
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        while table.num_rows:
            row_bytes = max(table.nbytes / table.num_rows, 1.0)
            room = min(rows_max - held_rows, max(int((bytes_max - held_bytes) / row_bytes), 0 if held else 1))
            piece = _within(table.slice(0, room), bytes_max)
            room = piece.num_rows
            if piece.num_rows:
                held.append(piece)
                held_rows += piece.num_rows
                held_bytes += piece.nbytes
            table = table.slice(room)
            if table.num_rows:
                yield pa.concat_tables(held)
                held, held_rows, held_bytes = [], 0, 0
    if held:
        yield pa.concat_tables(held)


def _within(piece: pa.Table, bytes_max: int) -> pa.Table:
    """The first rows of a piece that was measured by its average row, where long rows lie together at its front."""
    if piece.nbytes <= 2 * bytes_max:
        return piece
    least = 1.1 * piece.slice(0, 1).nbytes  # one long row, or a dictionary, which every slice has whole
    while piece.nbytes > max(2 * bytes_max, least):
        piece = piece.slice(0, piece.num_rows // 2)
    return piece


@dataclass(frozen=True, slots=True)
class _Computed:
    column: Column
    evaluate: Callable[[Block], pa.Array]


class BlockCompleter:
    """Adds the stored columns that a block lacks: DEFAULT and MATERIALIZED expressions, else the type's default."""

    def __init__(self, schema: TableSchema, given: Iterable[str], now_ms: int) -> None:
        """`given`: names of the columns that every block has; `now_ms`: what `now()` means in a default.

        Raises for columns that cannot be given, and for defaults that cannot be computed.
        """
        names = list(given)
        check_given(schema, names)
        self._schema = schema
        self._given = names
        self._computed = [
            _Computed(column, _default_of(column, schema, now_ms)) for column in _in_order(schema, names, now_ms)
        ]

    def complete(self, block: Block) -> pa.Table:
        """All stored columns of the table, each in one chunk, in the storage form and in the schema's order."""
        table = pa.table({name: whole_column(block, name) for name in self._given})
        for missing in self._computed:
            array = missing.evaluate(table) if self._given else default_array(missing.column.type, block.num_rows)
            table = table.append_column(missing.column.name, array)
        for column in self._schema.stored:
            check_storage(column, table.column(column.name))
        return table.select([column.name for column in self._schema.stored])


def check_defaults(schema: TableSchema) -> None:
    """Whether every default can be computed, in some order; raises what computing it would."""
    plain = [column.name for column in schema.columns if not column.default_kind]
    for column in _in_order(schema, plain, 0):
        _default_of(column, schema, 0)


def check_given(schema: TableSchema, names: list[str]) -> None:
    """Whether an insert may name these columns."""
    known = {column.name: column for column in schema.columns}
    for name in names:
        if name not in known:
            raise unknown_column(name, list(known))
        kind = known[name].default_kind
        if kind in ("MATERIALIZED", "ALIAS"):
            raise error("ILLEGAL_COLUMN", f"Cannot insert column {name}, because it is a {kind} column", "Leave it out")
    if not names:
        raise error("EMPTY_LIST_OF_COLUMNS_PASSED", "The data has no columns", "Give at least one column of the table")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise error("DUPLICATE_COLUMN", f"Column {twice} is given twice")


def check_storage(column: Column, data: pa.Array | pa.ChunkedArray) -> None:
    """Whether an array is in the storage form of its column."""
    wanted = storage_type(column.type)
    if not data.type.equals(wanted):
        raise error("TYPE_MISMATCH", f"Column {column.name} of type {column.type} wants {wanted}, got {data.type}")


def block_limits(settings: TableSettings) -> tuple[int, int]:
    """Rows and bytes of one block of an insert."""
    return settings.integer("max_insert_block_size"), settings.integer("max_insert_block_bytes")


def _in_order(schema: TableSchema, given: list[str], now_ms: int) -> list[Column]:
    """Missing columns, each after those that its expression reads. ALIAS columns are not stored."""
    missing = {c.name: c for c in schema.columns if c.name not in given and c.default_kind != "ALIAS"}
    reads: dict[str, set[str]] = {}
    for name, column in missing.items():
        used = compile_expression(column.default, schema.types, now_ms).columns if column.default else ()
        reads[name] = set(used) & set(missing) - {name}
    out: list[Column] = []
    while missing:
        ready = [name for name in missing if not reads[name] & set(missing)]
        if not ready:
            raise error("BAD_ARGUMENTS", f"The defaults of columns {', '.join(missing)} refer to each other")
        out += [missing.pop(name) for name in ready]
    return out


def _plain_default(column: Column, block: Block, types: Mapping[str, DataType]) -> pa.Array:
    """The type's default; of a Nested column as many in a row as its siblings have."""
    sizes = shared_sizes_stream(column.name, column.type)
    for name in block.schema.names if sizes else ():
        if shared_sizes_stream(name, types[name]) == sizes:
            return default_elements(column.type, whole_column(block, name))
    return default_array(column.type, block.num_rows)


def _default_of(column: Column, schema: TableSchema, now_ms: int) -> Callable[[Block], pa.Array]:
    if not column.default:
        types = schema.types
        return lambda block: _plain_default(column, block, types)
    # A default is converted as CAST does: it may be of another type than its column.
    text = f"CAST({column.default}, {quote_string(str(column.type))})"
    return compile_expression(text, schema.types, now_ms).evaluate
