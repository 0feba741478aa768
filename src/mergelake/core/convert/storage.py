"""Conversion of Arrow arrays of users to the storage form.

`to_storage(array, type)` takes any Arrow array that fits the type, validates it and loses no information silently:

1. Wrappers are removed: chunks, extension types, run-end encoding, dictionaries.
2. NULL in a column that is not Nullable is refused (CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN).
3. Values are converted by the target type: a number out of range is refused, text is parsed by ClickHouse's rules
   (`core.convert.text_read`), a timestamp of any unit and zone is an instant, one without a zone is UTC, and a fraction
   of a second is truncated to the precision of the column.

Errors name the column, the row and the value. `to_public` (`core.convert.public`) is the inverse.
"""

from __future__ import annotations

import decimal
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.convert.json_read import dynamic_cell, json_from_text, parse_json
from mergelake.core.convert.public import to_public, to_public_table
from mergelake.core.convert.text_nested import cut_texts
from mergelake.core.convert.text_read import read_text
from mergelake.core.convert.text_write import by_distinct
from mergelake.core.convert.timezones import zone
from mergelake.core.types import types as t
from mergelake.core.types.arrow import STORED_DYNAMIC, arrow_type, storage_type, tuple_names

_ALL_DIGITS = decimal.Context(prec=100)
_UNIT_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def to_storage(array: pa.Array | pa.ChunkedArray, data_type: t.DataType, column_name: str = "") -> pa.Array:
    """`array` in the storage form of `data_type`, with as many rows.

    Takes integers of any width, floats, decimals, strings, dates, timestamps, dictionaries, lists, maps and structs,
    and text for any type. 16 bytes for a UUID are in the order of its text, as in `uuid.UUID.bytes`. Raises
    VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE, CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN, UNKNOWN_ELEMENT_OF_ENUM,
    DECIMAL_OVERFLOW, TYPE_MISMATCH and ClickHouse's parse errors.
    """
    try:
        return _convert(_unchunked(array), data_type)
    except MergelakeError as failure:
        failure.column = failure.column or column_name
        raise


def _unchunked(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        chunks = [chunk for chunk in array.chunks if len(chunk)]
        if not chunks:
            return pa.nulls(0, array.type)
        array = chunks[0] if len(chunks) == 1 else array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            raise error("TOO_LARGE_STRING_SIZE", "A column of more than 2 GiB must come in several batches")
    return array


def _convert(array: pa.Array, data_type: t.DataType, *, nullable: bool = False) -> pa.Array:
    match data_type:
        case t.Nullable(inner):
            return _convert(array, inner, nullable=True)
        case t.SimpleAggregateFunction(_, inner):
            return _convert(array, inner, nullable=nullable)
        case t.LowCardinality(inner):
            return _low_cardinality(array, inner, data_type)
        case t.Variant():
            return _variant(_unwrapped(array, data_type), data_type)
        case t.Dynamic():
            return _dynamic(array)
    array = _unwrapped(array, data_type)
    if pa.types.is_null(array.type):
        if len(array) and not nullable:
            raise _null(0, data_type)
        return pa.nulls(len(array), storage_type(data_type))
    if pa.types.is_dictionary(array.type):
        return _take(_convert(_used(array), data_type, nullable=True), array, data_type, nullable)
    if array.null_count and not nullable:
        raise _first_null(array, data_type)
    return _values(array, data_type)


def _unwrapped(array: pa.Array, data_type: t.DataType) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        if str(array.type.extension_name) == "arrow.bool8":
            return array.storage.cast(pa.bool_())
        array = array.storage
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    return array


def _used(array: pa.DictionaryArray) -> pa.Array:
    """The dictionary with unused values replaced by NULL: they must not cause conversion errors."""
    dictionary = array.dictionary
    used = np.zeros(len(dictionary), np.bool_)
    used[array.indices.drop_null().to_numpy(zero_copy_only=False)] = True
    return dictionary if used.all() else pc.if_else(pa.array(used), dictionary, pa.scalar(None, dictionary.type))


def _take(values: pa.Array, array: pa.DictionaryArray, data_type: t.DataType, nullable: bool) -> pa.Array:
    taken = values.take(array.indices)
    if taken.null_count and not nullable:
        raise _first_null(taken, data_type)
    return taken


def _low_cardinality(array: pa.Array, inner: t.DataType, data_type: t.LowCardinality) -> pa.Array:
    target = storage_type(data_type)
    array = _unwrapped(array, data_type)
    if pa.types.is_dictionary(array.type) and len(array.dictionary) <= max(len(array), 1):
        values = _convert(_used(array), inner, nullable=True)
        dictionary = pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), values)
        missing = array.indices.null_count or (values.null_count and values.take(array.indices).null_count)
        if missing and not t.is_nullable(inner):
            raise _first_null(values.take(array.indices), data_type)
        if not values.null_count:
            return dictionary
        return values.take(dictionary.indices).dictionary_encode().cast(target)
    values = _convert(array, inner)
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # ClickHouse's dictionaries have no -0.0
    return values.dictionary_encode().cast(target)


