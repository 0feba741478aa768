"""Partition ids: the first part of a part's name, computed from the values of the partition key.

Where every value of the key is an integer of at most 64 bits (dates and enums are), the id is their decimal
text joined by `-`, a `Date` as YYYYMMDD. Otherwise it is the SipHash-128, in hex, of the values, each tagged
with a byte that tells its class. `partition.dat` holds the values themselves.

Rows are grouped by value first, so that ids are made once for each distinct partition and not for each row.

Source: ClickHouse, `MergeTreePartition.cpp` (`getID`, `FieldVisitorHash`-like hashing of `Field`s).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.format.serializations import ragged
from mergelake.format.serializations.ragged import VarBinaryColumn
from mergelake.format.serializations.siphash import siphash128_rows
from mergelake.format.serializations.values import binary_cells, encode_cells, fixed_bytes, plain_type, value_cells


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition."""

    id: str
    data: bytes = b""
    """The bytes of `partition.dat`; empty without a partition key."""


_ID = re.compile(r"[0-9A-Za-z-]+")
_DAYS = t.Int(16, signed=False)

WHOLE_TABLE = Partition("all")
"""The only partition of a table without a partition key."""


def check_partition_id(partition_id: str) -> None:
    """Raise INVALID_PARTITION_VALUE for what cannot be the id of a partition."""
    if not partition_id:
        raise error("INVALID_PARTITION_VALUE", "Partition id is empty", "system.parts has the ids")
    if not isinstance(partition_id, str) or not _ID.fullmatch(partition_id):
        raise error("INVALID_PARTITION_VALUE", f"Invalid partition format: {partition_id}", "system.parts has the ids")


def partition_keys(
    arrays: Sequence[pa.Array], types: Sequence[t.DataType]
) -> tuple[NDArray[np.int64], list[Partition]]:
    """Group rows by the values of the partition key.

    Takes the key's columns (storage form, of one length) and types; returns for each row the number of its
    group, and the partition of each group, numbered in order of first appearance. Without key columns there is
    nothing to group: use `WHOLE_TABLE`.
    """
    codes, firsts = group_rows([_groupable(a, kind) for a, kind in zip(arrays, types, strict=True)])
    distinct = [array.take(pa.array(firsts)) for array in arrays]
    return codes, partitions_of(distinct, types)


def partitions_of(arrays: Sequence[pa.Array], types: Sequence[t.DataType]) -> list[Partition]:
    """The partition of each row."""
    plain = [array.dictionary_decode() if pa.types.is_dictionary(array.type) else array for array in arrays]
    kinds = [plain_type(kind) for kind in types]
    values = value_cells(plain, kinds)
    shown = [_shown_type(kind, own) for kind, own in zip(types, kinds, strict=True)]
    ids = partition_ids(plain, shown)
    return [Partition(name, values.row(row)) for row, name in enumerate(ids)]


def _shown_type(kind: t.DataType, plain: t.DataType) -> t.DataType:
    """The type by which a value is named: of dates only the bare type Date is printed as such, a Map is no Array."""
    if kind == t.LowCardinality(t.Date()):
        return _DAYS
    return kind if t.holds(kind, t.Map) else plain


def partition_ids(arrays: Sequence[pa.Array], types: Sequence[t.DataType]) -> list[str]:
    """The id of each row's partition; plain arrays and types (no LowCardinality)."""
    if not arrays:
        return []
    texts = [_integer_text(array, kind) for array, kind in zip(arrays, types, strict=True)]
    known = [text for text in texts if text is not None]
    joined = pa.nulls(len(arrays[0]), pa.string())
    if len(known) == len(arrays):
        joined = pc.binary_join_element_wise(*known, "-") if len(known) > 1 else known[0]
    ids: list[str | None] = joined.to_pylist()
    if joined.null_count:
        hashed = np.flatnonzero(pc.is_null(joined).to_numpy(zero_copy_only=False))
        rows = pa.array(hashed)
        tagged = ragged.join([_tagged(a.take(rows), kind) for a, kind in zip(arrays, types, strict=True)])
        for row, digest in zip(hashed.tolist(), siphash128_rows(tagged), strict=True):
            ids[row] = digest.tobytes().hex()
    return [str(name) for name in ids]


