"""Kernels of LowCardinality: numbering keys through a hash table, packing and unpacking index blocks.

The hash table is open-addressed: the slot of a key is the lower bits of its hash, or the next free one after it.
"""

from __future__ import annotations

import numpy as np

from mergelake.core.jit.city_hash128 import city
from mergelake.core.jit.intrinsics import (
    copy,
    inlined,
    kernel,
    load64,
    peek8,
    peek16,
    peek32,
    peek64,
    store8,
    store16,
    store32,
    store64,
)

WIDTH_MASK = 0xFF
"""Bits of an index block's flags that tell the width of an index: 0, 1, 2, 3 for 1, 2, 4, 8 bytes.

Source of all flags: ClickHouse, `SerializationLowCardinality.cpp`, `IndexesSerializationType`.
"""
WIDTH_MAX = 3
SHARED, ADDITIONAL, NEW = 0x100, 0x200, 0x400
"""Flags: indexes count through the shared dictionary first; the block brings keys of its own; a dictionary starts."""
_HEADER_BYTES = 16
"""Of an index block without keys: u64 flags, u64 rows."""
_NONE = 0xFFFFFFFF
"""-1 as an i32 that `peek32` reads: a free slot, an entry without an id, NULL among ids."""
_NO_INDEX = 1 << 62
"""In place of an index that is no int64: past the end of every dictionary."""


@inlined
def _equal(a: int, b: int, size: int) -> bool:
    """Whether `size` bytes at two addresses are the same."""
    at = 0
    while at + 8 <= size:
        if load64(a + at) != load64(b + at):
            return False
        at += 8
    while at < size:
        if peek8(a + at) != peek8(b + at):
            return False
        at += 1
    return True


@kernel
def place_keys(offsets: int, data: int, first: int, end: int, slots: int, mask: int) -> None:
    """Put keys [first, end) into an empty table of mask + 1 slots (i32, -1 is free).

    Key i is data[offsets[i]:offsets[i + 1]], offsets i64.
    """
    for key in range(first, end):
        start = peek64(offsets + 8 * key)
        size = peek64(offsets + 8 * key + 8) - start
        slot = np.int64(city(data + start, size)[0] & np.uint64(mask))
        while peek32(slots + 4 * slot) != _NONE:
            slot = (slot + 1) & mask
        store32(slots + 4 * slot, key)


@kernel
def number_rows(
    indexes: int, rows: int, valid: int, valid_at: int, entries: int, known: int, key_offsets: int, key_data: int,
    offsets: int, data: int, count: int, slots: int, mask: int, null_id: int, out: int,
) -> int:  # fmt: skip
    """The id of each row's key, new keys added to the table in order of appearance.

    `indexes`: i32 into `entries` dictionary entries, whose bytes are key_data[key_offsets[i]:key_offsets[i + 1]] (i32).
    A NULL row (`valid` bitmap, 0 if none) gets `null_id`. `known`: i32 per entry and one more, its id or -1. The table
    is `offsets` (i64), `data`, `slots`, with `count` keys and room for all that may come. Writes i32 to `out`; returns
    the new count, or -1 for an index out of range.
    """
    is_value = 1
    bad = 0
    store32(known + 4 * entries, null_id)
    for row in range(rows):
        if valid:
            bit = valid_at + row
            is_value = (peek8(valid + (bit >> 3)) >> (bit & 7)) & 1
        # No branch for NULL, which no processor can foresee: it is one entry more, whatever its index.
        index = peek32(indexes + 4 * row)
        inside = int(index < entries)
        bad |= is_value & ~inside
        entry = index if is_value & inside else entries
        key_id = peek32(known + 4 * entry)
        if key_id == _NONE:
            key = key_data + peek32(key_offsets + 4 * entry)
            size = peek32(key_offsets + 4 * entry + 4) - peek32(key_offsets + 4 * entry)
            slot = np.int64(city(key, size)[0] & np.uint64(mask))
            while True:
                key_id = peek32(slots + 4 * slot)
                if key_id == _NONE:
                    start = peek64(offsets + 8 * count)
                    copy(data + start, key, size)
                    store64(offsets + 8 * count + 8, start + size)
                    store32(slots + 4 * slot, count)
                    key_id = count
                    count += 1
                    break
                start = peek64(offsets + 8 * key_id)
                if peek64(offsets + 8 * key_id + 8) - start == size and _equal(data + start, key, size):
                    break
                slot = (slot + 1) & mask
            store32(known + 4 * entry, key_id)
        store32(out + 4 * row, key_id)
    return -1 if bad else count