def _null(row: int, data_type: t.DataType) -> MergelakeError:
    return _at(
        row,
        error(
            "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN",
            f"Cannot insert NULL value into a column of type {data_type}",
            f"Make the column Nullable({data_type}) or fill the value in",
        ),
    )


def _first_null(array: pa.Array, data_type: t.DataType) -> MergelakeError:
    return _null(int(np.argmin(array.is_valid().to_numpy(zero_copy_only=False))), data_type)


def _at(row: int, failure: MergelakeError) -> MergelakeError:
    failure.row = row
    return failure


def _mismatch(array: pa.Array, data_type: t.DataType) -> MergelakeError:
    return error("TYPE_MISMATCH", f"Cannot convert Arrow type {array.type} to {data_type}", "Cast the column first")


def _out_of_range(row: int, value: object, data_type: t.DataType, low: object, high: object) -> MergelakeError:
    return _at(
        row,
        error("VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", f"Value {value} is out of range of {data_type} ({low} to {high})"),
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    )  # fmt: skip


def _binary(array: pa.Array) -> pa.Array:
    """A string or binary array of any Arrow type as a binary array."""
    if pa.types.is_string(array.type):
        return pa.Array.from_buffers(pa.binary(), len(array), array.buffers(), array.null_count, array.offset)
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def _values(array: pa.Array, kind: t.DataType) -> pa.Array:
    """The values of `array`, NULLs allowed, in the storage form of the plain type `kind`."""
    source = array.type
    match kind:
        case t.Array() | t.Map() | t.Tuple():
            return _nested(array, kind)
        case t.String() | t.AggregateFunction():
            if _is_text(source):
                return _binary(array)
            if pa.types.is_fixed_size_binary(source):
                return array.cast(pa.binary())
            raise _mismatch(array, kind)
        case t.FixedString(length):
            if pa.types.is_fixed_size_binary(source) and source.byte_width == length:
                return array
            if pa.types.is_fixed_size_binary(source):
                array = array.cast(pa.binary())
            return _fixed_string(array, kind)
        case t.UUID() | t.IPv6():
            return _sixteen_bytes(array, kind)
        case t.Decimal():
            return _decimal(array, kind)
        case t.Json():
            return _json(array, kind)
        case t.Nothing() | t.Unknown():
            raise _mismatch(array, kind)
    if _is_text(source):
        return read_text(_binary(array), kind)
    match kind:
        case t.Int():
            return _integers(array, kind)
        case t.Float(bits):
            if pa.types.is_decimal(source) or pa.types.is_integer(source) or pa.types.is_floating(source):
                return array.cast(pa.float32() if bits == 32 else pa.float64(), safe=False)
            raise _mismatch(array, kind)
        case t.Bool():
            if pa.types.is_boolean(source):
                return array.cast(pa.uint8())
            return _checked(_whole_numbers(array, kind), 0, 1, kind, array)
        case t.Date():
            return _checked(_days(array, kind), 0, 0xFFFF, kind, array)
        case t.Date32():
            return _checked(_days(array, kind), -719528, 2932896, kind, array)  # years 0 to 9999
        case t.DateTime():
            return _checked(_ticks(array, kind, 0), 0, 0xFFFFFFFF, kind, array)
        case t.DateTime64(precision):
            return _ticks(array, kind, precision)
        case t.Time() | t.Time64():
            return _time(array, kind)
        case t.Interval():
            return _checked(_whole_numbers(array, kind), -(1 << 63), (1 << 63) - 1, kind, array)
        case t.IPv4():
            return _checked(_whole_numbers(array, kind), 0, 0xFFFFFFFF, kind, array)
        case t.BFloat16() if pa.types.is_uint16(source):
            return array
        case t.BFloat16() if pa.types.is_floating(source):
            bits = array.cast(pa.float32(), safe=False).view(pa.uint32())
            return pc.shift_right(bits, pa.scalar(16, pa.uint32())).cast(pa.uint16())
        case t.Enum():
            return _enum(array, kind)
    raise _mismatch(array, kind)


