"""Cutting a stream into compressed blocks, compressing and decompressing runs of them.

A compressed block: 16 bytes CityHash128 of what follows, u8 method, u32 size of method + sizes + payload, u32 size of
the plain bytes, payload. NONE, LZ4 and ZSTD are done here, by functions of the thread's `libraries.table`; a block of
another method, or of one whose library is missing, is handed back to Python.
"""

from __future__ import annotations

from mergelake.jit.city_hash128 import city
from mergelake.jit.intrinsics import (
    copy,
    inlined,
    kernel,
    load64,
    lz4_compress,
    lz4_decompress,
    peek8,
    peek32,
    peek64,
    store8,
    store32,
    store64,
    zstd_compress,
    zstd_decompress,
)

HEADER = 25
"""Bytes of a compressed block before its payload."""
NONE = 0x02
LZ4 = 0x82
ZSTD = 0x90
SPARE = HEADER + 80
"""Room that a compressed block needs beyond its plain bytes and a 255th of them."""
PLAIN_MAX = 1 << 30
"""Most plain bytes of a compressed block. Source: ClickHouse, `DBMS_MAX_COMPRESSED_SIZE`."""

DONE, FOREIGN, TRUNCATED, BAD_SIZE, BAD_CHECKSUM, BAD_PAYLOAD, OVERFLOW = range(7)
"""Results of `decode_run`."""


@kernel
def cut(
    ends: int, granules: int, pending: int, min_block: int, max_block: int, blocks: int, room: int, at: int, skip: int
) -> int:
    """Where ClickHouse cuts blocks: at a mark once `min_block` bytes wait, and whenever `max_block` bytes wait.

    `ends`: i64 end of each granule in the new bytes; `pending` bytes wait already. Writes to `blocks` (room for `room`
    i64) the end of each complete block, counted from the first pending byte, and for each granule's mark the number of
    blocks before it (`at`) and the bytes that wait (`skip`). Returns the number of complete blocks, or -1: no room.
    """
    count = 0
    start = 0  # of the block that is being filled
    filled = pending
    for g in range(granules):
        if filled - start >= min_block and filled > start:
            if count == room:
                return -1
            store64(blocks + 8 * count, filled)
            count += 1
            start = filled
        store64(at + 8 * g, count)
        store64(skip + 8 * g, filled - start)
        end = pending + peek64(ends + 8 * g)
        while end - start > max_block:
            if count == room:
                return -1
            start += max_block
            store64(blocks + 8 * count, start)
            count += 1
        filled = end
    return count


@inlined
def pack(method: int, source: int, size: int, out: int, level: int, table: int) -> int:
    """Compress `size` bytes to `out`, which has a 255th of them and 64 bytes more; below 1: the library failed."""
    room = size + size // 255 + 64
    packed = size
    if method == 0x82:
        packed = lz4_compress(peek64(table + 8), source, out, size, room)
    elif method == 0x90:
        packed = zstd_compress(peek64(table + 24), peek64(table + 40), out, room, source, size, level)
    else:
        copy(out, source, size)
    return packed


@inlined
def head(out: int, method: int, packed: int, plain: int) -> None:
    """The header before a payload: method, bytes with the header, plain bytes."""
    store8(out, method)
    store32(out + 1, packed)
    store32(out + 5, plain)


@inlined
def sign(block: int, size: int) -> None:
    """The checksum before the `size` bytes of header and payload."""
    first, second = city(block, size)
    store64(block - 16, first)
    store64(block - 8, second)


@kernel
def encode_run(
    source: int, begin: int, ends: int, count: int, method: int, level: int, table: int, out: int, sizes: int
) -> int:
    """Encode `count` blocks: block i is the plain bytes from the last end (first: `begin`) to `ends[i]` of `source`.

    `out` has room for every block: its bytes, a 255th of them, and `SPARE`. Writes the end of each block in `out` to
    `sizes`; returns the bytes written, or -1 when the library failed. `level` is ZSTD's.
    """
    position = 0
    for i in range(count):
        end = peek64(ends + 8 * i)
        plain = end - begin
        block = out + position + 16
        packed = pack(method, source + begin, plain, block + 9, level, table)
        if packed <= 0 and plain > 0:
            return -1
        head(block, method, packed + 9, plain)
        sign(block, packed + 9)
        position += packed + 25
        store64(sizes + 8 * i, position)
        begin = end
    return position


@kernel
def scan_run(source: int, size: int, stop: int, inclusive: int, state: int) -> int:
    """Walk the headers of `size` bytes up to the block that starts at `stop` (and over it, if `inclusive`).

    `state` (3 i64) gets: the position after the last block, the plain bytes before `stop`, all plain bytes. The sizes
    are checked for sense, the checksums are not. Returns DONE, TRUNCATED or BAD_SIZE (state[0] = where).
    """
    position = 0
    total = 0
    before = 0
    while position < stop or (position == stop and inclusive):
        if position == stop:
            before = total
        store64(state, position)
        if size - position < 25:
            return 2
        method = peek8(source + position + 16)
        packed = peek32(source + position + 17)
        plain = peek32(source + position + 21)
        if packed < 9 or plain > 1 << 30 or packed > (1 << 30) + (1 << 23):
            return 3
        # LZ4 grows at most 255-fold: a lying header cannot make us allocate more.
        if (method == 0x02 and plain != packed - 9) or (method == 0x82 and plain > 255 * packed):
            return 3
        # Delta and GCD never shrink, DoubleDelta and Gorilla have a bit for each value, FPC a byte for two.
        if (method == 0x92 or method == 0x9A) and plain > packed:
            return 3
        if ((method == 0x94 or method == 0x95) and plain > 64 * packed) or (method == 0x98 and plain > 16 * packed):
            return 3
        if packed > size - position - 16:
            return 2
        position += packed + 16
        total += plain
    store64(state, position)
    store64(state + 8, before if inclusive else total)
    store64(state + 16, total)
    if not inclusive and position != stop:
        return 3
    if inclusive and position <= stop:
        return 3
    return 0


@kernel
def decode_run(source: int, size: int, out: int, room: int, table: int, state: int) -> int:
    """Verify and decompress blocks from state[0] (position in `source`) to state[1] (position in `out`).

    Goes on to the end of the `size` bytes and keeps `state` at the block in work; state[2:4] gets the checksum found
    when it is wrong. `table` is the thread's. Returns one of the results above.
    """
    position = peek64(state)
    filled = peek64(state + 8)
    while position < size:
        store64(state, position)
        store64(state + 8, filled)
        if size - position < 25:
            return 2
        block = source + position
        packed = peek32(block + 17)
        plain = peek32(block + 21)
        if packed < 9 or packed > size - position - 16:
            return 2
        if plain > room - filled:
            return 6
        first, second = city(block + 16, packed)
        if first != load64(block) or second != load64(block + 8):
            store64(state + 16, first)
            store64(state + 24, second)
            return 4
        method = peek8(block + 16)
        if method == 0x82 and peek64(table):
            if lz4_decompress(peek64(table), block + 25, out + filled, packed - 9, plain) != plain:
                return 5
        elif method == 0x90 and peek64(table + 16):
            function = peek64(table + 16)
            if zstd_decompress(function, peek64(table + 32), out + filled, plain, block + 25, packed - 9) != plain:
                return 5
        elif method == 0x02:
            if plain != packed - 9:
                return 3
            copy(out + filled, block + 25, plain)
        else:
            return 1
        position += packed + 16
        filled += plain
    store64(state, position)
    store64(state + 8, filled)
    return 0
