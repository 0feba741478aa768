"""From a stream of batches to blocks: cut to size, then completed with the missing columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.text import quote_string
from mergelake.core.model.schema import Column, TableSchema, unknown_column
from mergelake.core.model.settings import TableSettings
from mergelake.core.types.arrow import storage_type
from mergelake.engines.order.keys import Block, whole_column
from mergelake.expr import Compiled, Seed, bind, columns_of, compile_expression, parse
from mergelake.expr.aliases import alias_expression, expand_aliases
from mergelake.format.serializations.defaults import LEFT_OUT, default_array, default_elements
from mergelake.format.serializations.streams import shared_sizes_stream

Flags = npt.NDArray[np.bool_]
"""A flag for each row."""
_NO_COLUMN = ""
"""Carries the number of rows if no column is given."""


def cut_blocks(batches: Iterable[Block], rows_max: int, bytes_max: int) -> Iterator[pa.Table]:
    """The same rows in the same order, in blocks of up to `rows_max` rows and about `bytes_max` bytes.

    Small batches are combined, large ones cut; no block is empty. Zero is no limit.
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
    """The first rows of a piece that was cut by its average row, which may have longer rows at its front."""
    if piece.nbytes <= 2 * bytes_max:
        return piece
    least = 1.1 * piece.slice(0, 1).nbytes  # one long row, or a dictionary, which every slice includes
    while piece.nbytes > max(2 * bytes_max, least):
        piece = piece.slice(0, piece.num_rows // 2)
    return piece


@dataclass(frozen=True, slots=True)
class _Missing:
    """A column that blocks lack."""

    column: Column
    default: Compiled | None
    """None for the type's default."""


class BlockCompleter:
    """Adds the missing stored columns of a block: DEFAULT and MATERIALIZED expressions, or the type's default."""

    def __init__(
        self, schema: TableSchema, columns_given: Iterable[str], now_ms: int, seed: Seed, *, partly: bool = False
    ) -> None:
        """`columns_given`: names of the columns that every block has; `now_ms`: what `now()` means in a default;
        `seed`: where `rand()` and the like begin.

        `partly`: other columns are given in some rows, so `columns_given` may be empty. Raises for columns that cannot
        be given, and for defaults that cannot be computed.
        """
        names = list(columns_given)
        if names or not partly:
            check_given(schema, names)
        self._schema = schema
        self._columns_given = names
        self._missing = [
            _Missing(column, _default_of(column, schema, now_ms, seed)) for column in _in_order(schema, names)
        ]
        self._sizes = {c.name: sizes for c in schema.stored if (sizes := shared_sizes_stream(c.name, c.type))}

    def complete(self, block: Block) -> pa.Table:
        """All stored columns of the table, each in one chunk, in the storage form and in the schema's order."""
        arrays = self._arrays(block, {}, block.num_rows)
        for column in self._schema.stored:
            check_storage(column, arrays[column.name])
        return pa.table({column.name: arrays[column.name] for column in self._schema.stored})

    def evaluate(self, block: Block, flagged: Mapping[str, Flags], rows: int) -> pa.Table:
        """The given columns and all others; for a column in `flagged` only the flagged values are computed."""
        return pa.table(self._arrays(block, flagged, rows))

    def _arrays(self, block: Block, flagged: Mapping[str, Flags], rows: int) -> dict[str, pa.Array]:
        arrays = {name: whole_column(block, name) for name in self._columns_given}
        block_given = pa.table(arrays or {_NO_COLUMN: pa.nulls(rows)})
        nested = {self._sizes[name]: name for name in reversed(self._columns_given) if name in self._sizes}
        for missing in self._missing:
            name, kind = missing.column.name, missing.column.type
            sizes = self._sizes.get(name, "")
            if missing.default is not None:
                reads = {other: arrays[other] for other in missing.default.columns}
                array = missing.default.evaluate(pa.table(reads) if reads else block_given)
            elif sizes in nested:  # the same number of elements in a row as its siblings
                array = default_elements(kind, arrays[nested[sizes]])
            elif name in flagged:
                array = default_array(kind, rows, LEFT_OUT)
            else:
                array = default_array(kind, rows)
            if name in flagged:
                taken = np.where(flagged[name], np.arange(rows), np.arange(rows, 2 * rows))
                array = pa.concat_arrays([array, whole_column(block, name)]).take(pa.array(taken))
            arrays[name] = array
            if sizes:
                nested.setdefault(sizes, name)
        return arrays


def fill_in(
    block: Block, missing: Mapping[str, Flags], schema: TableSchema, now_ms: int, seed: Seed, rows: int
) -> pa.Table:
    """The columns of `block`, in storage form, with defaults in place of the values that `missing` flags.

    A block without columns, of `rows` rows, gets all columns that an insert may give.
    """
    columns_given = [name for name in block.schema.names if name not in missing]
    names = block.schema.names or [c.name for c in schema.columns if c.default_kind in ("", "DEFAULT")]
    return BlockCompleter(schema, columns_given, now_ms, seed, partly=True).evaluate(block, missing, rows).select(names)


def check_defaults(schema: TableSchema) -> None:
    """Whether every default and ALIAS can be computed, in some order; raises what computing it would."""
    plain = [column.name for column in schema.columns if not column.default_kind]
    for column in _in_order(schema, plain):
        _default_of(column, schema, 0, _no_chance)
    for column in schema.columns:
        if column.default_kind == "ALIAS":
            bound = bind(alias_expression(column.name, schema), schema.types, 0, _no_chance)
            gone = next((name for name in columns_of(bound) if schema.column(name).default_kind == "EPHEMERAL"), None)
            if gone is not None:
                message = f"ALIAS column {column.name} reads {gone}, which is EPHEMERAL: no row of the table has it"
                raise error("NO_SUCH_COLUMN_IN_TABLE", message, "Read a stored column")


def check_given(schema: TableSchema, names: list[str]) -> None:
    """Raise a coded error unless an insert may name these columns."""
    known = {column.name: column for column in schema.columns}
    for name in names:
        if name not in known:
            raise unknown_column(name, list(known))
        kind = known[name].default_kind
        if kind == "ALIAS":
            raise alias_given(name)
        if kind == "MATERIALIZED":
            raise error("ILLEGAL_COLUMN", f"Cannot insert column {name}, because it is a {kind} column", "Leave it out")
    if not names:
        raise error("EMPTY_LIST_OF_COLUMNS_PASSED", "The data has no columns", "Give at least one column of the table")
    if len(set(names)) != len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise error("DUPLICATE_COLUMN", f"Column {repeated} is given twice")


def alias_given(name: str, table: str = "") -> MergelakeError:
    """ClickHouse knows no column of that name to insert into."""
    place = f" in table {table}" if table else ""
    return error("NO_SUCH_COLUMN_IN_TABLE", f"No such column {name}{place}: it is an ALIAS column", "Leave it out")


def check_storage(column: Column, data: pa.Array | pa.ChunkedArray) -> None:
    """Raise TYPE_MISMATCH unless an array is in the storage form of its column."""
    wanted = storage_type(column.type)
    if not data.type.equals(wanted):
        raise error("TYPE_MISMATCH", f"Column {column.name} of type {column.type} wants {wanted}, got {data.type}")


def block_limits(settings: TableSettings) -> tuple[int, int]:
    """Rows and bytes of one block of an insert."""
    return settings.integer("max_insert_block_size"), settings.integer("max_insert_block_bytes")


def _in_order(schema: TableSchema, columns_given: list[str]) -> list[Column]:
    """Missing columns, each after those that its expression reads. ALIAS columns are not stored."""
    known, types = frozenset(columns_given), schema.types
    missing = {c.name: c for c in schema.columns if c.name not in known and c.default_kind != "ALIAS"}
    reads: dict[str, list[str]] = {}
    for name, column in missing.items():
        used = compile_expression(_text(column, schema), types, 0, _no_chance).columns if column.default else ()
        reads[name] = [other for other in used if other in missing]
    try:
        return [missing[name] for name in TopologicalSorter(reads).static_order()]
    except CycleError as found:
        path = " -> ".join(reversed(found.args[1]))
        raise error("CYCLIC_ALIASES", f"Cyclic alias detected in column DEFAULT expressions: {path}") from None


def _text(column: Column, schema: TableSchema) -> str:
    """The expression of a default over columns that are stored."""
    tree = parse(column.default)
    expanded = expand_aliases(tree, schema)
    return column.default if expanded == tree else str(expanded)


def _no_chance() -> int:
    """Where nothing is drawn: an expression is only looked at."""
    return 0


def _default_of(column: Column, schema: TableSchema, now_ms: int, seed: Seed) -> Compiled | None:
    if not column.default:
        return None
    # A default is converted as CAST does: it may be of another type than its column.
    text = f"CAST({_text(column, schema)}, {quote_string(str(column.type))})"
    return compile_expression(text, schema.types, now_ms, seed)
