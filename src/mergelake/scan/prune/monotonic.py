"""Which functions are monotonic, and on which intervals.

A predicate on `f(key)` can be evaluated on an interval of keys only where `f` is monotonic on it. Functions are
monotonic (`MonotonicFunction.monotonic`) always; where the results of both ends are in order (`plus` may wrap around);
or where both ends are in the same segment (`toMonth` rises within a year).

Source: ClickHouse, `getMonotonicityForRange` of each function; `FactorTransform`s of `DateTimeTransforms.h`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_schema
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode, EvaluationContext, unbind_typed
from mergelake.expr.nodes import Call, ColumnRef, SyntaxNode
from mergelake.expr.values import to_arrow
from mergelake.scan.prune.condition import MonotonicFunction
from mergelake.scan.prune.describe import literal_text

_ARGUMENT = "x"
Order = tuple[Literal["always", "anywhere", "checked", "segment"], bool, str]
"""(kind, rising, segment function) of a function's order, see `MonotonicFunction`."""
_TIME_RISING = {
    "toDate",
    "toDate32",
    "toDateTime",
    "toDateTime64",
    "toYear",
    "toISOYear",
    "toYYYYMM",
    "toYYYYMMDD",
    "toStartOfYear",
    "toStartOfISOYear",
    "toStartOfQuarter",
    "toStartOfMonth",
    "toMonday",
    "toStartOfWeek",
    "toStartOfDay",
    "toUnixTimestamp",
}
_CLOCK_RISING = {
    "toStartOfHour",
    "toStartOfMinute",
    "toStartOfFiveMinutes",
    "toStartOfTenMinutes",
    "toStartOfFifteenMinutes",
    "toStartOfSecond",
    "toYYYYMMDDhhmmss",
}
_TIME_SEGMENTS = {
    "toMonth": "toYear",
    "toQuarter": "toYear",
    "toDayOfYear": "toYear",
    "toDayOfMonth": "toStartOfMonth",
    "toDayOfWeek": "toMonday",
}
_CLOCK_SEGMENTS = {"toHour": "toDate", "toMinute": "toStartOfHour", "toSecond": "toStartOfMinute"}
_INTEGER_CASTS = {f"to{sign}Int{bits}": (bits, sign == "") for sign in ("", "U") for bits in (8, 16, 32, 64)}


def evaluator(call: SyntaxNode, argument: t.DataType) -> tuple[Callable[[pa.Array], pa.Array], t.DataType]:
    """`call`, an expression over the column `x`, as a function of storage arrays; and the type of its result."""
    columns = {_ARGUMENT: argument}
    bound = bind(call, columns)
    schema = storage_schema(columns)

    def apply(array: pa.Array) -> pa.Array:
        if pa.types.is_dictionary(schema.field(0).type):
            array = array.dictionary_encode()  # Arrow does not cast every type to a dictionary
        elif array.type != schema.field(0).type:
            array = array.cast(schema.field(0).type)
        batch = pa.RecordBatch.from_arrays([array], schema=pa.schema([schema.field(0).with_nullable(True)]))
        out = to_arrow(EvaluationContext.of_block(batch, columns).eval(bound), bound.type, len(array))
        return out.combine_chunks() if isinstance(out, pa.ChunkedArray) else out

    return apply, bound.type


def monotonic_function_of(call: BoundCall) -> tuple[BoundNode, MonotonicFunction] | None:
    """The varying argument of `call` and the function of it; None if it is not known to be monotonic."""
    varying = [i for i, arg in enumerate(call.args) if not isinstance(arg, BoundLiteral)]
    if len(varying) != 1 or len(call.args) > 2:
        return None
    at = varying[0]
    argument = call.args[at]
    if isinstance(t.inner_type(argument.type), t.FixedString | t.Tuple | t.Array | t.Map):
        return None
    order = _order_of(call, at, t.inner_type(argument.type))
    if order is None:
        return None
    monotonic, rising, segment = order
    args = (unbind_typed(a) if isinstance(a, BoundLiteral) else ColumnRef(_ARGUMENT) for a in call.args)
    over = Call(call.function, tuple(args))
    apply, result = evaluator(over, argument.type)
    if result != call.type:
        return None
    before = f"{call.function}(" + "".join(f"{_text(a)}, " for a in call.args[:at])
    after = "".join(f", {_text(a)}" for a in call.args[at + 1 :]) + ")"
    end = _wraps_from(call, t.inner_type(argument.type))
    if end:
        by = _wraps(argument.type, end)
        return argument, MonotonicFunction(apply, result, before, after, "segment", rising, by, t.Int(64, signed=True))
    if segment:
        by, by_type = evaluator(Call(segment, (ColumnRef(_ARGUMENT),)), argument.type)
        return argument, MonotonicFunction(apply, result, before, after, "segment", rising, by, by_type)
    return argument, MonotonicFunction(apply, result, before, after, monotonic, rising)


