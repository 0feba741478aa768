"""The columns of one part in the table's current schema: stored, defaulted, computed or virtual.

A part holds the columns that the table had when it was written. The others are computed on reading: a column that was
added later is its DEFAULT expression over the row, or the default value of its type; an ALIAS column is its
expression; `_part` and other virtual columns come from the location of the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError, NotFoundError
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.expr.aliases import alias_expression, expand_aliases
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundNode, EvaluationContext, columns_of
from mergelake.expr.nodes import Call, Literal
from mergelake.expr.parser import parse
from mergelake.expr.values import to_arrow
from mergelake.format.serializations.defaults import default_array
from mergelake.format.serializations.streams import shared_sizes_stream
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.fetch import FileRange
from mergelake.parts.read.reader import ROW_EXISTS, PartReader
from mergelake.parts.read.window import ReadWindow
from mergelake.scan.prune.narrowed import NarrowedSteps
from mergelake.scan.prune.predicate import all_types
from mergelake.scan.prune.prune import MarkRange
from mergelake.scan.prune.request import VIRTUAL_COLUMNS
from mergelake.store.interface.protocol import Store
from mergelake.table.pending.bound import Steps

Arrays = dict[str, pa.Array]


@contextmanager
def of_part(info: PartInfo) -> Iterator[None]:
    """Add the name of the part and the remedies to the hint of errors about missing or damaged data."""
    try:
        yield
    except (CorruptDataError, NotFoundError) as broken:
        hint = (
            f"It belongs to part {info}: SET skip_broken_parts = 1 reads the table without it, ALTER TABLE … DROP PART "
            f"'{info}' gives it up"
        )
        if hint not in broken.hint:
            broken.hint = f"{broken.hint}. {hint}" if broken.hint else hint
        raise


class PartSource:
    """Reads any column of the table from one part, for ranges of marks."""

    def __init__(self, reader: PartReader, info: PartInfo, schema: TableSchema, steps: Steps | None = None) -> None:
        self.steps = steps
        """What the part lacks: `read` does not apply it, `RowSelection` does."""
        self._narrowed = NarrowedSteps(steps, reader, schema) if steps is not None else None
        self._reader = reader
        self._info = info
        self.level = info.level
        """Level of the part."""
        self._schema = schema
        self._types = {**all_types(schema), **schema.types}
        ids = frozenset(reader.manifest.columns)
        self._held = _held_columns(schema, ids)
        self._expressions: dict[str, BoundNode] = {}

    @cached_property
    def row_starts(self) -> NDArray[np.int64]:
        """Row number of the first row of each granule; at the end the number of rows of the part."""
        with of_part(self._info):
            return np.concatenate(([0], np.cumsum(self._reader.granule_rows)))

    def stored_columns(self, names: Sequence[str]) -> list[str]:
        """The stored columns that are read for `names`; if there are none, one column, for the row count."""
        based = names if self.steps is None else self.steps.base(names)
        return self._stored(based) or [column.name for column in self._schema.stored if column.name in self._held][:1]

    def primary_index(self, types: Sequence[t.DataType]) -> tuple[pa.Array, ...]:
        """The primary key at each mark, the final one included, in storage form."""
        return self._reader.primary_index(types)

    @property
    def reader(self) -> PartReader:
        """The reader of the part."""
        return self._reader

    def steps_within(self, ranges: Sequence[MarkRange]) -> Steps | None:
        """The steps that may match rows of the ranges; None if there are none."""
        if self._narrowed is None:
            return None
        with of_part(self._info):
            return self._narrowed.within(ranges)

    def mask(self, ranges: Sequence[MarkRange], ahead: ReadWindow | None = None) -> NDArray[np.bool_] | None:
        """Which rows of the ranges the part's own mask leaves; None if it has none."""
        with of_part(self._info):
            if not self._reader.masked:
                return None
            rows = int(sum(self.row_starts[end] - self.row_starts[begin] for begin, end in ranges))
            exists = self._read_stored([ROW_EXISTS], ranges, rows, ahead)[ROW_EXISTS]
            return np.asarray(exists.to_numpy() != 0, dtype=np.bool_)

    def needs(self, names: Sequence[str], ranges: Sequence[MarkRange]) -> list[FileRange]:
        """The byte ranges that `read` has to fetch for the columns."""
        with of_part(self._info):
            stored = self._stored(names)
            return self._reader.needs(stored, ranges) if stored and ranges else []

    def read(self, names: Sequence[str], ranges: Sequence[MarkRange], ahead: ReadWindow | None = None) -> Arrays:
        """The columns' values in the rows of the ranges, in storage form. `ahead` has bytes fetched before."""
        with of_part(self._info):
            return self._read(names, ranges, ahead)

    def _read(self, names: Sequence[str], ranges: Sequence[MarkRange], ahead: ReadWindow | None) -> Arrays:
        rows = int(sum(self.row_starts[end] - self.row_starts[begin] for begin, end in ranges))
        arrays = self._read_stored(self._stored(names), ranges, rows, ahead)
        for name in names:
            self._provide(name, arrays, ranges, rows)
        return {name: arrays[name] for name in names}

    def _read_stored(
        self, names: Sequence[str], ranges: Sequence[MarkRange], rows: int, ahead: ReadWindow | None
    ) -> Arrays:
        if not names or not rows:
            return {name: default_array(self._types.get(name, t.UINT8), 0) for name in names}
        batches = list(self._reader.read(names, ranges, batch_rows=rows, ahead=ahead, with_deleted=True))
        return {name: joined([batch.column(i) for batch in batches]) for i, name in enumerate(names)}

    def _stored(self, names: Sequence[str]) -> list[str]:
        """The columns of the part among `names` and the columns that they are computed from."""
        closure: dict[str, None] = {}
        todo = list(names)
        while todo:
            name = todo.pop()
            if name in closure:
                continue
            closure[name] = None
            expression = self._expression(name)
            if expression is not None:
                todo.extend(columns_of(expression))
        return [name for name in closure if name in self._held]

    def _expression(self, name: str) -> BoundNode | None:
        """The expression of a column that is not stored in this part; None if there is none."""
        if name in self._expressions:
            return self._expressions[name]
        if name in self._held or not self._schema.has(name):
            return None
        column = self._schema.column(name)
        if not column.default:
            return None
        if column.default_kind == "ALIAS":
            tree = alias_expression(name, self._schema)
        else:
            inner = expand_aliases(parse(column.default), self._schema)
            tree = Call("CAST", (inner, Literal(str(column.type).encode(), t.STRING)))
        self._expressions[name] = bind(tree, self._types)
        return self._expressions[name]

    def _provide(self, name: str, arrays: Arrays, ranges: Sequence[MarkRange], rows: int) -> None:
        if name in arrays:
            return
        if name in VIRTUAL_COLUMNS and not self._schema.has(name):
            arrays[name] = self._virtual(name, ranges, rows)
            return
        expression = self._expression(name)
        if expression is None:
            arrays[name] = default_array(self._types[name], rows)
            return
        needed = columns_of(expression)
        for other in needed:
            self._provide(other, arrays, ranges, rows)
        arrays[name] = evaluate(expression, {other: arrays[other] for other in needed}, self._types, rows)

    def _virtual(self, name: str, ranges: Sequence[MarkRange], rows: int) -> pa.Array:
        if name == "_part_offset":
            pieces = [np.arange(self.row_starts[b], self.row_starts[e], dtype=np.uint64) for b, e in ranges]
            return pa.array(np.concatenate(pieces) if pieces else np.zeros(0, np.uint64))
        text = str(self._info) if name == "_part" else self._info.partition_id
        codes = pa.array(np.zeros(rows, np.int32))
        return pa.DictionaryArray.from_arrays(codes, pa.array([text.encode()], pa.binary()))


