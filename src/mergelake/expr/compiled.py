"""Compiling the text of an expression for evaluation: `compile_expression(text, columns)`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.types.types import DataType
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundNode, EvaluationContext, columns_of
from mergelake.expr.parser import parse
from mergelake.expr.registry import Seed
from mergelake.expr.values import to_arrow


class Compiled:
    """An expression over blocks whose columns have known types.

    Pickled as its text, without the seed: an expression that draws random values cannot be sent to another process,
    which would draw the same ones.
    """

    __slots__ = ("_now_ms", "columns", "node", "text", "type", "types")

    def __init__(self, text: str, schema: Mapping[str, DataType], node: BoundNode, now_ms: int | None) -> None:
        self.text = text
        """The text as given."""
        self.node = node
        """The typed tree."""
        self.type: DataType = node.type
        """Type of the values."""
        self.columns: tuple[str, ...] = columns_of(node)
        """Names of the columns that it reads."""
        self.types = {name: schema[name] for name in self.columns}
        """Types of these columns."""
        self._now_ms = now_ms

    def __reduce__(self) -> tuple[object, ...]:
        return compile_expression, (self.text, self.types, self._now_ms)

    def __repr__(self) -> str:
        return f"Compiled({self.text!r}: {self.type})"

    def evaluate(self, block: pa.RecordBatch | pa.Table) -> pa.Array:
        """The value for each row of `block` (columns in storage form), itself in the storage form of `type`."""
        context = EvaluationContext.of_block(block, self.types)
        return to_arrow(context.eval(self.node), self.type, block.num_rows)

    def mask(self, block: pa.RecordBatch | pa.Table) -> npt.NDArray[np.bool_]:
        """As a condition: one flag for each row, false where the value is zero or NULL."""
        return EvaluationContext.of_block(block, self.types).mask(self.node)


def compile_expression(
    text: str, columns: Mapping[str, DataType], now_ms: int | None = None, seed: Seed | None = None
) -> Compiled:
    """Parse and bind `text` over `columns`.

    `now_ms` is the time of now() and today() in milliseconds since the epoch; without it they are refused. Without
    `seed`, rand() and similar functions are refused. Raises SYNTAX_ERROR, TOO_DEEP_RECURSION, UNKNOWN_FUNCTION,
    UNKNOWN_IDENTIFIER, ILLEGAL_TYPE_OF_ARGUMENT and what folding constants raises.
    """
    try:
        return Compiled(text, columns, bind(parse(text), columns, now_ms, seed), now_ms)
    except RecursionError:  # a CASE of a thousand branches is a thousand nested calls
        raise error("TOO_DEEP_RECURSION", "The expression is nested too deeply", "Write it flatter") from None
