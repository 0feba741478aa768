"""Values of several types in one column: Variant, whose types are known, and Dynamic, whose types the part tells.

A Variant has a stream of discriminators, `.variant_discr`, and for each of its types the streams of a column of that
type, which holds the rows of that type only. A discriminator is the number of a type in order of name, 255 for NULL.
The stream begins with a u64: 0 for a byte a row; 1 for runs (a run a granule) of varuint rows and u8 form, with a
byte a row behind form 0 and one byte for all rows behind form 1.

A Dynamic is a Variant over the types that occur in the part and `SharedVariant`, strings of type and value of all
other types. Its stream `.dynamic_structure` tells the types: u64 version (1, 2 or 4), in version 1 a varuint limit,
varuint count and the types, as texts or (version 4) as bytes, then statistics: in version 4 a byte whether there are
any; a varuint for each type with `SharedVariant`, by name, then varuint count and text and varuint for each type in
`SharedVariant`. We write all values as `SharedVariant`: what a column holds is known only at its end, and every
ClickHouse that knows Dynamic reads this.

Source: ClickHouse, `SerializationVariant.cpp`, `SerializationDynamic.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError, error
from mergelake.core.types import types as t
from mergelake.core.types.type_binary import decode_type, encode_name, type_name
from mergelake.core.types.varuint import write_varuint
from mergelake.format.kernels.memory import region
from mergelake.format.serializations import ragged
from mergelake.format.serializations.ragged import VarBinaryColumn
from mergelake.format.serializations.scalars import INT32_MAX
from mergelake.format.serializations.serialization import (
    Bounds,
    Serialization,
    Sink,
    StreamCursor,
    StreamSource,
    as_numpy,
    coerced,
    mismatch,
    null_bytes,
    refuse_nulls,
)
from mergelake.format.serializations.values import binary_cells, encode_cells

NULL = 255
"""The discriminator of NULL."""
SHARED = "SharedVariant"
_TYPE_BYTES = 4096
"""Bytes that are tried first for the binary form of a type; it does not say its length."""


class VariantSerialization(Serialization):
    """A discriminator a row, and the values of each type as a column of their own."""

    def __init__(self, path: str, alternatives: Sequence[Serialization], arrow: pa.DataType) -> None:
        self.stream = path + ".variant_discr"
        self.own_streams, self.children = (self.stream,), tuple(alternatives)
        self.arrow = arrow
        self._begun = False

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`, a struct with a field for each type."""
        refuse_nulls(array, nulls=nulls)
        if not pa.types.is_struct(array.type) or array.type.num_fields != len(self.children):
            raise mismatch(array, str(self.arrow))
        which = np.full(len(array), NULL, np.uint8)
        fields = array.flatten()
        for number, field in enumerate(fields):
            present = null_bytes(field) == 0
            if (which[present] != NULL).any():
                raise error("INCORRECT_DATA", "Values of more than one type in one row of a Variant")
            which[present] = number
        self.encode_split(which, [field.drop_null() for field in fields], bounds, out)

    def encode_split(self, which: NDArray[np.uint8], parts: Sequence[pa.Array], bounds: Bounds, out: Sink) -> None:
        """Write rows whose discriminators are `which` and whose values lie in `parts`, by type."""
        if not self._begun:
            out.put(self.stream, region(bytes(8)), None)
            self._begun = True
        out.put(self.stream, region(which), bounds)
        for number, (alternative, values) in enumerate(zip(self.children, parts, strict=True)):
            before = np.concatenate([np.zeros(1, np.int64), np.cumsum(which == number)])
            alternative.encode(values, before[bounds], out)

    def prefix(self, source: StreamSource) -> None:
        """Read what comes before a granule of a Compact part."""
        source.notes[self.stream] = source.stream(self.stream).word()
        super().prefix(source)

    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        which, parts = self.split(source, rows)
        children = [_spread(part, which == number) for number, part in enumerate(parts)]
        return pa.Array.from_buffers(self.arrow, rows, [None], children=children)

    def split(self, source: StreamSource, rows: int) -> tuple[NDArray[np.uint8], list[pa.Array]]:
        """The discriminators of `rows` rows, each 255 or below the number of types, and the values of each type."""
        if rows and self.stream not in source.notes:
            source.notes[self.stream] = source.start(self.stream).word()
        which = _discriminators(source.stream(self.stream), int(source.notes.get(self.stream, 0)), rows)
        counts = np.bincount(which, minlength=256)
        if counts[len(self.children) : NULL].any():
            raise source.stream(self.stream).corrupt("A discriminator of a Variant is past its types")
        parts = []
        for count, alternative in zip(counts.tolist(), self.children, strict=False):
            parts.append(alternative.decode(source, count, np.array([count], np.int64)))
        return which, parts


