"""The typed tree: what `bind` makes of a parsed expression, and what scan and mutate walk.

`BoundLiteral | BoundColumn | BoundCall`, each with its ClickHouse `type`. Functions have their canonical
ClickHouse names (`equals`, `toYYYYMM`); constants are folded, and a string literal compared with a date, an
enum, a UUID … already is a literal of that type in storage form (`ts >= '2026-01-01'` holds the UInt32).
`EvaluationContext` has the rows that a node is evaluated on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.expr.nodes import Call, ColumnRef, Literal, SyntaxNode
from mergelake.expr.values import Data, Vec, constant_vec, from_arrow, mask_array, take


@dataclass(frozen=True, slots=True)
class BoundLiteral:
    """A constant: a storage value (int, float, bytes, None, list for Array, tuple for Tuple) and its type."""

    value: Any
    type: t.DataType

    def __str__(self) -> str:
        return str(unbind(self))


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """A column of the block."""

    name: str
    type: t.DataType

    def __str__(self) -> str:
        return str(unbind(self))


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A function by its canonical name, applied to `args`."""

    function: str
    args: tuple[BoundNode, ...]
    type: t.DataType
    run: Callable[[EvaluationContext], Vec] = field(compare=False, repr=False)
    """Evaluates the call on a block; made by `bind`."""
    can_raise: bool = field(default=False, compare=False, repr=False)
    """Whether a row's value can make it raise (division by zero, text that does not parse), arguments included."""
    cost: int = field(default=1, compare=False, repr=False)
    """Rough nanoseconds per row, arguments included."""

    def __str__(self) -> str:
        return str(unbind(self))


BoundNode = BoundLiteral | BoundColumn | BoundCall


class EvaluationContext:
    """The rows to evaluate on: a block, or some of its rows."""

    def __init__(
        self,
        rows: int,
        load: Callable[[str], Vec],
        all_rows: tuple[EvaluationContext, npt.NDArray[np.int64]] | None = None,
    ) -> None:
        """`all_rows`: the context that these rows were taken from, and their positions in it."""
        self.rows = rows
        """Number of rows."""
        self._load = load
        self._all_rows = all_rows
        self._loaded: dict[str, Vec] = {}
        self._drawn: dict[str, Vec] = {}

    @staticmethod
    def of_block(block: pa.RecordBatch | pa.Table, columns: Mapping[str, t.DataType]) -> EvaluationContext:
        """All rows of `block`, whose columns are in storage form."""

        def load(name: str) -> Vec:
            at = block.schema.get_field_index(name)
            if at < 0:
                raise error("NOT_FOUND_COLUMN_IN_BLOCK", f"Not found column {name} in block")
            return from_arrow(block.column(at), columns[name])

        return EvaluationContext(block.num_rows, load)

    def column(self, name: str) -> Vec:
        """The column called `name`."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def narrowed(self, keep: npt.NDArray[np.int64]) -> EvaluationContext:
        """Only the rows at positions `keep`; columns are gathered on first use."""
        return EvaluationContext(len(keep), lambda name: self.column(name).filter(keep), (self, keep))

    def drawn(self, name: str, draw: Callable[[int], Data]) -> Vec:
        """Random values called `name`, drawn once for all rows: a row has the same value in every narrowed context."""
        if name not in self._drawn:
            if self._all_rows is None:
                self._drawn[name] = Vec(draw(self.rows))
            else:
                rows, keep = self._all_rows
                self._drawn[name] = Vec(take(rows.drawn(name, draw).data, keep))
        return self._drawn[name]

    def eval(self, node: BoundNode) -> Vec:
        """The values of `node` on these rows; a constant has one row."""
        if isinstance(node, BoundCall):
            return node.run(self)
        if isinstance(node, BoundColumn):
            return self.column(node.name)
        return constant_vec(node.value, node.type)

    def mask(self, node: BoundNode) -> npt.NDArray[np.bool_]:
        """Where the condition `node` holds, one flag per row; false for NULL."""
        vec = self.eval(node)
        flags = truth(vec.data)
        if vec.valid is not None:
            flags = flags & vec.valid
        if vec.codes is not None:
            return flags[vec.codes]
        return flags if len(flags) == self.rows else np.broadcast_to(flags, (self.rows,))


def truth(data: Data) -> npt.NDArray[np.bool_]:
    """Data of a condition as flags: zero is false."""
    if isinstance(data, np.ndarray):
        return data if data.dtype == np.bool_ else np.asarray(data != 0, dtype=np.bool_)
    if pa.types.is_null(data.type):
        return np.zeros(len(data), np.bool_)
    return mask_array(data)


def walk(node: BoundNode) -> Iterator[BoundNode]:
    """`node` and all below it, parents first."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        if isinstance(current, BoundCall):
            waiting += reversed(current.args)


def columns_of(node: BoundNode) -> tuple[str, ...]:
    """Names of the columns that `node` reads, each once, in order of appearance."""
    return tuple(dict.fromkeys(n.name for n in walk(node) if isinstance(n, BoundColumn)))


def conjuncts(node: BoundNode) -> tuple[BoundNode, ...]:
    """The conditions that all must hold: `a AND (b AND c)` gives a, b, c; anything else is one condition."""
    if isinstance(node, BoundCall) and node.function == "and":
        return tuple(piece for arg in node.args for piece in conjuncts(arg))
    return (node,)


def unbind(node: BoundNode) -> SyntaxNode:
    """The syntax tree that binds to `node`; its text can be read by people and by ClickHouse."""
    from mergelake.core.convert.text_write import literal_text

    match node:
        case BoundColumn(name):
            return ColumnRef(name)
        case BoundCall(function, args):
            return Call(function, tuple(unbind(arg) for arg in args))
        case BoundLiteral(value, data_type):
            plain = t.inner_type(data_type)
            if value is None:
                return Literal(None, t.Nullable(t.Nothing()))
            if isinstance(plain, t.Tuple):
                pairs = zip(value, plain.elements, strict=True)
                return Call("tuple", tuple(unbind(BoundLiteral(v, e)) for v, e in pairs))
            if isinstance(plain, t.Array):
                return Call("array", tuple(unbind(BoundLiteral(v, plain.inner)) for v in value))
            if isinstance(plain, t.Interval):
                return Call(f"toInterval{plain.unit}", (Literal(value, t.Int(64, signed=True)),))
            if isinstance(plain, (t.Int, t.Float, t.Bool, t.String, t.FixedString)):
                return Literal(value, plain)
            return Literal(literal_text(value, plain).encode(), t.STRING)


def unbind_typed(literal: BoundLiteral) -> SyntaxNode:
    """As `unbind`, but the tree binds to a literal of the same plain type in any context."""
    plain, value = t.inner_type(literal.type), literal.value
    if value is not None and isinstance(plain, t.Tuple):
        pairs = zip(value, plain.elements, strict=True)
        return Call("tuple", tuple(unbind_typed(BoundLiteral(v, e)) for v, e in pairs))
    if value is not None and isinstance(plain, t.Array):
        return Call("array", tuple(unbind_typed(BoundLiteral(v, plain.inner)) for v in value))
    shown = unbind(literal)
    if value is None or not isinstance(shown, Literal) or shown.type == plain:
        return shown
    return Call("CAST", (shown, Literal(str(plain).encode(), t.STRING)))