# --- numbers


def _whole_numbers(array: pa.Array, kind: t.DataType) -> pa.Array:
    """Integers unchanged; floats and decimals as integers. Raises TYPE_MISMATCH for fractions."""
    source = array.type
    if pa.types.is_integer(source):
        return array
    if pa.types.is_boolean(source):
        return array.cast(pa.uint8())
    if pa.types.is_decimal(source):
        cut = pc.trunc(array)
        lossy = pc.fill_null(pc.not_equal(cut, array), False).to_numpy(zero_copy_only=False)
        if lossy.any():
            raise _fraction(array, int(np.argmax(lossy)), kind)
        return cut.cast(pa.decimal128(38, 0) if pa.types.is_decimal128(source) else pa.decimal256(76, 0))
    if not pa.types.is_floating(source):
        raise _mismatch(array, kind)
    values = array.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    fractional = values != np.floor(values)
    if fractional.any():
        raise _fraction(array, int(np.argmax(fractional)), kind)
    if len(values) and values.min() >= 0 and values.max() < 2.0**64:
        return array.cast(pa.uint64())
    outside = ~((values >= -(2.0**63)) & (values < 2.0**63))
    if outside.any():
        row = int(np.argmax(outside))
        raise _out_of_range(row, values[row], kind, -(1 << 63), (1 << 63) - 1)
    return array.cast(pa.int64())


def _fraction(array: pa.Array, row: int, kind: t.DataType) -> MergelakeError:
    return _at(
        row, error("TYPE_MISMATCH", f"Value {array[row]} is no whole number but the column is {kind}", "Round it first")
    )


def _integers(array: pa.Array, kind: t.Int) -> pa.Array:
    if kind.bits > 64:
        if pa.types.is_fixed_size_binary(array.type) and array.type.byte_width == kind.bits // 8:
            return array
        return _wide(_whole_numbers(array, kind), kind.bits, kind)
    low, high = (-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1) if kind.signed else (0, (1 << kind.bits) - 1)
    return _checked(_whole_numbers(array, kind), low, high, kind, array)


def _checked(numbers: pa.Array, low: int, high: int, kind: t.DataType, source: pa.Array) -> pa.Array:
    """Integers as the storage type of `kind`, refused outside `low` to `high`."""
    target = storage_type(kind)
    if numbers.type == target and (low, high) == _limits(target):
        return numbers
    extremes = pc.min_max(numbers)
    least, most = extremes["min"].as_py(), extremes["max"].as_py()
    if least is not None and (least < low or most > high):
        row = int(pc.index(numbers, least if least < low else most).as_py())
        raise _out_of_range(row, source[row], kind, low, high)
    return numbers.cast(target)


def _limits(kind: pa.DataType) -> tuple[int, int] | None:
    if not pa.types.is_integer(kind):
        return None
    bits = kind.bit_width
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if pa.types.is_signed_integer(kind) else (0, (1 << bits) - 1)