def _discriminators(cursor: StreamCursor, mode: int, rows: int) -> NDArray[np.uint8]:
    """The discriminators of `rows` rows; `mode` is 0 (a byte a row) or 1 (runs)."""
    if mode > 1:
        raise cursor.corrupt("Unknown mode of the discriminators of a Variant", "0 or 1", str(mode))
    if mode == 0 or not rows:
        return as_numpy(cursor.take(rows), np.uint8)
    pieces: list[NDArray[np.uint8]] = []
    done = 0
    while done < rows:
        count, form = read_varuint(cursor), cursor.take(1).byte(0)
        if count > rows - done or form > 1:
            raise cursor.corrupt("A run of discriminators does not fit its rows", f"at most {rows - done}", str(count))
        values = as_numpy(cursor.take(1 if form and count else count), np.uint8)
        pieces.append(np.repeat(values, count) if form and count else values)
        done += count
    return np.concatenate(pieces) if len(pieces) != 1 else pieces[0]


def _spread(values: pa.Array, rows: NDArray[np.bool_]) -> pa.Array:
    """`values` at the rows that are true, NULL at the others."""
    if len(values) == len(rows):
        return values
    if not len(values):
        return pa.nulls(len(rows), values.type)
    return values.take(pa.array(np.cumsum(rows) - 1, mask=~rows))


def read_varuint(cursor: StreamCursor) -> int:
    """The next varuint."""
    value = shift = 0
    while True:
        byte = cursor.take(1).byte(0)
        value |= (byte & 127) << shift
        if byte < 128:
            return value
        shift += 7
        if shift > 63:
            raise cursor.corrupt("A varuint is longer than 64 bits")


def read_text(cursor: StreamCursor) -> str:
    """The next text: varuint length and bytes."""
    return cursor.take(read_varuint(cursor)).tobytes().decode(errors="surrogateescape")


def read_count(cursor: StreamCursor) -> int:
    """The next varuint, a number of things that take a byte each at least."""
    count = read_varuint(cursor)
    if count > cursor.left:
        raise cursor.corrupt("A count is larger than what is left", f"at most {cursor.left}", str(count))
    return count


@dataclass(frozen=True, slots=True)
class DynamicTypes:
    """The content of `.dynamic_structure`."""

    heads: tuple[bytes, ...]
    """Types in the binary form, by name; empty for `SharedVariant`."""
    kinds: tuple[t.DataType, ...]
    variant: VariantSerialization


Build = Callable[[Sequence[str], Sequence[t.DataType]], VariantSerialization]
"""The serialiser of a Variant over types of these names."""


