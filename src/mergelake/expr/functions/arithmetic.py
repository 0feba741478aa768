"""Numbers: `+ - * /`, intDiv, modulo, negate, abs, with ClickHouse's result types and wrap-around.

Result types follow ClickHouse, `src/DataTypes/NumberTraits.h`: sums and products take the next wider type,
so UInt8 + UInt8 is UInt16, a difference is signed, and only results of 64 bits or more wrap. Decimals are in
`decimals`, dates and intervals in `date_arithmetic`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.expr.evaluate import Kernel
from mergelake.expr.functions import casts, date_arithmetic, decimals
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal

_UFUNCS = {"plus": np.add, "minus": np.subtract, "multiply": np.multiply}


def as_int(data_type: t.DataType) -> t.Int | t.Float | None:
    """The type as a number type: Bool counts as UInt8; None for a type that is not a number."""
    if isinstance(data_type, t.Bool):
        return t.Int(8, signed=False)
    return data_type if isinstance(data_type, (t.Int, t.Float)) else None


def dtype_of(number: t.Int | t.Float) -> np.dtype[Any]:
    """The numpy dtype of a number's data; object beyond 64 bits."""
    return np.dtype(object) if number.bits > 64 else casts.number_dtype(number)


def wrap(data: npt.NDArray[Any], bits: int, signed: bool) -> npt.NDArray[Any]:
    """Integers truncated to `bits` in two's complement; object arrays hold Python ints."""
    return casts.wrap(data, t.Int(bits, signed))


def _next(bits: int) -> int:
    return bits * 2 if bits < 64 else bits


def _construct(signed: bool, floating: bool, bits: int) -> t.Int | t.Float:
    if floating:
        return t.Float(64 if bits >= 64 else 32)
    return t.Int(bits, signed)


def _signed(number: t.Int | t.Float) -> bool:
    return isinstance(number, t.Float) or number.signed


def _either(a: t.Int | t.Float, b: t.Int | t.Float) -> tuple[bool, bool]:
    return _signed(a) or _signed(b), isinstance(a, t.Float) or isinstance(b, t.Float)


def _numbers(name: str, args: tuple[Operand, ...]) -> tuple[t.Int | t.Float, ...]:
    numbers = tuple(as_int(arg.type) for arg in args)
    if any(number is None for number in numbers):
        raise illegal(name, *(arg.type for arg in args))
    return tuple(number for number in numbers if number is not None)


