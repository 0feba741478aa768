"""Codecs meet types: which codec each stream of a column gets, and whether a column may have a codec at all.

Only streams of values get the codecs of values, with the width and sign of their type. Null maps, sizes and
LowCardinality indexes get the general steps of the chain, or NONE if it has none.

Source: ClickHouse, `src/Compression/CompressionFactoryAdditions.cpp`, `isSpecialCompressionAllowed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.format.codecs import codec as c
from mergelake.format.codecs.codec import CODEC_LZ4, Codec, chained, parse_steps
from mergelake.format.kernels import method_bytes

_GENERAL = (method_bytes.LZ4, method_bytes.ZSTD)
_FLOATING = (method_bytes.GORILLA, method_bytes.FPC)


def stream_types(data_type: t.DataType) -> Iterator[t.DataType | None]:
    """The type of each stream's values, in the order of `Serialization.streams`; None for a stream that holds no
    values.
    """
    match data_type:
        case t.SimpleAggregateFunction(_, inner):
            yield from stream_types(inner)
        case t.Nullable(inner) | t.Array(inner):
            yield None
            yield from stream_types(inner)
        case t.LowCardinality(inner):
            yield inner
            yield None
        case t.Map(key, value):
            yield None
            yield from stream_types(key)
            yield from stream_types(value)
        case t.Tuple(elements) if elements:
            for element in elements:
                yield from stream_types(element)
        case t.Variant(alternatives):
            yield None
            for alternative in alternatives:
                yield from stream_types(alternative)
        case t.Dynamic():
            yield from (None, None, t.STRING)
        case t.Json(typed):
            yield None
            for _, kind in typed:
                yield from stream_types(kind)
            yield from (None, t.STRING, t.STRING)
        case _:
            yield data_type


@lru_cache(1024)
def stream_codec(codec: Codec, values: t.DataType | None) -> Codec:
    """What compresses a stream of `values` (None: null maps, sizes, indexes) of a column with `codec`.

    Raises BAD_ARGUMENTS or ILLEGAL_SYNTAX_FOR_CODEC_TYPE for a codec that is not for this type.
    """
    if values is None:
        return chained([step for step in codec.chain if step.method in _GENERAL])
    return chained([bind(step, values) for step in codec.chain])


def bind(step: Codec, values: t.DataType) -> Codec:
    """One step with the width and sign of `values`."""
    match step.method:
        case method_bytes.DELTA | method_bytes.GORILLA:
            return step if step.width else replace(step, width=_width(step, values))
        case method_bytes.DOUBLE_DELTA:
            if not _numeric(values):
                raise error(
                    "BAD_ARGUMENTS", f"Codec DoubleDelta is not applicable for {values}: the type is not numeric"
                )
            width = _width(step, values)
            return step if step.width else replace(step, width=width)
        case method_bytes.FPC:
            if not isinstance(values, t.Float):
                raise error("BAD_ARGUMENTS", f"Codec FPC is not applicable for {values}: the type is not Float*")
            return step if step.width else replace(step, width=values.bits // 8)
        case method_bytes.GCD:
            if not isinstance(values, (t.Int, t.Bool, t.Decimal, t.Date, t.Date32, t.DateTime, t.DateTime64)):
                raise error(
                    "BAD_ARGUMENTS",
                    f"Codec GCD cannot be applied to {values}",
                    "It can only be used with Int*, UInt*, Decimal*, Date* or DateTime* types",
                )
            return replace(step, width=_size(values), kind=int(_signed(values)))
        case method_bytes.T64:
            kind = _t64_kind(values)
            if not kind:
                raise error("ILLEGAL_SYNTAX_FOR_CODEC_TYPE", f"T64 codec is not supported for specified type {values}")
            return replace(step, width=_size(values), kind=kind)
        case _:
            return step


def check_codec(text: str, data_type: t.DataType, default: Codec = CODEC_LZ4) -> str:
    """The codec of a column of `data_type` in ClickHouse's spelling; empty text stays empty.

    Raises what `parse_codec` and `stream_codec` raise, and BAD_ARGUMENTS for a chain that makes no sense: that
    compresses nothing, goes on after a general codec, and so on (ClickHouse: without `allow_suspicious_codecs`).
    """
    parsed = parse_steps(text)
    if not parsed:
        return ""
    places = [values for values in stream_types(data_type) if values is not None]
    bound = [[bind(step, values) for values in places] for step in parsed]
    spelled = ", ".join(str(steps[-1]) for steps in bound)
    methods = [default.method if step.method == c.DEFAULT else step.method for step in parsed]
    _check_sense(methods, spelled, floating=_has_floats(data_type))
    if any(step != steps[0] for steps in bound for step in steps):
        # Elements of different widths: each stream finds its own, so nothing is spelled out.
        return _inside(text)
    return spelled


def _inside(text: str) -> str:
    stripped = text.strip()
    return stripped[stripped.index("(") + 1 : -1].strip() if stripped[:5].upper() == "CODEC" else stripped


def _check_sense(methods: list[int], spelled: str, *, floating: bool) -> None:
    def refuse(why: str, hint: str = "") -> None:
        raise error("BAD_ARGUMENTS", f"The combination of compression codecs {spelled} is meaningless: {why}", hint)

    general = [i for i, method in enumerate(methods) if method in _GENERAL]
    series = [i for i, method in enumerate(methods) if method in _FLOATING]
    deltas = [i for i, method in enumerate(methods) if method in (method_bytes.DELTA, method_bytes.DOUBLE_DELTA)]
    if method_bytes.NONE in methods and len(methods) > 1:
        refuse("it does not make sense to have codec NONE along with others")
    if method_bytes.NONE not in methods and all(method in (method_bytes.DELTA, method_bytes.GCD) for method in methods):
        raise error("BAD_ARGUMENTS", f"Compression codec {spelled} does not compress anything", f"Write {spelled}, LZ4")
    if series and not floating:
        refuse("it does not make sense to apply a floating-point time series codec to non-floating-point columns")
    if series and deltas and deltas[0] < series[-1]:
        refuse("floating point time series codecs do delta compression implicitly by themselves")
    if general and general[0] != len(methods) - 1:
        refuse("it does not make sense to apply any transformations after a general compression")


def _has_floats(data_type: t.DataType) -> bool:
    match data_type:
        case t.Float() | t.BFloat16():
            return True
        case t.Nullable(inner) | t.Array(inner) | t.SimpleAggregateFunction(_, inner):
            return _has_floats(inner)
        case t.Tuple(elements):
            return any(map(_has_floats, elements))
        case _:
            return False


def _size(values: t.DataType) -> int:
    return int(storage_type(values).bit_width) // 8


def _width(step: Codec, values: t.DataType) -> int:
    if isinstance(values, (t.String, t.AggregateFunction, t.Nothing, t.Nullable, t.Tuple)):
        raise error("BAD_ARGUMENTS", f"Codec {step} is not applicable for {values}: the type is not of fixed size")
    size = _size(values)
    if size not in (1, 2, 4, 8):
        raise error("BAD_ARGUMENTS", f"Codec {step} is only applicable for types of 1, 2, 4 or 8 bytes, not {values}")
    return size


def _numeric(values: t.DataType) -> bool:
    others = (t.String, t.FixedString, t.UUID, t.IPv6, t.AggregateFunction, t.Nothing, t.Nullable, t.Tuple)
    return not isinstance(values, others)


def _signed(values: t.DataType) -> bool:
    match values:
        case t.Int(_, signed):
            return signed
        case t.Decimal() | t.Date32() | t.DateTime64():
            return True
        case _:
            return False


def _t64_kind(values: t.DataType) -> int:
    """The type's number in T64 payloads, or 0."""
    match values:
        case t.Int(bits, signed) if bits <= 64:
            return {8: 1, 16: 2, 32: 3, 64: 4}[bits] + (5 if signed else 0)
        case t.Enum(bits):
            return 17 if bits == 8 else 18
        case t.Decimal() if values.bits <= 64:
            return 19 if values.bits == 32 else 20
        case _:
            return _T64_KINDS.get(type(values), 0)


_T64_KINDS: dict[type, int] = {
    t.Bool: 1,
    t.Date: 13,
    t.DateTime: 14,
    t.DateTime64: 15,
    t.IPv4: 21,
    t.Date32: 22,
    t.Time: 23,
    t.Time64: 24,
}
