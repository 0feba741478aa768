"""Kernels between the two forms of strings on disk and Arrow's offsets and bytes, and of varints.

Inline form: per value a varint length and the bytes. Copies go in whole vectors of 16 bytes where source and target
have the room (buffers of `memory.allocate` do), else byte for byte.
"""

from __future__ import annotations

from mergelake.core.jit.intrinsics import copy, copy16, inlined, kernel, peek8, peek32, peek64, store8, store32, store64
from mergelake.format.kernels.kernels_bits import VARINT_BITS, VARINT_MORE

VECTOR_BYTES = 16
_SHORT_BYTES = 64
"""Up to so many bytes a copy in vectors is faster than a call of memcpy."""
VARINT_BYTES_MAX = 5
"""Bytes that the length of a string takes at most: it has 31 bits."""
SPARE_BYTES = VECTOR_BYTES
"""Room beyond what is written, for the last vector."""
_INT32_MAX = 0x7FFFFFFF
_SHIFT_MAX_32, _SHIFT_MAX_64 = 28, 63
"""Where the last byte of a varint of 32 and of 64 bits goes."""
_LAST_BIT = 62
"""Bit of a number in `.sparse.idx`: no value follows in the granule.

Source: ClickHouse, `SerializationSparse.cpp`, `END_OF_GRANULE_FLAG`.
"""


@inlined
def _move(target: int, source: int, size: int, source_end: int) -> None:
    """Copy `size` bytes; may write a vector less a byte more at `target`, never reads at or after `source_end`."""
    whole = (size + VECTOR_BYTES - 1) & ~(VECTOR_BYTES - 1)
    if size <= _SHORT_BYTES and source + whole <= source_end:
        done = 0
        while done < size:
            copy16(target + done, source + done)
            done += VECTOR_BYTES
    else:
        copy(target, source, size)


@kernel
def join_inline(
    offsets: int, data: int, data_end: int, rows: int, valid: int, valid_at: int, out: int, bounds: int,
    granules: int, ends: int, wide: int,
) -> int:  # fmt: skip
    """Write `rows` strings in inline form to `out` and, for each granule, where it ends to `ends`.

    `offsets`: i32 (i64 if `wide`), rows + 1 of them, into the bytes [`data`, `data_end`). `valid`: a validity bitmap or
    0, `valid_at` its first bit; NULL is written as the empty string. `bounds`: end row of each granule, i64.
    `out` has room for the bytes, `VARINT_BYTES_MAX` a row and `SPARE_BYTES`. Returns the bytes written.
    """
    position = 0
    row = 0
    start = peek64(offsets) if wide else peek32(offsets)
    for g in range(granules):
        stop = peek64(bounds + 8 * g)
        while row < stop:
            end = peek64(offsets + 8 * row + 8) if wide else peek32(offsets + 4 * row + 4)
            size = end - start
            if valid:
                bit = valid_at + row
                if (peek8(valid + (bit >> 3)) >> (bit & 7)) & 1 == 0:
                    size = 0
            rest = size
            while rest >= VARINT_MORE:
                store8(out + position, (rest & VARINT_BITS) | VARINT_MORE)
                position += 1
                rest >>= 7
            store8(out + position, rest)
            position += 1
            _move(out + position, data + start, size, data_end)
            position += size
            start = end
            row += 1
        store64(ends + 8 * g, position)
    return position


@kernel
def split_inline(source: int, size: int, rows: int, offsets: int, out: int) -> int:
    """Read `rows` strings in inline form from the `size` bytes at `source`.

    Writes rows + 1 i32 to `offsets` and the bytes to `out` (room: `size` and `SPARE_BYTES`). Returns the bytes
    consumed, -1 for a string that leaves the buffer, -2 for more bytes than 31 bits count.
    """
    position = 0
    filled = 0
    source_end = source + size
    store32(offsets, 0)
    for row in range(rows):
        if position >= size:
            return -1
        length = peek8(source + position)
        position += 1
        if length >= VARINT_MORE:
            length &= VARINT_BITS
            shift = 7
            while True:
                if position >= size or shift > _SHIFT_MAX_32:
                    return -1
                byte = peek8(source + position)
                position += 1
                length |= (byte & VARINT_BITS) << shift
                shift += 7
                if byte < VARINT_MORE:
                    break
        if length > size - position:
            return -1
        _move(out + filled, source + position, length, source_end)
        position += length
        filled += length
        if filled > _INT32_MAX:
            return -2
        store32(offsets + 4 * row + 4, filled)
    return position


@kernel
def sum_lengths(lengths: int, rows: int, limit: int, offsets: int) -> int:
    """Turn `rows` u64 lengths into rows + 1 i32 `offsets`; returns their sum, or -1 when it would pass `limit`."""
    total = 0
    store32(offsets, 0)
    for row in range(rows):
        length = peek64(lengths + 8 * row)
        if length < 0 or length > limit - total:
            return -1
        total += length
        store32(offsets + 4 * row + 4, total)
    return total


@kernel
def sparse_positions(source: int, size: int, granule_rows: int, granules: int, out: int, room: int, used: int) -> int:
    """Row numbers of the values that a `.sparse.idx` stream says are not default.

    Per piece of a granule (a granule that a merge wrote at several times has several): varints, each the number of
    defaults before the next value, then one with bit 62 set that counts the trailing defaults. Writes at most `room`
    i64 to `out`, the bytes consumed to `used`; returns how many, or -1 when the stream is cut, holds nonsense or does
    not fit the rows.
    """
    position = 0
    count = 0
    base = 0
    for g in range(granules):
        rows = peek64(granule_rows + 8 * g)
        row = 0
        while True:
            value = 0
            shift = 0
            while True:
                if position >= size or shift > _SHIFT_MAX_64:
                    return -1
                byte = peek8(source + position)
                position += 1
                value |= (byte & VARINT_BITS) << shift
                shift += 7
                if byte < VARINT_MORE:
                    break
            last = (value >> _LAST_BIT) & 1
            value &= (1 << _LAST_BIT) - 1
            if value > rows - row:
                return -1
            row += value
            if last:
                if row == rows:
                    break
            else:
                if row >= rows or count >= room:
                    return -1
                store64(out + 8 * count, base + row)
                count += 1
                row += 1
        base += rows
    store64(used, position)
    return count
