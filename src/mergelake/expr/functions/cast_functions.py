"""CAST(x, 'T'), `x::T` and the toT, toTOrNull and toTOrZero functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.expr.bound import BoundLiteral, BoundNode, EvaluationContext
from mergelake.expr.functions import casts
from mergelake.expr.functions.text_casts import gives_null, read, read_or_null
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal, special
from mergelake.expr.values import Data, Vec, constant_vec


def cast_node(node: BoundNode, target: t.DataType, environment: BindingEnvironment) -> BoundNode:
    """`node` cast to `target`; `node` itself if it already has that type."""
    if node.type == target:
        return node
    if isinstance(node, BoundLiteral) and isinstance(node.type, t.Int) and isinstance(target, t.Int):
        low = -(1 << (target.bits - 1)) if target.signed else 0
        if low <= node.value < low + (1 << target.bits):
            return BoundLiteral(node.value, target)  # a list of constants may have a hundred thousand
    return environment.call("CAST", (node, BoundLiteral(str(target).encode(), t.STRING)))


@special("CAST", 2, any_case=True, aliases=("_CAST",))
def _cast(args: tuple[BoundNode, ...], environment: BindingEnvironment) -> Resolved:
    value, name = args
    if not isinstance(name, BoundLiteral) or not isinstance(name.value, bytes):
        raise illegal("CAST", value.type, name.type)
    target = t.parse_type(name.value.decode())
    if value.type == target:
        return Resolved(target, node=value)
    source_plain, target_plain = t.inner_type(value.type), t.inner_type(target)
    if gives_null(value.type, target):
        return Resolved(target, run=lambda ctx: read_or_null(ctx.eval(value), target_plain), cost=20, args=args)
    kernel = casts.kernel(source_plain, target_plain)
    strict = t.is_nullable(value.type) and not t.is_nullable(target)
    raising = casts.can_raise(source_plain, target_plain)

    def run(ctx: EvaluationContext) -> Vec:
        vec = ctx.eval(value)
        if raising or strict:
            vec = vec.decoded()
        if vec.valid is not None and (strict or raising) and not vec.valid.all():
            if strict:
                raise error(
                    "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN",
                    f"Cannot convert NULL value to non-Nullable type {target}",
                    f"Cast to Nullable({target}) or give a value with ifNull()",
                )
            keep = np.flatnonzero(vec.valid)
            converted = kernel(vec.filter(keep).data)
            if len(keep) == 0:
                return _all_null(target_plain, vec.rows)
            back = np.zeros(vec.rows, np.int64)
            back[keep] = np.arange(len(keep))
            return Vec(Vec(converted).filter(back).data, vec.valid)
        return Vec(kernel(vec.data), vec.valid, vec.codes)

    return Resolved(target, run=run, can_raise=raising or strict, cost=20, args=args)


def _all_null(target: t.DataType, rows: int) -> Vec:
    return constant_vec(None, target).broadcast(rows)


def _zone_argument(name: str, args: tuple[Operand, ...], at: int) -> str:
    if len(args) <= at:
        return ""
    value = args[at].value
    if not isinstance(value, bytes):
        raise illegal(name, *(arg.type for arg in args))
    return value.decode()


def _target_of(name: str, base: t.DataType, args: tuple[Operand, ...]) -> tuple[t.DataType, t.DataType]:
    """The result type, and the source type with the zone that the call names."""
    source = args[0].type
    match base:
        case t.Date() | t.Date32():
            chosen = _zone_argument(name, args, 1)
            if chosen and isinstance(source, t.DateTime):
                source = t.DateTime(chosen)
            elif chosen and isinstance(source, t.DateTime64):
                source = t.DateTime64(source.precision, chosen)
            return base, source
        case t.DateTime():
            chosen = _zone_argument(name, args, 1) or getattr(source, "timezone", "")
            return t.DateTime(chosen), source
        case t.DateTime64():
            if len(args) < 2 or not isinstance(args[1].value, int):
                raise illegal(name, *(arg.type for arg in args))
            chosen = _zone_argument(name, args, 2) or getattr(source, "timezone", "")
            return t.DateTime64(int(args[1].value), chosen), source
        case t.Decimal(precision):
            if len(args) < 2 or not isinstance(args[1].value, int):
                raise illegal(name, *(arg.type for arg in args))
            return t.Decimal(precision, int(args[1].value)), source
        case t.String():
            chosen = _zone_argument(name, args, 1)
            if chosen and isinstance(source, t.DateTime):
                source = t.DateTime(chosen)
            elif chosen and isinstance(source, t.DateTime64):
                source = t.DateTime64(source.precision, chosen)
            return base, source
    return base, source


def _register(name: str, base: t.DataType, most: int, aliases: tuple[str, ...] = ()) -> None:
    @function(name, 1, most, aliases=aliases)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        target, source = _target_of(name, base, args)
        kernel = casts.kernel(source, target)
        return Resolved(target, lambda x, *rest: kernel(x), can_raise=casts.can_raise(source, target), cost=20)

    if not isinstance(base, t.String):
        _register_tolerant(name, base, most)


def _register_tolerant(name: str, base: t.DataType, most: int) -> None:
    """ToTOrNull and toTOrZero: text that does not parse becomes NULL, or the default of the type."""
    for suffix in ("OrNull", "OrZero"):

        @special(name + suffix, 1, most)
        def rule(args: tuple[BoundNode, ...], environment: BindingEnvironment, suffix: str = suffix) -> Resolved:
            operands = tuple(Operand(t.inner_type(arg.type), arg) for arg in args)
            if isinstance(operands[0].type, t.Nothing):
                return Resolved(args[0].type, node=args[0])
            target, source = _target_of(name, base, operands)
            if not isinstance(source, (t.String, t.FixedString)):
                raise illegal(name + suffix, *(arg.type for arg in args))
            nullable = suffix == "OrNull" or t.is_nullable(args[0].type)
            result = t.Nullable(target) if nullable else target
            return Resolved(result, run=_tolerant(args[0], source, target, null=suffix == "OrNull"), cost=20)


def _tolerant(
    arg: BoundNode, source: t.DataType, target: t.DataType, *, null: bool
) -> Callable[[EvaluationContext], Vec]:
    def run(ctx: EvaluationContext) -> Vec:
        vec = ctx.eval(arg)
        if isinstance(source, t.FixedString):  # padding makes a Decimal invalid, and ends other values
            texts = vec.data
            texts = texts.cast(pa.binary()) if isinstance(target, t.Decimal) else casts.padded_text(texts, target)
            vec = Vec(texts, vec.valid, vec.codes)
        if null:
            return read_or_null(vec, target)
        data, bad = read(vec.data, target)
        return Vec(_defaulted(data, bad, target), vec.valid, vec.codes)

    return run


def _defaulted(data: Data, bad: npt.NDArray[np.bool_], target: t.DataType) -> Data:
    if not bad.any():
        return data
    if isinstance(data, np.ndarray):
        data = data.copy()
        data[bad] = -25567 if isinstance(target, t.Date32) else 0
        return data
    zero = pa.scalar(b"\0" * storage_type(target).byte_width, storage_type(target))
    return pc.if_else(pa.array(bad), zero, data)


for _bits in (8, 16, 32, 64, 128, 256):
    _register(f"toInt{_bits}", t.Int(_bits, signed=True), 1)
    _register(f"toUInt{_bits}", t.Int(_bits, signed=False), 1)
_register("toFloat32", t.Float(32), 1)
_register("toFloat64", t.Float(64), 1)
_register("toUUID", t.UUID(), 1)
_register("toIPv4", t.IPv4(), 1)
_register("toIPv6", t.IPv6(), 1)
_register("toBool", t.Bool(), 1)
_register("toDate", t.Date(), 2, aliases=("DATE",))
_register("toDate32", t.Date32(), 2)
_register("toDateTime", t.DateTime(), 2)
_register("toDateTime64", t.DateTime64(), 3)
_register("toString", t.STRING, 2)
for _bits, _digits in ((32, 9), (64, 18), (128, 38), (256, 76)):
    _register(f"toDecimal{_bits}", t.Decimal(_digits, 0), 2)


@function("toFixedString", 2)
def _to_fixed_string(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    length = args[1].value
    if not isinstance(length, int) or not isinstance(args[0].type, (t.String, t.FixedString)):
        raise illegal("toFixedString", *(arg.type for arg in args))
    target = t.FixedString(length)
    kernel = casts.kernel(t.STRING, target)
    source = args[0].type
    return Resolved(
        target,
        lambda x, _: kernel(casts.strip_padding(x) if isinstance(source, t.FixedString) else x),
        can_raise=True,
        cost=30,
    )


def _interval(unit: str) -> None:
    @function(f"toInterval{unit}", 1)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        if not isinstance(args[0].type, (t.Int, t.Float, t.Bool)):
            raise illegal(f"toInterval{unit}", args[0].type)
        return Resolved(t.Interval(unit), casts.kernel(args[0].type, t.Int(64, signed=True)))


for _unit in t.INTERVAL_UNITS:
    _interval(_unit)