def _held_columns(schema: TableSchema, ids: frozenset[int]) -> set[str]:
    """The columns that are read from a part with the columns `ids`.

    An array of a Nested that it lacks is one of them, if it has another: the values have as many elements as there.
    """
    held = {column.name for column_id, column in schema.by_id.items() if column_id in ids}
    if len(held) == len(schema.by_id):
        return held
    sizes = {shared_sizes_stream(column.name, column.type) for column in schema.stored if column.id in ids} - {None}
    if sizes:
        arrays = {column.name for column in schema.stored if shared_sizes_stream(column.name, column.type) in sizes}
        held |= {name for name in arrays if not schema.column(name).default}
    return held


def evaluate(node: BoundNode, arrays: Mapping[str, pa.Array], types: Mapping[str, t.DataType], rows: int) -> pa.Array:
    """Values of `node` over rows whose columns are `arrays`, in the storage form of its type."""
    context = EvaluationContext.of_block(block_of(arrays, rows), types)
    return to_arrow(context.eval(node), node.type, rows)


def block_of(arrays: Mapping[str, pa.Array], rows: int) -> pa.Table:
    """The arrays as a block; without arrays, a block of one null column, which keeps the row count."""
    return pa.table(dict(arrays)) if arrays else pa.table({"": pa.nulls(rows)})


def open_part(
    store: Store,
    directory: str,
    manifest: PartManifest,
    schema: TableSchema,
    caches: PartCache | None,
    schemas: Mapping[int, TableSchema] | None = None,
) -> PartReader:
    """A reader of one part for the columns of `schema`.

    With older `schemas`, by version, parts of theirs are read without a request for the names of their columns.
    """
    columns = {column.name: column for column in schema.stored}
    written = None
    older = (schemas or {}).get(manifest.schema_version)
    own = schema if manifest.schema_version == schema.version else older
    if own is not None:
        by_id = own.by_id
        written = {by_id[i].name: by_id[i].type for i in manifest.columns if i in by_id}
    return PartReader(store, directory, manifest, columns, caches, written=written)


def joined(arrays: Sequence[pa.Array]) -> pa.Array:
    """Concatenate the arrays; dictionaries are unified."""
    if len(arrays) == 1:
        return arrays[0]
    chunked = pa.chunked_array(arrays)
    if pa.types.is_dictionary(chunked.type):
        chunked = chunked.unify_dictionaries()
    out = chunked.combine_chunks()
    return out.chunk(0) if isinstance(out, pa.ChunkedArray) else out
