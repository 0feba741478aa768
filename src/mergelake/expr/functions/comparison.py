"""`= != < <= > >=`: exact across signs and between integers and floats; string literals take the other side's type.

Source: ClickHouse, `src/Functions/FunctionsComparison.h`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.convert.text_read import read_text
from mergelake.core.types import types as t
from mergelake.expr.bound import BoundLiteral, BoundNode
from mergelake.expr.evaluate import Kernel
from mergelake.expr.functions import casts
from mergelake.expr.functions.decimals import scale_of, to_float
from mergelake.expr.nodes import Literal
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal
from mergelake.expr.supertype import common_type
from mergelake.expr.values import mask_array, python_value

_OPERATORS: dict[str, tuple[np.ufunc, Callable[..., Any]]] = {
    "equals": (np.equal, pc.equal),
    "notEquals": (np.not_equal, pc.not_equal),
    "less": (np.less, pc.less),
    "lessOrEquals": (np.less_equal, pc.less_equal),
    "greater": (np.greater, pc.greater),
    "greaterOrEquals": (np.greater_equal, pc.greater_equal),
}
FLIPPED = {
    "equals": "equals",
    "notEquals": "notEquals",
    "less": "greater",
    "lessOrEquals": "greaterOrEquals",
    "greater": "less",
    "greaterOrEquals": "lessOrEquals",
}
"""The equivalent comparison with both sides exchanged."""

_TEXT = (t.String, t.FixedString)
_NUMBER = (t.Int, t.Float, t.Bool)
_DATES = (t.Date, t.Date32, t.DateTime, t.DateTime64)
_RESULT = t.UINT8
_LAST_MIDNIGHT = 49709
"""2106-02-06 in days: the last whole day of DateTime, to which ClickHouse clamps later dates when it compares."""


def read_constant(text: bytes, target: t.DataType) -> pa.Array:
    """The one value of `target` that a string constant spells. Raises ClickHouse's parse errors."""
    if isinstance(target, (t.Date, t.Date32)) and len(text) > len("2020-01-01"):
        raise error("TYPE_MISMATCH", f"Cannot convert string {Literal(text, t.STRING)} to type {target}")
    return read_text(pa.array([text], pa.binary()), target)


def parse_literal(node: BoundNode, target: t.DataType) -> BoundLiteral:
    """A string literal as a literal of `target`. Raises ClickHouse's parse errors."""
    if not isinstance(node, BoundLiteral):
        raise error("ILLEGAL_TYPE_OF_ARGUMENT", "Expected a constant")
    try:
        parsed = read_constant(node.value, target)
    except MergelakeError as failure:
        if failure.name not in ("CANNOT_PARSE_TEXT", "CANNOT_PARSE_NUMBER", "ATTEMPT_TO_READ_AFTER_EOF"):
            raise
        raise error("TYPE_MISMATCH", f"Cannot convert the string {node} to type {target}") from failure
    return BoundLiteral(python_value(parsed[0], target), target)


def _rule(name: str) -> Callable[[tuple[Operand, ...], BindingEnvironment], Resolved]:
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        left, right = args
        if isinstance(left.type, t.Tuple) and isinstance(right.type, t.Tuple):
            return Resolved(_RESULT, node=_tuples(name, left, right, environment))
        for side, other in ((left, right), (right, left)):
            if side.is_constant and isinstance(side.type, _TEXT) and not isinstance(other.type, _TEXT):
                literal = parse_literal(side.node, other.type)
                parsed = Operand(literal.type, literal)
                left, right = (parsed, other) if side is args[0] else (other, parsed)
                break
        kernel, cost = _kernel(name, left, right)
        return Resolved(_RESULT, kernel, cost=cost, args=(left.node, right.node))

    return rule


for _name in _OPERATORS:
    function(_name, 2)(_rule(_name))