def _wraps_from(call: BoundCall, argument: t.DataType) -> int:
    """The first day that overflows the result type, so that the call wraps around; 0 if none does."""
    if call.function in ("toDateTime", "toUnixTimestamp") and isinstance(argument, (t.Date, t.Date32, t.DateTime64)):
        return 49709  # seconds in 32 bits end in 2106
    if call.function == "toDate" and isinstance(argument, (t.Date32, t.DateTime64)):
        return 65535
    return 0


def _wraps(data_type: t.DataType, end: int) -> Callable[[pa.Array], pa.Array]:
    """Segments of a call that wraps at day `end`: all times before it are one segment, any other is its own."""
    kind = t.inner_type(data_type)
    day = 86400 * 10**kind.precision if isinstance(kind, t.DateTime64) else 1

    def segments(array: pa.Array) -> pa.Array:
        values = array.cast(pa.int64())
        fits = pc.and_(pc.greater_equal(values, day), pc.less(values, end * day))
        return pc.if_else(fits, pa.scalar(day, pa.int64()), values)

    return segments


def _text(node: BoundNode) -> str:
    return literal_text(node.value, node.type) if isinstance(node, BoundLiteral) else str(node)


def _order_of(call: BoundCall, at: int, argument: t.DataType) -> Order | None:
    """(kind, rising, segment function) of the call in its varying argument."""
    name = call.function
    if isinstance(argument, (t.Date, t.Date32, t.DateTime, t.DateTime64)):
        return _order_of_time(call, at, argument)
    if not isinstance(argument, (t.Int, t.Float, t.Bool)):
        return None
    if name == "negate":
        narrow = not isinstance(argument, t.Int) or argument.bits < 64
        return ("anywhere" if narrow else "checked"), False, ""
    if name in _INTEGER_CASTS and len(call.args) == 1:
        bits, signed = _INTEGER_CASTS[name]
        if isinstance(argument, t.Bool):
            return "always", True, ""
        widens = isinstance(argument, t.Int) and (
            (argument.signed == signed and bits >= argument.bits) or (signed and bits > argument.bits)
        )
        return ("always", True, "") if widens else None
    if name in ("toFloat32", "toFloat64") and len(call.args) == 1:
        return "always", True, ""
    if len(call.args) != 2:
        return None
    other = call.args[1 - at]
    if not isinstance(other, BoundLiteral) or not isinstance(other.value, (int, float)) or other.value != other.value:
        return None
    if name == "plus":
        return "checked", True, ""
    if name == "minus":
        return "checked", at == 0, ""
    if name in ("divide", "intDiv") and at == 0 and other.value != 0:
        if name == "intDiv" and (isinstance(other.value, float) or isinstance(argument, t.Float)):
            return None
        if name == "intDiv" and not _keeps_sign(argument, other):
            return None
        return "always", other.value > 0, ""
    return None


def _keeps_sign(argument: t.DataType, divisor: BoundLiteral) -> bool:
    """Whether intDiv is monotonic: with mixed signedness it reinterprets the unsigned operand as signed."""
    signed = isinstance(argument, t.Int) and argument.signed
    return bool(divisor.value < 1 << 63 if signed else divisor.value > 0)


def _order_of_time(call: BoundCall, at: int, argument: t.DataType) -> Order | None:
    name = call.function
    if name in ("plus", "minus") and len(call.args) == 2 and at == 0:
        other = call.args[1]
        return ("checked", True, "") if isinstance(other, BoundLiteral) and isinstance(other.type, t.Int) else None
    if at != 0 or (len(call.args) == 2 and name not in ("toDate", "toYYYYMM", "toStartOfDay", "toYear", "toYYYYMMDD")):
        return None
    is_date = isinstance(argument, (t.Date, t.Date32))
    # Where clocks are set back, hours are not monotonic within a day, so only UTC counts.
    steady = is_date or getattr(argument, "timezone", "") in ("", "UTC")
    if name in _TIME_RISING or (name in _CLOCK_RISING and steady):
        # Conversions between types of different reach saturate or wrap at the ends.
        if name.startswith("toDate") and not (name == "toDate" and isinstance(argument, (t.Date, t.DateTime))):
            return "checked", True, ""
        return "always", True, ""
    if name in _TIME_SEGMENTS:
        return "segment", True, _TIME_SEGMENTS[name]
    if name in _CLOCK_SEGMENTS and steady:
        return "segment", True, _CLOCK_SEGMENTS[name]
    return None