def group_rows(arrays: Sequence[pa.Array]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number the distinct rows of flat columns: (group of each row, first row of each group).

    Groups are numbered in order of first appearance.
    """
    codes = np.zeros(len(arrays[0]), np.int64)
    for number, array in enumerate(arrays):
        encoded = array.dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy()
        if number == 0:
            codes = indices.astype(np.int64)
        elif len(encoded.dictionary) > 1:
            # Renumbering after each column keeps the product below the square of the row count.
            pairs = pa.array(codes * len(encoded.dictionary) + indices)
            codes = pairs.dictionary_encode().indices.to_numpy().astype(np.int64)
    firsts = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    firsts[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of several writes the last one stays: the first row
    return codes, firsts


def _groupable(array: pa.Array, data_type: t.DataType) -> pa.Array:
    """An array with equal values where, and only where, the partition is the same."""
    if pa.types.is_dictionary(array.type):
        values = _groupable(array.dictionary, t.inner_type(data_type))
        return values.take(array.indices)
    if pa.types.is_floating(array.type):  # by bits: -0.0 is another partition than 0.0
        return array.view(pa.uint32() if array.type.bit_width == 32 else pa.uint64())
    if pa.types.is_nested(array.type):
        return encode_cells(array, data_type).to_arrow()
    return array


def _integer_text(array: pa.Array, data_type: t.DataType) -> pa.Array | None:
    """The text of each value in an id, NULL where it has none; None if the type has no such text."""
    match data_type:
        case t.Nullable(inner):
            return _integer_text(array, _DAYS if isinstance(inner, t.Date) else inner)
        case t.Date():
            return pc.strftime(array.cast(pa.int32()).cast(pa.date32()), format="%Y%m%d")
        case t.Int(bits) if bits <= 64:
            return array.cast(pa.string())
        case t.Bool() | t.DateTime() | t.IPv4() | t.Enum() | t.Date32() | t.Interval() | t.Time():
            return array.cast(pa.string())
        case _:
            return None


def _tagged(array: pa.Array, data_type: t.DataType) -> VarBinaryColumn:
    """The bytes that each value adds to the hash: its class, then the value."""
    rows = len(array)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    match data_type:
        case t.LowCardinality(inner):
            return _tagged(array, inner)
        case t.Nullable(inner):
            null = pc.is_null(array).to_numpy(zero_copy_only=False)
            if isinstance(inner, t.Nothing):
                return ragged.repeat(b"\x00", rows)
            absent = ragged.take(ragged.repeat(b"\x00", rows), null)
            return ragged.join([absent, ragged.take(_tagged(array, inner), ~null)])
        case t.Int(bits, signed) if bits <= 64:
            return _number(b"\x02" if signed else b"\x01", array, np.int64 if signed else np.uint64)
        case t.Bool() | t.Date() | t.DateTime():
            return _number(b"\x01", array, np.uint64)
        case t.Enum() | t.Date32() | t.Interval() | t.Time():
            return _number(b"\x02", array, np.int64)
        case t.Float():
            return _number(b"\x03", array, np.float64)
        case t.BFloat16():
            wide = fixed_bytes(array).reshape(-1).view(np.uint16).astype(np.uint32) << 16
            return _number(b"\x03", pa.array(wide.view(np.float32)), np.float64)
        case t.String():
            cells = binary_cells(array)
            return ragged.join([_number(b"\x10", pa.array(cells.lengths()), np.uint64), cells])
        case t.Array() | t.Map():
            is_map = isinstance(data_type, t.Map)
            inner = t.Tuple((data_type.key, data_type.value)) if isinstance(data_type, t.Map) else data_type.inner
            elements, offsets = ragged.list_elements(array)
            counts = _number(b"\x1a" if is_map else b"\x11", pa.array(np.diff(offsets)), np.uint64)
            return ragged.join([counts, ragged.regroup(_tagged(elements, inner), offsets)])
        case t.Tuple(elements):
            head = ragged.repeat(b"\x12" + len(elements).to_bytes(8, "little"), rows)
            return ragged.join([head, *(_tagged(a, kind) for a, kind in zip(array.flatten(), elements, strict=True))])
        case _:
            return ragged.join([ragged.repeat(_fixed_class(data_type), rows), ragged.fixed(fixed_bytes(array))])


def _number(tag: bytes, array: pa.Array, kind: type[np.generic]) -> VarBinaryColumn:
    """The tag, then each value widened to 8 bytes. Values under NULL may be anything."""
    values = np.frombuffer(fixed_bytes(array).tobytes(), array.type.to_pandas_dtype()).astype(kind)
    return ragged.join([ragged.repeat(tag, len(array)), ragged.fixed(values.view(np.uint8).reshape(-1, 8))])


def _fixed_class(data_type: t.DataType) -> bytes:
    match data_type:
        case t.UUID() | t.Int(128, False):
            return b"\x04"
        case t.Int(128, True):
            return b"\x05"
        case t.FixedString(length):
            return b"\x10" + length.to_bytes(8, "little")
        case t.IPv4():
            return b"\x1e"
        case t.IPv6():
            return b"\x10" + (16).to_bytes(8, "little")
        case t.Decimal():
            return {32: b"\x13", 64: b"\x14", 128: b"\x15", 256: b"\x17"}[data_type.bits]
        case t.DateTime64() | t.Time64():
            return b"\x14"
        case t.Int(256, signed):
            return b"\x19" if signed else b"\x18"
        case _:
            raise error("NOT_IMPLEMENTED", f"A partition key of type {data_type} is not supported")
