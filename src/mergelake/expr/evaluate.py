"""Evaluating a bound tree over a block: each column is loaded once, and rows can be narrowed to some of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode, EvaluationContext
from mergelake.expr.values import Data, Vec, storage_value

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
