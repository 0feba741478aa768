"""round, floor, ceil and trunc of numbers to digits after (or before) the decimal point; identity and ignore.

The result has the argument's type. Source: ClickHouse, `src/Functions/FunctionsRound.h`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.expr.bound import BoundNode
from mergelake.expr.evaluate import Kernel
from mergelake.expr.functions import casts
from mergelake.expr.functions.arithmetic import as_int
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal, special
from mergelake.expr.values import Vec

_Numbers = npt.NDArray[Any]


_ROUNDINGS: dict[str, tuple[np.ufunc, Callable[[_Numbers, int], _Numbers], str]] = {
    "round": (np.rint, lambda data, step: np.where(data < 0, data - step, data), ""),
    "floor": (np.floor, lambda data, step: np.where(data < 0, data - (step - 1), data), ""),
    "ceil": (np.ceil, lambda data, step: np.where(data < 0, data, data + (step - 1)), "ceiling"),
    "trunc": (np.trunc, lambda data, step: data, "truncate"),
}
"""Name -> (ufunc for floats, how integers are prepared before truncation to a multiple of the step, alias)."""


def _to_step(prepared: _Numbers, step: int, half: int, whole: t.Int) -> _Numbers:
    """Python ints plus `half`, truncated towards zero to a multiple of `step`; beyond the type's range they wrap.

    `prepared` wraps in the number's own type, its sum with `half` in a type of at least 32 bits.
    """
    summed = t.Int(32, signed=True) if whole.bits < 32 else whole
    data = casts.wrap(casts.wrap(prepared, whole).astype(object) + half, summed).astype(object)
    cut = abs(data) // step * step
    return casts.wrap(np.where(data < 0, -cut, cut), whole)


def _rounding(name: str) -> None:
    of_floats, of_whole, alias = _ROUNDINGS[name]

    @function(name, 1, 2, any_case=True, aliases=(alias,) if alias else ())
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        kind = args[0].type
        digits = args[1].value if len(args) > 1 else 0
        if not isinstance(digits, int) or not isinstance(kind, (t.Decimal, t.Int, t.Float, t.Bool)):
            if len(args) > 1 and not args[1].is_constant:
                raise error("NOT_IMPLEMENTED", f"The number of digits of {name} must be constant")
            raise illegal(name, *(arg.type for arg in args))
        if not -(1 << 15) <= digits < 1 << 15:
            raise error("ARGUMENT_OUT_OF_BOUND", f"Scale argument for function {name} is too large")
        if isinstance(kind, t.Float):
            return Resolved(kind, _of_floats(of_floats, digits, kind), cost=5)
        kept = kind.scale if isinstance(kind, t.Decimal) else 0
        if digits >= kept:
            return Resolved(kind, lambda data, *_: data)
        step, dtype, whole = 10 ** (kept - digits), _dtype(kind), _whole_type(kind)
        half = step // 2 if name == "round" else 0

        def to_step(data: _Numbers, *_: object) -> _Numbers:
            return _to_step(of_whole(data.astype(object), step), step, half, whole).astype(dtype)

        return Resolved(kind, to_step, cost=50)


def _of_floats(ufunc: np.ufunc, digits: int, kind: t.Float) -> Kernel:
    dtype = casts.number_dtype(kind)
    scale = dtype.type(10.0 ** abs(digits)) if abs(digits) < 300 else dtype.type(np.inf)

    def kernel(data: _Numbers, *_: object) -> _Numbers:
        with np.errstate(all="ignore"):
            if digits == 0:
                return np.asarray(ufunc(data))
            rounded = ufunc(data * scale) / scale if digits > 0 else ufunc(data / scale) * scale
            return np.asarray(rounded, dtype)

    return kernel


def _dtype(kind: t.DataType) -> np.dtype[Any]:
    wide = isinstance(kind, (t.Int, t.Decimal)) and kind.bits > 64
    return np.dtype(object) if wide else casts.number_dtype(kind)


def _whole_type(kind: t.DataType) -> t.Int:
    if isinstance(kind, t.Decimal):
        return t.Int(kind.bits, signed=True)
    number = as_int(kind)
    return number if isinstance(number, t.Int) else t.Int(8, signed=False)


for _name in _ROUNDINGS:
    _rounding(_name)


@special("identity", 1)
def _identity(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    value = args[0]
    return Resolved(value.type, run=lambda ctx: ctx.eval(value))


@special("ignore", 0, 1 << 20)
def _ignore(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    """Zero, whatever the arguments; a constant only if they are constants."""
    return Resolved(t.UINT8, run=lambda ctx: Vec(np.zeros(ctx.rows, np.uint8)))