def _additive(name: str, args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    kinds = [arg.type for arg in args]
    if name != "multiply" and any(date_arithmetic.is_date(kind) for kind in kinds):
        return date_arithmetic.additive(name, args, environment)
    if name == "multiply" and any(isinstance(kind, t.Interval) for kind in kinds):
        return date_arithmetic.scaled_interval(args)
    if any(isinstance(kind, t.Decimal) for kind in kinds):
        return decimals.binary(name, args)
    a, b = _numbers(name, args)
    signed, floating = _either(a, b)
    result = _construct(signed or name == "minus", floating, _next(max(a.bits, b.bits)))
    return Resolved(result, _wrapping(_UFUNCS[name], result))


def _wrapping(ufunc: np.ufunc, result: t.Int | t.Float) -> Kernel:
    if isinstance(result, t.Int) and result.bits > 64:
        bits, signed = result.bits, result.signed
        return lambda x, y: wrap(ufunc(x.astype(object), y.astype(object)), bits, signed)
    dtype = dtype_of(result)

    def kernel(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with np.errstate(all="ignore"):
            values: npt.NDArray[Any] = ufunc(x, y, dtype=dtype, casting="unsafe")
            return values

    return kernel


@function("plus", 2)
def _plus(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    return _additive("plus", args, environment)


@function("minus", 2)
def _minus(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    return _additive("minus", args, environment)


@function("multiply", 2)
def _multiply(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    return _additive("multiply", args, environment)


@function("divide", 2)
def _divide(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    if any(isinstance(arg.type, t.Decimal) for arg in args):
        return decimals.binary("divide", args)
    _numbers("divide", args)

    def kernel(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with np.errstate(all="ignore"):
            return np.asarray(np.divide(x.astype(np.float64), y.astype(np.float64)))

    return Resolved(t.Float(64), kernel, cost=2)


def refuse_division(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> None:
    """Raise ILLEGAL_DIVISION where `x` cannot be divided by `y`: by zero, or the least number by -1."""
    if len(x) == 0 or len(y) == 0:
        return
    if bool((y == 0).any()):
        raise error("ILLEGAL_DIVISION", "Division by zero")
    if x.dtype.kind == "i" and y.dtype.kind == "i" and bool((y == -1).any()):
        lowest = np.iinfo(x.dtype).min
        if bool(((x == lowest) & (y == -1)).any()):
            raise error("ILLEGAL_DIVISION", "Division of minimal signed number by minus one")


def _common_integers(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Both arrays as converted for the division, by C++'s rules as ClickHouse applies them."""
    if x.dtype == object or y.dtype == object:
        return x.astype(object), y.astype(object)
    if x.dtype.kind == y.dtype.kind == "u":
        return x, y
    width = x.dtype.itemsize
    x = x.view(f"i{width}")
    y = y.view(f"i{y.dtype.itemsize}") if width <= y.dtype.itemsize else y.astype(f"i{width}")
    return x, y


def _magnitude(data: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Absolute values as UInt64, also of the least Int64."""
    wide = data.astype(np.uint64)
    return np.where(data < 0, -wide, wide) if data.dtype.kind == "i" else wide


@function("intDiv", 2)
def _int_div(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    a, b = _numbers("intDiv", args)
    signed, floating = _either(a, b)
    result = t.Int(a.bits, signed)

    def kernel(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        refuse_division(x, y)
        if floating:
            with np.errstate(all="ignore"):
                quotient = np.trunc(x.astype(np.float64) / y.astype(np.float64))
            return _float_to_int(quotient, result)
        if signed and object in (x.dtype, y.dtype):  # a wide unsigned number beside a signed one wraps around
            x, y = wrap(x.astype(object), a.bits, signed=True), wrap(y.astype(object), max(a.bits, b.bits), signed=True)
        x, y = _common_integers(x, y)
        quotient = x // y
        if signed:
            quotient = quotient + ((x % y != 0) & ((x < 0) != (y < 0)))
        return wrap(quotient, result.bits, result.signed)

    never = args[1].is_constant and args[1].value not in (0, -1, None)
    return Resolved(result, kernel, can_raise=not never or floating, cost=5)


def _float_to_int(data: npt.NDArray[Any], result: t.Int) -> npt.NDArray[Any]:
    if not bool(np.isfinite(data).all()):
        raise error(
            "ILLEGAL_DIVISION", "Cannot perform integer division, because it will produce infinite or too large number"
        )
    limit = float(1 << (result.bits - result.signed))
    if bool(((data >= limit) | (data < (-limit if result.signed else 0))).any()):
        raise error(
            "ILLEGAL_DIVISION", "Cannot perform integer division, because it will produce infinite or too large number"
        )
    return data.astype(dtype_of(result))


def _rest_type(a: t.Int | t.Float, b: t.Int | t.Float, *, legacy: bool) -> t.Int:
    """The type of a remainder; by the `legacy` rule it is always as wide as the divisor."""
    if legacy:
        return t.Int(b.bits, _signed(a) or _signed(b))
    return t.Int(_next(b.bits) if _signed(a) else b.bits, _signed(a))


def rest(x: npt.NDArray[Any], y: npt.NDArray[Any], result: t.Int) -> npt.NDArray[Any]:
    """The remainder of a division that truncates towards zero; it has the sign of `x`."""
    if x.dtype == object or y.dtype == object:
        x, y = x.astype(object), y.astype(object)
        size = abs(x) % abs(y)
        return wrap(np.where(x < 0, -size, size), result.bits, result.signed)
    if x.dtype.kind == y.dtype.kind or max(x.dtype.itemsize, y.dtype.itemsize) < 8:
        return wrap(np.fmod(x, y), result.bits, result.signed)
    # Int64 and UInt64 have no common integer type; their magnitudes are both UInt64.
    magnitude = np.fmod(_magnitude(x), _magnitude(y)).view(np.int64)
    return wrap(np.where(x < 0, -magnitude, magnitude), result.bits, result.signed)


def promoted(a: t.Int, b: t.Int) -> t.Int:
    """The type in which C++ divides an `a` by a `b`, whether or not it holds the values of both."""
    if b.bits > 64 and a.bits <= b.bits:
        return b
    if a.bits > 64:
        return a
    bits = max(a.bits, b.bits, 32)
    return t.Int(bits, all(kind.signed or kind.bits < bits for kind in (a, b)))


def float_rest(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The remainder of a division of floats."""
    with np.errstate(all="ignore"):
        x, y = x.astype(np.float64), y.astype(np.float64)
        return np.asarray(x - np.trunc(x / y) * y)  # as ClickHouse computes it, not fmod


def _modulo(name: str, *aliases: str, legacy: bool = False) -> None:
    """Register a modulo function; `legacy` is the one of partition keys, with the older result type and C++'s rules."""

    @function(name, 2, aliases=aliases)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        a, b = _numbers(name, args)
        if _either(a, b)[1]:
            return Resolved(t.Float(64), float_rest, cost=10)
        result = _rest_type(a, b, legacy=legacy)
        common = promoted(a, b) if legacy and isinstance(a, t.Int) and isinstance(b, t.Int) else None

        def kernel(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
            refuse_division(x, y)
            if common is not None:
                x, y = casts.wrap(x, common), casts.wrap(y, common)
            return rest(x, y, result)

        never = args[1].is_constant and args[1].value not in (0, -1, None)
        return Resolved(result, kernel, can_raise=not never, cost=5)


_modulo("modulo", "mod")
_modulo("moduloLegacy", legacy=True)


@function("negate", 1)
def _negate(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    if isinstance(args[0].type, t.Decimal):
        return Resolved(args[0].type, np.negative)
    if isinstance(args[0].type, t.Interval):
        return Resolved(args[0].type, np.negative)
    (a,) = _numbers("negate", args)
    result = a if isinstance(a, t.Float) else t.Int(a.bits if a.signed else _next(a.bits), signed=True)
    if isinstance(result, t.Int) and result.bits > 64:
        bits = result.bits
        return Resolved(result, lambda x: wrap(-x, bits, signed=True))
    dtype = dtype_of(result)
    return Resolved(result, lambda x: np.negative(x.astype(dtype)))


@function("abs", 1, any_case=True)
def _abs(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    if isinstance(args[0].type, t.Decimal):
        return Resolved(args[0].type, np.abs)
    (a,) = _numbers("abs", args)
    if isinstance(a, t.Float) or not a.signed:
        return Resolved(a, np.abs)
    result = t.Int(a.bits, signed=False)
    return Resolved(result, lambda x: wrap(np.abs(x), result.bits, signed=False))


def _is_a(name: str, test: np.ufunc, of_integers: int) -> None:
    @function(name, 1)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        (kind,) = _numbers(name, args)
        if isinstance(kind, t.Float):
            return Resolved(t.UINT8, lambda x: test(x).astype(np.uint8))
        return Resolved(t.UINT8, lambda x: np.full(len(x), of_integers, np.uint8))


_is_a("isNaN", np.isnan, 0)
_is_a("isInfinite", np.isinf, 0)
_is_a("isFinite", np.isfinite, 1)


def _bitwise(name: str, ufunc: np.ufunc) -> None:
    @function(name, 2)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        a, b = _numbers(name, args)
        signed, floating = _either(a, b)
        if floating:
            raise illegal(name, *(arg.type for arg in args))
        return Resolved(t.Int(max(a.bits, b.bits), signed), _wrapping(ufunc, t.Int(max(a.bits, b.bits), signed)))


for _name, _ufunc in (("bitAnd", np.bitwise_and), ("bitOr", np.bitwise_or), ("bitXor", np.bitwise_xor)):
    _bitwise(_name, _ufunc)
