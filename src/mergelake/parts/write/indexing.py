"""Writing the skip indexes of a part: their expressions are evaluated on the rows and summarized by granules::

    sink = writer.index(index)          # for each of writer.indexes
    sink.append(block)                  # rows with (at least) the columns that the index reads, in the part's order
    sink.finish()

Only summaries are held in memory, so an index granule may cover any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.model.schema import SkipIndex, TableSchema
from mergelake.core.types.types import DataType
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundColumn, BoundNode, EvaluationContext, columns_of
from mergelake.expr.nodes import Call, SyntaxNode, column_name
from mergelake.expr.parser import parse
from mergelake.expr.values import to_arrow
from mergelake.format.codecs.codec import Codec
from mergelake.format.codecs.hashes import FileDigest
from mergelake.format.files.profile import Profile
from mergelake.format.indexes.skip_files import IndexFileWriter
from mergelake.format.indexes.skip_index import granule_builder
from mergelake.format.indexes.skip_types import IndexType, parse_index_type
from mergelake.parts.write.part_spec import PartTarget

_PIECE_ROWS = 1 << 16
"""Number of rows that expressions are evaluated on at a time."""


@dataclass(frozen=True, slots=True)
class BoundIndex:
    """A skip index, bound against the columns of its table."""

    name: str
    kind: IndexType
    granularity: int
    nodes: tuple[BoundNode, ...]
    """Its expressions."""
    texts: tuple[str, ...]
    """The expressions as ClickHouse prints them."""
    since: int = 0
    """The version of the schema that added it."""

    @property
    def types(self) -> tuple[DataType, ...]:
        """Type of each expression."""
        return tuple(node.type for node in self.nodes)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        return tuple(dict.fromkeys(name for node in self.nodes for name in columns_of(node)))


def bind_index(index: SkipIndex, schema: TableSchema) -> BoundIndex:
    """Bind an index. Raises the errors of parsing its type and of binding its expressions."""
    trees = index_expressions(index)
    types = schema.types
    nodes = tuple(bind(tree, types) for tree in trees)
    texts = tuple(column_name(tree) for tree in trees)
    return BoundIndex(index.name, parse_index_type(index.type), index.granularity, nodes, texts, index.since)


def index_expressions(index: SkipIndex) -> tuple[SyntaxNode, ...]:
    """The expressions of an index: two for `(a, b)`."""
    tree = parse(index.expression)
    return tree.args if isinstance(tree, Call) and tree.function == "tuple" and tree.args else (tree,)


def table_indexes(schema: TableSchema) -> tuple[BoundIndex, ...]:
    """All skip indexes of a table."""
    return tuple(bind_index(index, schema) for index in schema.indices)


class IndexSink:
    """Writes one index of a part. Rows are appended in the part's order by one thread."""

    def __init__(
        self,
        index: BoundIndex,
        target: PartTarget,
        granules: int | NDArray[np.int64],
        codec: Codec,
        profile: Profile,
        write: Callable[[str, bytes | memoryview], None],
        done: Callable[[Mapping[str, FileDigest], int], None],
    ) -> None:
        """`granules`: rows of every granule of the part, or of each. `codec`, `profile`: the part's.

        `write` appends bytes to a file of the part; `done` is called at the end with the digests of the index's files
        and the number of rows.
        """
        settings = target.settings
        self.index = index
        self._write, self._done = write, done
        self._types = {name: target.schema.column(name).type for name in index.columns}
        self._builder = granule_builder(index.kind, index.types, index.granularity)
        self._file = IndexFileWriter(
            index.name,
            index.kind,
            codec,
            min_block=settings.integer("min_compress_block_size"),
            max_block=settings.integer("max_compress_block_size"),
            profile=profile,
        )
        self._step = granules if isinstance(granules, int) else 0
        self._ends = np.zeros(0, np.int64) if isinstance(granules, int) else np.cumsum(granules)
        self._rows = 0

    def append(self, block: pa.RecordBatch | pa.Table) -> None:
        """Append the next rows."""
        for start in range(0, block.num_rows, _PIECE_ROWS):
            piece = block.slice(start, _PIECE_ROWS)
            values = index_values(self.index, piece, self._types)
            self._file.append(*self._builder.feed(values, self._cuts(piece.num_rows)))
            self._flush(self._file.drain())

    def finish(self) -> None:
        """Write the last granule."""
        if self._rows:
            self._file.append(*self._builder.finish())
        self._flush(self._file.finish())
        self._done(self._file.digests(), self._rows)

    def _cuts(self, rows: int) -> NDArray[np.int64]:
        """Positions among the next `rows` rows at which granules of the part end."""
        first, self._rows = self._rows, self._rows + rows
        if self._step:
            return np.arange(self._step - first % self._step, rows + 1, self._step, dtype=np.int64)
        return self._ends[(self._ends > first) & (self._ends <= self._rows)] - first

    def _flush(self, drained: Sequence[tuple[str, bytes | memoryview]]) -> None:
        for name, data in drained:
            self._write(name, data)


def index_values(index: BoundIndex, block: pa.RecordBatch | pa.Table, types: Mapping[str, DataType]) -> list[pa.Array]:
    """Values of each expression of the index for the rows of a block, whose columns are of `types`."""
    context = EvaluationContext.of_block(block, types)
    out = []
    for node in index.nodes:
        if isinstance(node, BoundColumn):
            column = block.column(node.name)
        else:
            column = to_arrow(context.eval(node), node.type, block.num_rows)
        out.append(whole_array(column))
    return out


def whole_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined
