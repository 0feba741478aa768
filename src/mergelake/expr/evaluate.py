"""Evaluating a bound tree over a block: each column is loaded once, and rows can be narrowed to some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.expr.bound import BoundCall, BoundColumn, BoundLiteral, BoundNode
from mergelake.expr.values import Data, Vec, constant_vec, from_arrow, mask_array, storage_value, take


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


Kernel = Callable[..., Data]
"""Takes and returns plain data; lengths are equal or 1."""


def propagating(kernel: Kernel, args: tuple[BoundNode, ...], *, can_raise: bool) -> Callable[[EvaluationContext], Vec]:
    """A run of `kernel` as for most functions: NULL in, NULL out; a single dictionary is computed on directly.

    If values can raise, `kernel` gets only values of rows that are not NULL, and no unused dictionary values.
    """
    if len(args) == 1 and not can_raise:
        only = args[0]

        def run_one(ctx: EvaluationContext) -> Vec:
            vec = ctx.eval(only)
            return Vec(kernel(vec.data), vec.valid, vec.codes)

        return run_one

    def run(ctx: EvaluationContext) -> Vec:
        vecs = [ctx.eval(arg) for arg in args]
        coded = [vec for vec in vecs if vec.codes is not None]
        codes = None
        if coded:
            others_constant = all(vec.codes is not None or vec.rows == 1 for vec in vecs)
            same = all(vec.codes is coded[0].codes for vec in coded)
            if not can_raise and others_constant and same and (len(vecs) == 1 or len(coded[0].data) > 0):
                codes = coded[0].codes
            else:
                vecs = [vec.decoded() for vec in vecs]
        valid = joint_validity(vecs)
        if valid is None or not can_raise:
            return Vec(kernel(*(vec.data for vec in vecs)), valid, codes)
        return _on_valid_rows(kernel, vecs, valid)

    return run


def joint_validity(vecs: list[Vec]) -> npt.NDArray[np.bool_] | None:
    """Flags, true where no Vec is NULL; None if there is no NULL."""
    valid = None
    length = max((len(vec.data) for vec in vecs), default=0)
    if any(len(vec.data) == 0 for vec in vecs):
        length = 0
    for vec in vecs:
        if vec.valid is not None:
            valid = vec.valid if valid is None else valid & vec.valid
    if valid is not None and len(valid) != length:
        valid = np.broadcast_to(valid, (length,)) if len(valid) == 1 else valid[:length]
    return valid


def _on_valid_rows(kernel: Kernel, vecs: list[Vec], valid: npt.NDArray[np.bool_]) -> Vec:
    keep = np.flatnonzero(valid)
    rows = len(valid)
    result = kernel(*(vec.data if vec.rows != rows else vec.filter(keep).data for vec in vecs))
    if len(keep) == 0 and len(result) == 0:
        return Vec(result, None) if rows == 0 else Vec(empty_like(result, rows), valid)
    if len(result) == 1 and len(keep) != 1:
        return Vec(Vec(result).broadcast(rows).data, valid)
    back = np.zeros(rows, np.int64)
    back[keep] = np.arange(len(keep))
    return Vec(Vec(result).filter(back).data, valid)


def empty_like(data: Data, rows: int) -> Data:
    """`rows` zeros of the dtype of `data`, or NULLs of its Arrow type."""
    if isinstance(data, np.ndarray):
        return np.zeros(rows, data.dtype)
    return pa.nulls(rows, data.type)


def evaluate_constant(node: BoundCall) -> BoundLiteral:
    """The value of a call of constants, as a literal."""
    return BoundLiteral(storage_value(node.run(_NO_ROWS), node.type), node.type)


def _no_columns(name: str) -> Vec:
    raise error("UNKNOWN_IDENTIFIER", f"Unknown identifier {name} in a constant expression")


_NO_ROWS = EvaluationContext(1, _no_columns)
