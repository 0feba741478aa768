"""AND, OR, NOT, XOR in three-valued logic, evaluated only as far as needed.

AND evaluates later conditions only on the rows that earlier ones left, so a costly LIKE runs on fewer rows, and
`x != 0 AND 10 % x = 1` never divides by zero. If no condition can raise, the cheapest run first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mergelake.core.types import types as t
from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode, EvaluationContext, truth
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal, special
from mergelake.expr.values import Vec

_GATHER_COST = 4
"""Rough nanoseconds that narrowing costs per surviving row and column."""


def _check(name: str, types: list[t.DataType]) -> t.DataType:
    plain = [t.inner_type(kind) for kind in types]
    if any(not isinstance(kind, (t.Int, t.Float, t.Bool, t.Nothing)) for kind in plain):
        raise illegal(name, *types)
    return t.Bool() if any(isinstance(kind, t.Bool) for kind in types) else t.UINT8


def _connective(name: str, decides: bool) -> None:
    @special(name, 2, 1 << 20)
    def rule(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
        result = _check(name, [arg.type for arg in args])
        if any(t.is_nullable(arg.type) for arg in args):
            result = t.Nullable(result)
        return Resolved(result, run=_lazy(args, decides))


_connective("and", decides=False)
_connective("or", decides=True)


def _lazy(args: tuple[BoundNode, ...], decides: bool) -> Callable[[EvaluationContext], Vec]:
    """A run that skips later arguments on rows where an earlier one has the value `decides`."""
    raising = any(isinstance(arg, BoundCall) and arg.can_raise for arg in args)
    # A constant may decide alone, so it goes first; otherwise the stable sort keeps the given order.
    order = tuple(sorted(args, key=(lambda arg: not isinstance(arg, BoundLiteral)) if raising else _cost))

    def run(ctx: EvaluationContext) -> Vec:
        here, rows = ctx, ctx.rows
        positions: npt.NDArray[np.int64] | None = None  # of the current rows; None for all
        undecided = np.ones(rows, np.bool_)
        unknown: npt.NDArray[np.bool_] | None = None
        for i, arg in enumerate(order):
            if i:
                survivors = int(np.count_nonzero(undecided))
                if survivors == 0:
                    break
                if survivors < here.rows and _worth(arg, survivors, here.rows):
                    at = np.flatnonzero(undecided)
                    positions = at if positions is None else positions[at]
                    here, undecided = ctx.narrowed(positions), np.ones(survivors, np.bool_)
                    unknown = None if unknown is None else unknown[at]
            flags, valid = _flags(here, arg)
            if valid is None:
                undecided &= flags != decides
            else:
                undecided &= (flags != decides) | ~valid
                unknown = ~valid if unknown is None else unknown | ~valid
        return _result(rows, positions, undecided, unknown, decides)

    return run


def _result(
    rows: int,
    positions: npt.NDArray[np.int64] | None,
    undecided: npt.NDArray[np.bool_],
    unknown: npt.NDArray[np.bool_] | None,
    decides: bool,
) -> Vec:
    """The result: undecided rows are the opposite of `decides`, or NULL where an argument was NULL."""
    if positions is None:
        flags = ~undecided if decides else undecided
        return Vec(flags, None if unknown is None else ~(unknown & undecided))
    flags = np.full(rows, decides)
    flags[positions[undecided]] = not decides
    if unknown is None:
        return Vec(flags)
    valid = np.ones(rows, np.bool_)
    valid[positions[undecided & unknown]] = False
    return Vec(flags, valid)


def _flags(ctx: EvaluationContext, node: BoundNode) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_] | None]:
    vec = ctx.eval(node)
    flags, valid = truth(vec.data), vec.valid
    if vec.codes is not None:
        return flags[vec.codes], None if valid is None else valid[vec.codes]
    if len(flags) != ctx.rows:
        flags = np.broadcast_to(flags, (ctx.rows,))
        valid = None if valid is None else np.broadcast_to(valid, (ctx.rows,))
    return flags, valid


def _cost(node: BoundNode) -> int:
    return node.cost if isinstance(node, BoundCall) else 0


def _worth(node: BoundNode, survivors: int, rows: int) -> bool:
    if isinstance(node, BoundCall) and node.can_raise:
        return True
    return _cost(node) * (rows - survivors) > _GATHER_COST * survivors


@function("not", 1, any_case=True)
def _not(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    return Resolved(_check("not", [args[0].type]), lambda x: ~truth(x))


@function("xor", 2, any_case=True)
def _xor(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    return Resolved(_check("xor", [arg.type for arg in args]), lambda x, y: truth(x) ^ truth(y))
