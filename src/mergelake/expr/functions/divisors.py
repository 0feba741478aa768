"""gcd, lcm and positiveModulo. Source: ClickHouse, `src/Functions/GCDLCMImpl.h`, `src/Functions/modulo.cpp`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.expr.functions.arithmetic import as_int, float_rest, refuse_division, rest, wrap
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal


def _integers(name: str, args: tuple[Operand, ...]) -> tuple[t.Int, t.Int]:
    a, b = (as_int(arg.type) for arg in args)
    if not isinstance(a, t.Int) or not isinstance(b, t.Int):
        raise illegal(name, *(arg.type for arg in args))
    return a, b


def _common(name: str, ufunc: np.ufunc) -> None:
    @function(name, 2)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        a, b = _integers(name, args)
        if max(a.bits, b.bits) > 64:
            raise error("NOT_IMPLEMENTED", f"{name} of integers of more than 64 bits is not supported")
        result = t.Int(min(64, 2 * max(a.bits, b.bits)), a.signed or b.signed)
        dtype = np.dtype(f"{'i' if result.signed else 'u'}{result.bits // 8}")

        def kernel(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
            for one, other in ((x, y), (y, x)):
                refuse_division(one, other)
            x, y = x.astype(dtype), y.astype(dtype)
            lowest = np.iinfo(dtype).min
            if result.signed and any(bool((each == lowest).any()) for each in (x, y)):
                raise error("DECIMAL_OVERFLOW", f"Intermediate result overflow in {name}: {lowest} has no opposite")
            values = ufunc(x, y)
            if name == "lcm" and len(values) and bool((values // y * y != values).any() | (values < 0).any()):
                raise error("DECIMAL_OVERFLOW", "Intermediate result overflow in lcm")
            return np.asarray(values)

        return Resolved(result, kernel, can_raise=True, cost=50)


_common("gcd", np.gcd)
_common("lcm", np.lcm)


@function("positiveModulo", 2, aliases=("positive_modulo", "pmod"))
def _positive_modulo(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    a, b = (as_int(arg.type) for arg in args)
    if a is None or b is None:
        raise illegal("positiveModulo", *(arg.type for arg in args))
    if isinstance(a, t.Float) or isinstance(b, t.Float):

        def of_floats(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
            remainder = float_rest(x, y)
            return np.where(remainder < 0, remainder + np.abs(y.astype(np.float64)), remainder)

        return Resolved(t.Float(64), of_floats, cost=10)
    bits, signed = b.bits, t.Int(min(256, 2 * b.bits), signed=True)

    def kernel(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        refuse_division(x, y)
        remainder = rest(x, y, signed if a.signed else t.Int(bits, signed=False))
        if not a.signed:
            return remainder
        size = abs(y.astype(remainder.dtype))
        return wrap(np.where(remainder < 0, remainder + size, remainder), bits, signed=False)

    never = args[1].is_constant and args[1].value not in (0, -1, None)
    return Resolved(t.Int(bits, signed=False), kernel, can_raise=not never, cost=8)