def _kernel(name: str, left: Operand, right: Operand) -> tuple[Kernel, int]:
    a, b = left.type, right.type
    ufunc, arrow = _OPERATORS[name]
    if isinstance(a, _TEXT) and isinstance(b, _TEXT):
        return _texts(arrow, a, b), 5
    if isinstance(a, _NUMBER) and isinstance(b, _NUMBER):
        return _numbers(name, a, b, left, right), 1
    if isinstance(a, _DATES) and isinstance(b, _DATES):
        return _dates(ufunc, a, b), 1
    if isinstance(a, (t.UUID, t.IPv6)) and a == b:
        return _halves(name), 2
    if isinstance(a, (*_NUMBER, t.Decimal)) and isinstance(b, (*_NUMBER, t.Decimal)):
        return _decimals(ufunc, a, b), 3
    same = a == b and isinstance(a, (t.Enum, t.IPv4, t.Interval, t.Time, t.Time64))
    stamp = {type(a), type(b)} <= {t.DateTime, t.Int, t.Float} or {type(a), type(b)} <= {t.IPv4, t.Int}
    if same or stamp:
        return lambda x, y: ufunc(x, y), 1
    if isinstance(a, (t.Array, t.Map)) and type(a) is type(b):
        raise error("NOT_IMPLEMENTED", f"Comparing {a} with {b} is not supported")
    raise illegal(name, a, b)


def _numbers(name: str, a: t.DataType, b: t.DataType, left: Operand, right: Operand) -> Kernel:
    ufunc = _OPERATORS[name][0]
    wide = any(isinstance(kind, t.Int) and kind.bits > 64 for kind in (a, b))
    if wide:
        return lambda x, y: _objects(ufunc, x, y)
    mixed = isinstance(a, t.Float) != isinstance(b, t.Float)
    integer = b if isinstance(a, t.Float) else a
    if mixed and isinstance(integer, t.Int) and integer.bits == 64:
        if isinstance(a, t.Float):
            return lambda x, y: _int_float(FLIPPED[name], y, x)
        return lambda x, y: _int_float(name, x, y)
    if not mixed and isinstance(a, (t.Int, t.Bool)):
        # A constant in the column's own dtype saves widening the column.
        for constant, kind, flip in ((right, a, False), (left, b, True)):
            dtype = casts.number_dtype(kind)
            if constant.is_constant and constant.value is not None:
                info = np.iinfo(dtype)
                if info.min <= constant.value <= info.max:
                    fixed = dtype.type(constant.value)
                    if flip:
                        return lambda x, y: ufunc(fixed, y)
                    return lambda x, y: ufunc(x, fixed)
    return lambda x, y: ufunc(x, y)