def _wide(numbers: pa.Array, bits: int, kind: t.DataType) -> pa.Array:
    """Whole numbers as little-endian integers of 128 or 256 bits."""
    # The bytes of a decimal256 without scale are those of a 256-bit integer.
    if numbers.type == pa.uint64():
        numbers = numbers.cast(pa.decimal128(20, 0))
    decimal = numbers.cast(pa.decimal256(76, 0))
    raw = np.frombuffer(decimal.buffers()[1] or b"", "<u8").reshape(-1, 4)[
        decimal.offset : decimal.offset + len(decimal)
    ]
    if isinstance(kind, t.Int) and not kind.signed:
        negative = (raw[:, 3] >> np.uint64(63) == 1) & decimal.is_valid().to_numpy(zero_copy_only=False)
        if negative.any():
            row = int(np.argmax(negative))
            raise _out_of_range(row, numbers[row], kind, 0, f"2^{bits} - 1")
    if bits == 128:
        sign = (raw[:, 1].view(np.int64) >> 63).view(np.uint64) if kind_signed(kind) else np.zeros(len(raw), np.uint64)
        outside = ((raw[:, 2] != sign) | (raw[:, 3] != sign)) & decimal.is_valid().to_numpy(zero_copy_only=False)
        if outside.any():
            row = int(np.argmax(outside))
            raise _out_of_range(row, numbers[row], kind, "-2^127", "2^127 - 1")
        raw = np.ascontiguousarray(raw[:, :2])
    target = pa.binary(bits // 8)
    return _with_validity(target, [np.ascontiguousarray(raw)], decimal)


def kind_signed(kind: t.DataType) -> bool:
    """Whether the stored integer of a number type has a sign."""
    return kind.signed if isinstance(kind, t.Int) else True


def _with_validity(target: pa.DataType, buffers: list[npt.NDArray[Any]], like: pa.Array) -> pa.Array:
    """An array of `target` over numpy buffers, NULL where `like` is."""
    bitmap = None
    if like.null_count:
        valid = like.is_valid().to_numpy(zero_copy_only=False)
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(target, len(like), [bitmap, *(pa.py_buffer(each) for each in buffers)])


def _decimal(array: pa.Array, kind: t.Decimal) -> pa.Array:
    source = array.type
    if _is_text(source):
        return read_text(_binary(array), kind)
    if source == storage_type(kind) and pa.types.is_fixed_size_binary(source):
        return array
    wide = pa.decimal256(76, kind.scale)
    try:
        if pa.types.is_floating(source):
            exact = array.cast(pa.float64()).cast(wide)
        elif pa.types.is_integer(source):
            exact = array.cast(pa.decimal128(20, 0)).cast(wide)
        elif pa.types.is_decimal(source):
            exact = array.cast(wide)
        else:
            raise _mismatch(array, kind)
    except pa.ArrowInvalid as failure:
        name = "TYPE_MISMATCH" if "truncat" in str(failure) or "rescal" in str(failure).lower() else "DECIMAL_OVERFLOW"
        raise error(name, f"A value does not fit {kind} exactly: {failure}", "Round it first") from failure
    limit = 10**kind.precision
    extremes = pc.min_max(exact)
    for end in ("min", "max"):
        value = extremes[end].as_py()
        if value is not None and abs(int(_ALL_DIGITS.scaleb(value, kind.scale))) >= limit:
            row = int(pc.index(exact, extremes[end]).as_py())
            raise _at(row, error("DECIMAL_OVERFLOW", f"Value {array[row]} has too many digits for {kind}"))
    raw = np.frombuffer(exact.buffers()[1] or b"", "<i8").reshape(-1, 4)[exact.offset : exact.offset + len(exact)]
    words = {32: 1, 64: 1, 128: 2, 256: 4}[kind.bits]
    cut = np.ascontiguousarray(raw[:, :words])
    if kind.bits == 32:
        cut = cut.astype(np.int32)
    return _with_validity(storage_type(kind), [cut], exact)


# --- dates and times


def _days(array: pa.Array, kind: t.DataType) -> pa.Array:
    source = array.type
    if pa.types.is_date32(source):
        return array.view(pa.int32())
    if pa.types.is_date64(source):
        return array.cast(pa.date32()).view(pa.int32())
    if pa.types.is_timestamp(source):
        ticks = array.view(pa.int64())
        seconds = ticks.fill_null(0).to_numpy(zero_copy_only=False) // _UNIT_TICKS[source.unit]
        return _with_validity(pa.int64(), [zone(source.tz or "").to_local(seconds) // 86400], ticks)
    return _whole_numbers(array, kind)


def _ticks(array: pa.Array, kind: t.DateTime | t.DateTime64, precision: int) -> pa.Array:
    """UTC ticks of 10^-precision seconds."""
    source = array.type
    if pa.types.is_date(source):
        days = array.cast(pa.date32()).view(pa.int32())
        seconds = zone(kind.timezone).start_of_day(days.fill_null(0).to_numpy(zero_copy_only=False))
        return _scaled(_with_validity(pa.int64(), [seconds], days), 1, 10**precision, kind, array)
    if pa.types.is_timestamp(source):
        return _scaled(
            array.cast(pa.timestamp(source.unit)).view(pa.int64()), _UNIT_TICKS[source.unit], 10**precision, kind, array
        )
    if pa.types.is_integer(source):
        return _checked(array, -(1 << 63), (1 << 63) - 1, t.Int(64, signed=True), array)
    if pa.types.is_floating(source) and isinstance(kind, t.DateTime64):
        values = array.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False) * 10**precision
        if not (np.abs(values) < 2.0**63).all():
            row = int(np.argmin(np.abs(values) < 2.0**63))
            raise _out_of_range(row, array[row], kind, "-2^63", "2^63 - 1 ticks")
        return _with_validity(pa.int64(), [np.floor(values).astype(np.int64)], array)
    raise _mismatch(array, kind)


def _scaled(ticks: pa.Array, old: int, new: int, kind: t.DataType, source: pa.Array) -> pa.Array:
    if old == new:
        return ticks
    values = ticks.fill_null(0).to_numpy(zero_copy_only=False)
    if new > old:
        limit = ((1 << 63) - 1) // (new // old)
        outside = (values > limit) | (values < -limit)
        if outside.any():
            row = int(np.argmax(outside))
            raise _out_of_range(row, source[row], kind, -limit // old, f"{limit // old} seconds")
        return _with_validity(pa.int64(), [values * (new // old)], ticks)
    return _with_validity(pa.int64(), [values // (old // new)], ticks)


def _time(array: pa.Array, kind: t.Time | t.Time64) -> pa.Array:
    if pa.types.is_time(array.type):
        precision = kind.precision if isinstance(kind, t.Time64) else 0
        bits = pa.int32() if array.type.bit_width == 32 else pa.int64()
        ticks = _scaled(array.view(bits).cast(pa.int64()), _UNIT_TICKS[array.type.unit], 10**precision, kind, array)
        return ticks.cast(storage_type(kind))
    target = storage_type(kind)
    limits = _limits(target)
    return _checked(_whole_numbers(array, kind), *(limits or (0, 0)), kind, array)


# --- other types


def _enum(array: pa.Array, kind: t.Enum) -> pa.Array:
    numbers = _whole_numbers(array, kind)
    known = pa.array([number for _, number in kind.items], pa.int64())
    bad = pc.and_(pc.invert(pc.is_in(numbers.cast(pa.int64()), value_set=known)), numbers.is_valid())
    flags = bad.to_numpy(zero_copy_only=False)
    if flags.any():
        row = int(np.argmax(flags))
        raise _at(row, error("UNKNOWN_ELEMENT_OF_ENUM", f"Unexpected value {array[row]} in enum {kind}"))
    return numbers.cast(storage_type(kind))


def _fixed_string(array: pa.Array, kind: t.FixedString) -> pa.Array:
    if not _is_text(array.type):
        raise _mismatch(array, kind)
    texts = _binary(array)
    sizes = pc.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False)
    if len(sizes) and int(sizes.max()) > kind.length:
        row = int(np.argmax(sizes > kind.length))
        raise _at(row, error("TOO_LARGE_STRING_SIZE", f"A string of {sizes[row]} bytes is too long for {kind}"))
    offsets = np.frombuffer(texts.buffers()[1], np.int32, count=len(texts) + 1, offset=texts.offset * 4).astype(
        np.int64
    )
    raw = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    out = np.zeros((len(texts), kind.length), np.uint8)
    lengths = np.diff(offsets)
    rows = np.repeat(np.arange(len(texts)), lengths)
    columns = np.arange(offsets[-1] - offsets[0]) - np.repeat(offsets[:-1] - offsets[0], lengths)
    if len(rows):
        # The bytes under a NULL may have any length.
        inside = columns < kind.length
        out[rows[inside], columns[inside]] = raw[offsets[0] : offsets[-1]][inside]
    return _with_validity(pa.binary(kind.length), [out], texts)


def _sixteen_bytes(array: pa.Array, kind: t.UUID | t.IPv6) -> pa.Array:
    source = array.type
    if pa.types.is_fixed_size_binary(source) and source.byte_width == 16:
        if isinstance(kind, t.IPv6):
            return array
        raw = np.frombuffer(array.buffers()[1] or b"", np.uint8, count=len(array) * 16, offset=array.offset * 16)
        halves = raw.reshape(-1, 2, 8)[:, :, ::-1]
        return _with_validity(pa.binary(16), [np.ascontiguousarray(halves)], array)
    if not _is_text(source):
        raise _mismatch(array, kind)
    texts = _binary(array)
    sizes = pc.binary_length(texts).drop_null()
    if (
        len(sizes)
        and (pa.types.is_binary(source) or pa.types.is_large_binary(source))
        and pc.all(pc.equal(sizes, 16)).as_py()
    ):
        return _sixteen_bytes(texts.cast(pa.binary(16)), kind)
    return read_text(texts, kind)


def _nested(array: pa.Array, kind: t.Array | t.Map | t.Tuple) -> pa.Array:
    source = array.type
    if _is_text(source):
        return _values(cut_texts(_binary(array), kind), kind)
    if isinstance(kind, t.Tuple):
        return _struct(array, kind)
    target = storage_type(kind)
    if (
        pa.types.is_fixed_size_list(source)
        or pa.types.is_list_view(source)
        or pa.types.is_large_list_view(source)
        or pa.types.is_large_list(source)
    ):
        array = array.cast(pa.list_(source.value_type))
    if pa.types.is_struct(source) and isinstance(kind, t.Map):
        array = _struct_as_map(array, kind)
    is_map = pa.types.is_map(array.type)
    if not (pa.types.is_list(array.type) or is_map):
        raise _mismatch(array, kind)
    offsets = np.frombuffer(array.buffers()[1] or b"\0\0\0\0", np.int32, count=len(array) + 1, offset=array.offset * 4)
    sizes = np.diff(offsets)
    if array.null_count:
        sizes = np.where(array.is_valid().to_numpy(zero_copy_only=False), sizes, 0)
    exact = array.null_count == 0
    start, end = int(offsets[0]), int(offsets[-1])
    if is_map:
        items = pa.StructArray.from_arrays([array.keys, array.items], ["keys", "values"]).slice(start, end - start)
    else:
        items = array.values.slice(start, end - start)
    if not exact:
        keep = np.repeat(np.arange(len(array)), np.diff(offsets))
        items = items.filter(pa.array(array.is_valid().to_numpy(zero_copy_only=False)[keep]))
    inner: t.DataType = t.Tuple((kind.key, kind.value), ("keys", "values")) if isinstance(kind, t.Map) else kind.inner
    values = _convert(items, inner)
    new = np.zeros(len(array) + 1, np.int32)
    np.cumsum(sizes, out=new[1:])
    return pa.ListArray.from_arrays(pa.array(new), values, type=target)


def _struct_as_map(array: pa.StructArray, kind: t.Map) -> pa.MapArray:
    """Structs as maps from field names to values: Arrow and polars convert dicts to structs with the keys of all rows.

    A NULL field means a missing key. If the map's values may be NULL too, this is ambiguous, and NULL is refused.
    """
    fields = list(array.type)
    if not fields:
        return pa.MapArray.from_arrays(
            pa.array([0] * (len(array) + 1), pa.int32()), pa.array([], pa.string()), pa.array([], pa.null())
        )
    values = [array.field(at) for at in range(len(fields))]
    present = np.stack([each.is_valid().to_numpy(zero_copy_only=False) for each in values], axis=1)
    if array.null_count:
        present &= array.is_valid().to_numpy(zero_copy_only=False)[:, None]
    if (t.is_nullable(kind.value) or isinstance(kind.value, t.Variant)) and not present.all():
        row, at = (int(index) for index in np.argwhere(~present)[0])
        message = f"A NULL in a struct: is the key {fields[at].name} missing, or its value NULL? The column is {kind}"
        raise _at(row, error("TYPE_MISMATCH", message, "Give an Arrow map, a list of (key, value), or dicts as such"))
    kinds = {each.type for each in values if not pa.types.is_null(each.type)}
    if len(kinds) > 1:
        raise _mismatch(array, kind)
    item_type = kinds.pop() if kinds else pa.null()
    # `items` below are ordered by field; the map needs them ordered by row, then field.
    order = np.arange(present.size).reshape(present.shape[::-1]).T[present]
    items = pa.concat_arrays([each if each.type == item_type else pa.nulls(len(each), item_type) for each in values])
    keys = pa.array([field.name for field in fields], pa.string()).take(pa.array(np.nonzero(present)[1]))
    offsets = np.concatenate([[0], present.sum(axis=1).cumsum()]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items.take(pa.array(order)))


_FAMILIES = (
    (pa.types.is_integer, t.Int),
    (pa.types.is_floating, t.Float),
    (lambda kind: _is_text(kind), t.String),
    (pa.types.is_list, t.Array),
)
"""(test of the Arrow type, types of a Variant that such values may belong to)."""


def _variant(array: pa.Array, kind: t.Variant) -> pa.Array:
    """Convert a struct with a field for each type, or values that can only belong to one of the types."""
    target = storage_type(kind)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        by_type = {}
    elif pa.types.is_struct(array.type) and {field.name for field in array.type} <= set(kind.names):
        by_type = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    else:
        fitting = [n for n, e in zip(kind.names, kind.alternatives, strict=True) if arrow_type(e) == array.type]
        if not fitting:
            family = next((f for s, f in _FAMILIES if s(array.type)), ())
            fitting = [n for n, e in zip(kind.names, kind.alternatives, strict=True) if isinstance(e, family)]
        if len(fitting) != 1:
            raise error(
                "TYPE_MISMATCH",
                f"Arrow type {array.type} is {'none' if not fitting else 'more than one'} of the types of {kind}",
                "Give a struct with a field for each type, named as the type",
            )
        by_type = {fitting[0]: array}
    columns, counts = [], np.zeros(len(array), np.int64)
    for name, each in zip(kind.names, kind.alternatives, strict=True):
        values = by_type.get(name)
        if values is None or values.null_count == len(values):
            columns.append(pa.nulls(len(array), storage_type(each)))
            continue
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        counts += valid
        columns.append(_convert(values.drop_null(), each).take(pa.array(np.cumsum(valid) - 1, mask=~valid)))
    if (counts > 1).any():
        row = int(np.argmax(counts))
        raise _at(row, error("INCORRECT_DATA", f"Values of more than one type in one row of {kind}"))
    return pa.StructArray.from_arrays(columns, fields=list(target))


def _dynamic(array: pa.Array) -> pa.Array:
    """Convert JSON text (`arrow.json`) by parsing it; strings, booleans, numbers and lists of these by value."""
    if array.type == STORED_DYNAMIC:
        return array.storage
    is_json = isinstance(array.type, pa.BaseExtensionType) and array.type.extension_name == "arrow.json"
    array = _unwrapped(array, t.Dynamic())
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.binary())
    if is_json:
        return by_distinct(_binary(array), lambda text: dynamic_cell(parse_json(text)), pa.binary())
    plain = array.type
    while pa.types.is_list(plain) or pa.types.is_large_list(plain):
        plain = plain.value_type
    if not (_is_text(plain) or pa.types.is_boolean(plain) or pa.types.is_integer(plain) or pa.types.is_floating(plain)):
        raise _mismatch(array, t.Dynamic())
    return by_distinct(array, dynamic_cell, pa.binary())


def _json(array: pa.Array, kind: t.Json) -> pa.Array:
    if array.type == storage_type(kind):
        return array
    if pa.types.is_struct(array.type):
        texts = [None if each is None else json.dumps(each, ensure_ascii=False) for each in array.to_pylist()]
        array = pa.array(texts, pa.string())
    if not _is_text(array.type):
        raise _mismatch(array, kind)
    return json_from_text(_binary(array), kind, _convert)


def _struct(array: pa.Array, kind: t.Tuple) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _mismatch(array, kind)
    field_names = [array.type.field(i).name for i in range(array.type.num_fields)]
    if len(field_names) != len(kind.elements):
        raise error(
            "CANNOT_INSERT_VALUE_OF_DIFFERENT_SIZE_INTO_TUPLE",
            f"A struct of {len(field_names)} fields does not fit {kind}",
        )
    names = tuple_names(kind)
    by_name = set(field_names) == set(names)
    fields = [array.field(field_names.index(name) if by_name else i) for i, name in enumerate(names)]
    if not array.null_count:
        columns = [_convert(field, element) for field, element in zip(fields, kind.elements, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(storage_type(kind)))
    for field, element in zip(fields, kind.elements, strict=True):  # below a NULL, anything may lie
        if not t.is_nullable(element) and field.null_count > 0:
            missing = pc.and_(field.is_null(), array.is_valid())
            if missing.true_count:
                raise _null(missing.index(True).as_py(), element)
    columns = [_convert(field, element, nullable=True) for field, element in zip(fields, kind.elements, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(storage_type(kind)), mask=array.is_null())


__all__ = ["to_public", "to_public_table", "to_storage"]