@kernel
def pack_blocks(ids: int, bounds: int, granules: int, flags: int, first_flags: int, out: int, ends: int) -> int:
    """One index block a granule: u64 flags | width, u64 rows, the ids as u8, u16 or u32; none for zero rows.

    `bounds`: i64 last row of each granule, exclusive. The first block gets `first_flags`. Writes to `out` and where
    each granule ends to `ends`; returns the bytes written.
    """
    position = 0
    row = 0
    head = first_flags
    for g in range(granules):
        stop = peek64(bounds + 8 * g)
        if stop > row:
            top = 0
            for i in range(row, stop):
                top = max(top, peek32(ids + 4 * i))
            width = 0 if top < 1 << 8 else (1 if top < 1 << 16 else 2)
            store64(out + position, head | width)
            store64(out + position + 8, stop - row)
            position += _HEADER_BYTES
            if width == 0:
                for i in range(row, stop):
                    store8(out + position + i - row, peek32(ids + 4 * i))
            elif width == 1:
                for i in range(row, stop):
                    store16(out + position + 2 * (i - row), peek32(ids + 4 * i))
            else:
                copy(out + position, ids + 4 * row, 4 * (stop - row))
            position += (stop - row) << width
            row = stop
            head = flags
        store64(ends + 8 * g, position)
    return position


@kernel
def unpack_ids(
    source: int, rows: int, width: int, shared: int, shared_at: int, local: int, local_at: int, null_below: int,
    out: int,
) -> int:  # fmt: skip
    """Indexes of one block (`rows` of 1 << `width` bytes) as i32 places in the gathered keys.

    An index below `shared` means key `shared_at` + index, the next `local` ones mean `local_at` + (index - shared).
    Indexes below `null_below` are NULL and become -1. Returns 0, or -1 for an index that means nothing.
    """
    size = shared + local
    for row in range(rows):
        if width == 0:
            index = peek8(source + row)
        elif width == 1:
            index = peek16(source + 2 * row)
        elif width == 2:
            index = peek32(source + 4 * row)
        else:
            index = peek64(source + 8 * row)
        if index < 0 or index >= size:
            return -1
        if index < null_below:
            store32(out + 4 * row, _NONE)
        elif index < shared:
            store32(out + 4 * row, shared_at + index)
        else:
            store32(out + 4 * row, local_at + index - shared)
    return 0


@kernel
def unpack_shared(
    source: int, size: int, rows: int, shared: int, shared_at: int, null_below: int, out: int, used: int
) -> int:
    """Blocks that refer to the shared dictionary alone (flag SHARED only), as long as they come.

    Writes at most `rows` i32 to `out` and the bytes consumed to `used`. Returns the rows read (the block at `used` is
    of another kind, or all rows are there), or -1 for a block that is cut, too long or has a bad index.
    """
    position = 0
    row = 0
    while row < rows:
        store64(used, position)
        if size - position < _HEADER_BYTES:
            return -1
        flags = peek64(source + position)
        if flags & ~WIDTH_MAX != SHARED:
            return row
        width = flags & WIDTH_MAX
        count = peek64(source + position + 8)
        if count <= 0 or count > rows - row or count > (size - position - _HEADER_BYTES) >> width:
            return -1
        position += _HEADER_BYTES
        base = source + position
        target = out + 4 * row
        top = 0
        # A loop for each width: only so does LLVM make vectors of it.
        if width == 0:
            for i in range(count):
                index = peek8(base + i)
                top = max(top, index)
                store32(target + 4 * i, shared_at + index)
        elif width == 1:
            for i in range(count):
                index = peek16(base + 2 * i)
                top = max(top, index)
                store32(target + 4 * i, shared_at + index)
        elif width == 2:
            for i in range(count):
                index = peek32(base + 4 * i)
                top = max(top, index)
                store32(target + 4 * i, shared_at + index)
        else:
            for i in range(count):
                index = peek64(base + 8 * i)
                top = max(top, index) if index >= 0 else _NO_INDEX
                store32(target + 4 * i, shared_at + index)
        if top >= shared:
            return -1
        if null_below:
            # The only NULL is key 0, which was written as shared_at.
            for i in range(count):
                place = peek32(target + 4 * i)
                store32(target + 4 * i, -1 if place == shared_at else place)
        position += count << width
        row += count
    store64(used, position)
    return row