def _objects(ufunc: np.ufunc, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        return np.asarray(ufunc(x.astype(object), y.astype(object)), dtype=np.bool_)


def _int_float(name: str, ints: npt.NDArray[Any], floats: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Exact comparison of 64-bit integers with floats: converted to floats, the integers would lose low bits."""
    ints, floats = np.broadcast_arrays(ints, floats.astype(np.float64))
    unsigned = ints.dtype.kind != "i"
    low, high = (0.0, 2.0**64) if unsigned else (-(2.0**63), 2.0**63)
    whole = np.floor(floats)
    inside = (whole >= low) & (whole < high)
    as_int = np.where(inside, whole, 0).astype(ints.dtype)
    order = np.where(ints < as_int, -1, np.where(ints > as_int, 1, np.where(floats > whole, -1, 0)))
    order = np.where(inside, order, np.where(floats < low, 1, -1))
    flags = np.asarray(_OPERATORS[name][0](order, 0))
    is_nan = np.isnan(floats)
    return np.where(is_nan, name == "notEquals", flags)


def _texts(arrow: Callable[..., Any], a: t.DataType, b: t.DataType) -> Kernel:
    def prepared(data: pa.Array, kind: t.DataType) -> pa.Array:
        # FixedString is compared without its padding.
        return strip_zeros(data) if isinstance(kind, t.FixedString) else data

    if a == b and isinstance(a, t.FixedString):
        return lambda x, y: mask_array(arrow(*scalars(x, y)))
    either = isinstance(a, t.FixedString) or isinstance(b, t.FixedString)
    if either:

        def padded(x: pa.Array, y: pa.Array) -> npt.NDArray[np.bool_]:
            return mask_array(arrow(*scalars(strip_zeros(prepared(x, a)), strip_zeros(prepared(y, b)))))

        return padded
    return lambda x, y: mask_array(arrow(*scalars(x, y)))


def strip_zeros(data: pa.Array) -> pa.Array:
    """Binary values without the zero bytes at their end."""
    if pa.types.is_fixed_size_binary(data.type):
        width = data.type.byte_width
        raw = np.frombuffer(data.buffers()[1] or b"", f"S{width}", count=len(data), offset=data.offset * width)
        stripped = pa.array(raw.tolist(), pa.binary())
        return stripped if not data.null_count else pc.if_else(data.is_valid(), stripped, pa.scalar(None, pa.binary()))
    encoded = data.dictionary_encode()
    values = [None if value is None else value.rstrip(b"\0") for value in encoded.dictionary.to_pylist()]
    return pa.array(values, pa.binary()).take(encoded.indices)


def scalars(*arrays: pa.Array) -> tuple[Any, ...]:
    """Arrow arrays for a compute function: those of length 1 as scalars, unless all are."""
    if all(len(array) == 1 for array in arrays):
        return arrays
    return tuple(array[0] if len(array) == 1 else array for array in arrays)


def _dates(ufunc: np.ufunc, a: t.DataType, b: t.DataType) -> Kernel:
    if type(a) is type(b) and (not isinstance(a, t.DateTime64) or a.precision == getattr(b, "precision", None)):
        return lambda x, y: ufunc(x, y)
    common = common_type([a, b])
    if isinstance(common, t.DateTime):
        return _date_with_time(ufunc, a, b, common)
    x_cast, y_cast = casts.kernel(a, common), casts.kernel(b, common)
    return lambda x, y: ufunc(x_cast(x), y_cast(y))


def _date_with_time(ufunc: np.ufunc, a: t.DataType, b: t.DataType, common: t.DateTime) -> Kernel:
    """A Date is compared by its midnight; one beyond the range of DateTime by the last midnight in it."""
    midnight = casts.kernel(t.Date(), common)

    def seconds(data: npt.NDArray[Any], kind: t.DataType) -> npt.NDArray[Any]:
        return data if isinstance(kind, t.DateTime) else midnight(np.minimum(data, _LAST_MIDNIGHT))

    return lambda x, y: ufunc(seconds(x, a), seconds(y, b))


def _halves(name: str) -> Kernel:
    """Compare 128-bit values as two halves of 64 bits, the higher one first."""

    def kernel(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        same_high = x["hi"] == y["hi"]
        if name in ("equals", "notEquals"):
            same = same_high & (x["lo"] == y["lo"])
            return np.asarray(same if name == "equals" else ~same)
        strict = np.less if name.startswith("less") else np.greater
        return np.asarray(strict(x["hi"], y["hi"]) | (same_high & _OPERATORS[name][0](x["lo"], y["lo"])))

    return kernel


def _decimals(ufunc: np.ufunc, a: t.DataType, b: t.DataType) -> Kernel:
    if isinstance(a, t.Float) or isinstance(b, t.Float):
        return lambda x, y: ufunc(to_float(x, a), to_float(y, b))
    scale = max(scale_of(a), scale_of(b))
    up_a, up_b = 10 ** (scale - scale_of(a)), 10 ** (scale - scale_of(b))

    def kernel(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        if up_a == up_b == 1 and x.dtype != object and y.dtype != object:
            return np.asarray(ufunc(x, y))
        if _fits(x, up_a) and _fits(y, up_b):
            return np.asarray(ufunc(x.astype(np.int64) * up_a, y.astype(np.int64) * up_b))
        return np.asarray(ufunc(x.astype(object) * up_a, y.astype(object) * up_b), dtype=np.bool_)

    return kernel


def _fits(data: npt.NDArray[Any], factor: int) -> bool:
    """Whether `data * factor` stays within Int64."""
    if len(data) == 0:
        return factor < 1 << 63
    limit = (1 << 63) // factor
    return bool(int(data.max()) < limit and int(data.min()) > -limit)


def _tuples(name: str, left: Operand, right: Operand, environment: BindingEnvironment) -> BoundNode:
    """Tuples are compared element by element; the first difference decides."""
    if not (isinstance(left.type, t.Tuple) and isinstance(right.type, t.Tuple)):
        raise illegal(name, left.type, right.type)
    count = len(left.type.elements)
    if count != len(right.type.elements) or count == 0:
        raise illegal(name, left.type, right.type)
    call = environment.call

    def element(side: Operand, i: int) -> BoundNode:
        return call("tupleElement", (side.node, BoundLiteral(i + 1, t.UINT8)))

    pairs = [(element(left, i), element(right, i)) for i in range(count)]
    if name in ("equals", "notEquals"):
        each = tuple(call(name, pair) for pair in pairs)
        return each[0] if count == 1 else call("and" if name == "equals" else "or", each)
    strict = "less" if name.startswith("less") else "greater"
    condition = call(name, pairs[-1])
    for pair in reversed(pairs[:-1]):
        condition = call("or", (call(strict, pair), call("and", (call("equals", pair), condition))))
    return condition
