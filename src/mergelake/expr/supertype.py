"""The least type that holds the values of several types: the result of if() and coalesce(), the elements of array().

Source: ClickHouse, `src/DataTypes/getLeastSupertype.cpp`. Where ClickHouse would make a Variant, NO_COMMON_TYPE
is raised.
"""

from __future__ import annotations

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.types import types as t

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20, 128: 39, 256: 78}


def common_type(types: list[t.DataType]) -> t.DataType:
    """The least supertype of `types`, without LowCardinality. Raises NO_COMMON_TYPE."""
    plain = [t.inner_type(kind) for kind in types]
    known: list[t.DataType] = [kind for kind in plain if not isinstance(kind, t.Nothing)]
    if not known:
        return t.Nullable(t.Nothing()) if types else t.Nothing()
    common = known[0] if all(kind == known[0] for kind in known) else _mixed(known)
    nullable = any(t.is_nullable(kind) for kind in types)
    return t.Nullable(common) if nullable and not isinstance(common, (t.Array, t.Map)) else common


def _mixed(types: list[t.DataType]) -> t.DataType:
    if all(isinstance(kind, (t.Int, t.Float, t.Bool)) for kind in types):
        return _numbers(types)
    if all(isinstance(kind, (t.String, t.FixedString, t.Enum)) for kind in types):
        return t.STRING
    if all(isinstance(kind, (t.Decimal, t.Int)) for kind in types):
        return _decimals(types)
    if all(isinstance(kind, (t.Date, t.Date32, t.DateTime, t.DateTime64)) for kind in types):
        return _dates(types)
    if all(isinstance(kind, t.Array) for kind in types):
        return t.Array(common_type([kind.inner for kind in types if isinstance(kind, t.Array)]))
    maps = [kind for kind in types if isinstance(kind, t.Map)]
    if len(maps) == len(types):
        return t.Map(common_type([kind.key for kind in maps]), common_type([kind.value for kind in maps]))
    tuples = [kind for kind in types if isinstance(kind, t.Tuple)]
    if len(tuples) == len(types) and len({len(kind.elements) for kind in tuples}) == 1:
        return t.Tuple(tuple(common_type(list(each)) for each in zip(*(kind.elements for kind in tuples), strict=True)))
    raise no_common_type(types)


def no_common_type(types: list[t.DataType]) -> MergelakeError:
    """NO_COMMON_TYPE for these types."""
    return error("NO_COMMON_TYPE", f"There is no supertype for types {', '.join(map(str, types))}", "Convert with CAST")


def _numbers(types: list[t.DataType]) -> t.DataType:
    ints = [
        t.Int(8, signed=False) if isinstance(kind, t.Bool) else kind
        for kind in types
        if isinstance(kind, (t.Int, t.Bool))
    ]
    floats = max((kind.bits for kind in types if isinstance(kind, t.Float)), default=0)
    signed = max((kind.bits for kind in ints if kind.signed), default=0)
    unsigned = max((kind.bits for kind in ints if not kind.signed), default=0)
    if floats:
        # A float holds an integer exactly up to its mantissa: 24 bits or 53.
        if max(signed, unsigned) <= 16:
            return t.Float(floats)
        if max(signed, unsigned) <= 32:
            return t.Float(64)
        raise no_common_type(types)
    if not signed:
        return t.Int(unsigned, signed=False)
    if unsigned < signed:
        return t.Int(signed, signed=True)
    if unsigned == 64 or unsigned == 256:
        raise no_common_type(types)
    return t.Int(unsigned * 2, signed=True)


def _decimals(types: list[t.DataType]) -> t.DataType:
    scale = max(kind.scale for kind in types if isinstance(kind, t.Decimal))
    whole = max(kind.precision - kind.scale if isinstance(kind, t.Decimal) else _DIGITS[kind.bits] for kind in types
                if isinstance(kind, (t.Decimal, t.Int)))  # fmt: skip
    widest = max(kind.bits for kind in types if isinstance(kind, t.Decimal))
    precision = max(whole + scale, {32: 9, 64: 18, 128: 38, 256: 76}[widest])
    if precision > 76:
        raise no_common_type(types)
    return t.Decimal(next(digits for digits in (9, 18, 38, 76) if precision <= digits), scale)


def _dates(types: list[t.DataType]) -> t.DataType:
    stamps = [kind for kind in types if isinstance(kind, (t.DateTime, t.DateTime64))]
    if not stamps:
        return t.Date32()
    zone = stamps[0].timezone
    precisions = [kind.precision for kind in stamps if isinstance(kind, t.DateTime64)]
    if precisions:
        return t.DateTime64(max(precisions), zone)
    if any(isinstance(kind, t.Date32) for kind in types):
        return t.DateTime64(0)  # ClickHouse drops the time zone
    return t.DateTime(zone)