class DynamicSerialization(Serialization):
    """Type and value of each row as bytes, `binary`; NULL where the row is."""

    arrow = pa.binary()

    def __init__(self, path: str, limit: int, build: Build) -> None:
        self.structure = path + ".dynamic_structure"
        self._limit = limit
        self._build = build
        self._shared = build((SHARED,), (t.STRING,))
        # The streams that we write; a part that ClickHouse wrote has those of its types, too.
        self.own_streams, self.children = (self.structure,), (self._shared,)
        self._begun = False

    def encode(self, array: pa.Array, bounds: Bounds, out: Sink, *, nulls: bool = False) -> None:
        """Write `array`."""
        array = coerced(array, self.arrow)
        if not self._begun:
            # version 1, the limit, no types but SharedVariant, and empty statistics
            body = (1).to_bytes(8, "little") + write_varuint(self._limit) + b"\0\0\0"
            out.put(self.structure, region(body), None)
            self._begun = True
        out.put(self.structure, region(b""), bounds * 0)
        which = null_bytes(array) * np.uint8(NULL)
        self._shared.encode_split(which, [array.drop_null()], bounds, out)

    def prefix(self, source: StreamSource) -> None:
        """Read what comes before a granule of a Compact part."""
        cursor = source.stream(self.structure)
        types, version = self._types(cursor)
        if version != _BYTES or cursor.take(1).byte(0):
            skip_statistics(cursor, len(types.kinds))
        source.notes[self.structure] = types
        types.variant.prefix(source)

    def decode(self, source: StreamSource, rows: int, granules: Bounds) -> pa.Array:
        """Read `rows` values."""
        which, cells = self.cells(source, rows)
        if cells.offsets[-1] > INT32_MAX:
            raise source.stream(self.structure).corrupt("More than 2 GiB of values in one piece; read fewer at once")
        valid = which != NULL
        bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        offsets = pa.py_buffer(cells.offsets.astype(np.int32))
        return pa.Array.from_buffers(self.arrow, rows, [bits, offsets, pa.py_buffer(cells.data)])

    def cells(self, source: StreamSource, rows: int) -> tuple[NDArray[np.uint8], VarBinaryColumn]:
        """The discriminators of `rows` rows, and type and value of each; a NULL has no bytes."""
        if self.structure not in source.notes:
            source.notes[self.structure], _ = self._types(source.start(self.structure))
        types: DynamicTypes = source.notes[self.structure]
        which, parts = types.variant.split(source, rows)
        pieces = [
            ragged.join([ragged.repeat(head, len(part)), encode_cells(part, kind)]) if head else binary_cells(part)
            for head, kind, part in zip(types.heads, types.kinds, parts, strict=True)
        ]
        return which, interleave(which, pieces)

    def _types(self, cursor: StreamCursor) -> tuple[DynamicTypes, int]:
        version = cursor.word()
        if version not in (_LIMITED, _NAMES, _BYTES):
            raise cursor.corrupt("Unknown version of the structure of a Dynamic column", found=str(version))
        if version == _LIMITED:
            read_varuint(cursor)
        types: dict[str, tuple[bytes, t.DataType]] = {SHARED: (b"", t.STRING)}
        for _ in range(read_count(cursor)):
            if version == _BYTES:
                head, kind = _read_type(cursor)
                types[type_name(head, kind)] = (head, kind)
            else:
                name = read_text(cursor)
                types[name] = encode_name(name)
        if len(types) > NULL:
            raise cursor.corrupt("A Dynamic column has more than 254 types", found=str(len(types)))
        names = sorted(types, key=lambda name: name.encode(errors="surrogateescape"))
        heads, kinds = tuple(types[name][0] for name in names), tuple(types[name][1] for name in names)
        return DynamicTypes(heads, kinds, self._build(names, kinds)), version


_LIMITED, _NAMES, _BYTES = 1, 2, 4
"""Versions of a structure: with the limit of types, with their names, with their bytes."""


def skip_statistics(cursor: StreamCursor, count: int) -> None:
    """Step over the statistics: values of each of `count` types (or paths), then of those in the shared data."""
    for _ in range(count):
        read_varuint(cursor)
    for _ in range(read_count(cursor)):
        cursor.take(read_varuint(cursor))
        read_varuint(cursor)


def _read_type(cursor: StreamCursor) -> tuple[bytes, t.DataType]:
    """The next type in the binary form: its bytes, and the type."""
    for size in (min(_TYPE_BYTES, cursor.left), cursor.left):
        body = cursor.rest().part(0, size).tobytes()
        try:
            kind, end = decode_type(body, 0)
        except CorruptDataError:
            if size < cursor.left:
                continue
            raise
        cursor.take(end)
        return body[:end], kind
    raise cursor.corrupt("A type ends too early")


def interleave(which: NDArray[np.uint8], pieces: Sequence[VarBinaryColumn]) -> VarBinaryColumn:
    """Row by row the next cell of `pieces[which[row]]`; none where there is no such piece."""
    cell = np.full(len(which), -1)
    before = 0
    for number, cells in enumerate(pieces):
        cell[which == number] = np.arange(before, before + len(cells))
        before += len(cells)
    return ragged.pick(pieces[0] if len(pieces) == 1 else ragged.concat(pieces), cell)
