"""Kernels that cut a stream into compressed blocks, and compress and decompress runs of blocks.

| bytes of a block | what |
| --- | --- |
| 16 | checksum: CityHash128 of the rest of the block |
| 9 | header: u8 method, u32 bytes of header and payload, u32 plain bytes |
| … | payload |

NONE, LZ4 and ZSTD are done here, by functions of the thread's `libraries.table`; a block of another method, or of one
whose library is missing, is handed back to Python.

Source: ClickHouse, `CompressedReadBufferBase.cpp`, `ICompressionCodec.cpp`.
"""

from __future__ import annotations

from mergelake.core.jit.city_hash128 import city
from mergelake.core.jit.intrinsics import (
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
from mergelake.format.kernels.libraries import (
    COMPRESSOR,
    DECOMPRESSOR,
    LZ4_COMPRESS,
    LZ4_DECOMPRESS,
    ZSTD_COMPRESS,
    ZSTD_DECOMPRESS,
)
from mergelake.format.kernels.method_bytes import DELTA, DOUBLE_DELTA, FPC, GCD, GORILLA, LZ4, NONE, ZSTD

CHECKSUM_BYTES = 16
HEADER_BYTES = 9
SIZE_AT, PLAIN_SIZE_AT = 1, 5
"""Where in a header the bytes of header and payload stand, and the plain bytes."""
OVERHEAD_BYTES = CHECKSUM_BYTES + HEADER_BYTES
"""Bytes of a block before its payload."""
_GROWTH_DIVISOR, _GROWTH_BYTES = 255, 64
"""What does not compress grows by a 255th of it and 64 bytes at most.

Source: `LZ4_COMPRESSBOUND` (a 255th and 16), `ZSTD_COMPRESSBOUND` (a 256th and 64).
"""
PLAIN_MAX = 1 << 30
"""Most plain bytes of a block. Source: ClickHouse, `DBMS_MAX_COMPRESSED_SIZE`."""
_SIZE_MAX = PLAIN_MAX + (1 << 23)
"""Most bytes of header and payload: more than `PLAIN_MAX` can grow to."""

DONE, FOREIGN, TRUNCATED, BAD_SIZE, BAD_CHECKSUM, BAD_PAYLOAD, OVERFLOW = range(7)
"""Results of `scan_run`, `unpack` and `decode_run`. FOREIGN: a method that is not done here, or without its library."""


def packed_max(plain: int, blocks: int) -> int:
    """Room for so many blocks of so many plain bytes together, whatever is in them."""
    return plain + plain // _GROWTH_DIVISOR + blocks * (OVERHEAD_BYTES + _GROWTH_BYTES)


@kernel
def cut(
    ends: int, granules: int, pending: int, min_block: int, max_block: int, block_ends: int, room: int,
    mark_blocks: int, mark_offsets: int,
) -> int:  # fmt: skip
    """Where ClickHouse cuts blocks: at a mark once `min_block` bytes wait, and whenever `max_block` bytes wait.

    Args:
        ends: i64 end of each granule in the new bytes; `pending` bytes wait already.
        block_ends: gets the i64 end of each complete block, counted from the first pending byte; room for `room`.
        mark_blocks: gets for each granule's mark the i64 number of blocks before it.
        mark_offsets: gets for each granule's mark the i64 number of bytes that wait, its offset in its block.

    Returns the number of complete blocks, or -1: no room.
    """
    count = 0
    start = 0  # of the block that is being filled
    filled = pending
    for g in range(granules):
        if filled - start >= min_block and filled > start:
            if count == room:
                return -1
            store64(block_ends + 8 * count, filled)
            count += 1
            start = filled
        store64(mark_blocks + 8 * g, count)
        store64(mark_offsets + 8 * g, filled - start)
        end = pending + peek64(ends + 8 * g)
        while end - start > max_block:
            if count == room:
                return -1
            start += max_block
            store64(block_ends + 8 * count, start)
            count += 1
        filled = end
    return count


@inlined
def pack(method: int, source: int, size: int, out: int, level: int, table: int) -> int:
    """Write the payload of `size` bytes to `out`, which has room for what does not compress.

    Returns its bytes; below 1: the library failed.
    """
    room = size + size // _GROWTH_DIVISOR + _GROWTH_BYTES
    packed = size
    if method == LZ4:
        packed = lz4_compress(peek64(table + 8 * LZ4_COMPRESS), source, out, size, room)
    elif method == ZSTD:
        compress, context = peek64(table + 8 * ZSTD_COMPRESS), peek64(table + 8 * COMPRESSOR)
        packed = zstd_compress(compress, context, out, room, source, size, level)
    else:
        copy(out, source, size)
    return packed


@inlined
def unpack(method: int, source: int, size: int, out: int, plain: int, table: int) -> int:
    """Decompress a payload of `size` bytes to `plain` bytes at `out`: DONE, FOREIGN, BAD_SIZE or BAD_PAYLOAD."""
    if method == LZ4 and peek64(table + 8 * LZ4_DECOMPRESS):
        written = lz4_decompress(peek64(table + 8 * LZ4_DECOMPRESS), source, out, size, plain)
        return DONE if written == plain else BAD_PAYLOAD
    if method == ZSTD and peek64(table + 8 * ZSTD_DECOMPRESS):
        decompress, context = peek64(table + 8 * ZSTD_DECOMPRESS), peek64(table + 8 * DECOMPRESSOR)
        written = zstd_decompress(decompress, context, out, plain, source, size)
        return DONE if written == plain else BAD_PAYLOAD
    if method != NONE:
        return FOREIGN
    if size != plain:
        return BAD_SIZE
    copy(out, source, size)
    return DONE


@inlined
def write_header(header: int, method: int, size: int, plain: int) -> None:
    """The header before a payload; `size` is that of both, `plain` that of the plain bytes."""
    store8(header, method)
    store32(header + SIZE_AT, size)
    store32(header + PLAIN_SIZE_AT, plain)


@inlined
def sign(header: int, size: int) -> None:
    """The checksum before the `size` bytes of header and payload."""
    first, second = city(header, size)
    store64(header - CHECKSUM_BYTES, first)
    store64(header - CHECKSUM_BYTES + 8, second)


@kernel
def encode_run(
    source: int, begin: int, ends: int, count: int, method: int, level: int, table: int, out: int, block_ends: int
) -> int:
    """Encode `count` blocks: block i is the plain bytes from the last end (first: `begin`) to `ends[i]` of `source`.

    `out` has room for `packed_max` bytes. Writes the i64 end of each block in `out` to `block_ends`; returns
    the bytes written, or -1 when the library failed. `level` is ZSTD's.
    """
    position = 0
    for i in range(count):
        end = peek64(ends + 8 * i)
        plain = end - begin
        header = out + position + CHECKSUM_BYTES
        packed = pack(method, source + begin, plain, header + HEADER_BYTES, level, table)
        if packed <= 0 and plain > 0:
            return -1
        write_header(header, method, packed + HEADER_BYTES, plain)
        sign(header, packed + HEADER_BYTES)
        position += packed + OVERHEAD_BYTES
        store64(block_ends + 8 * i, position)
        begin = end
    return position


@inlined
def _ratio_max(method: int) -> int:
    """Most plain bytes for each byte of header and payload."""
    if method == LZ4:
        return 255  # a byte of a length counts up to 255
    if method == DELTA:
        return 1  # as GCD it never shrinks
    if method == GCD:
        return 1
    if method == DOUBLE_DELTA:
        return 64  # as Gorilla it has a bit for each value, which has 8 bytes at most
    if method == GORILLA:
        return 64
    if method == FPC:
        return 16  # a byte for two values of 8 bytes
    return PLAIN_MAX


@kernel
def scan_run(source: int, size: int, stop: int, inclusive: int, state: int) -> int:
    """Walk the headers of `size` bytes up to the block that starts at `stop` (and over it, if `inclusive`).

    `state` (3 i64) gets: the position after the last block, the plain bytes before `stop`, all plain bytes. Sizes that
    no codec could make are refused, checksums are not looked at: a header that lies must not make us allocate more than
    its payload can hold. Returns DONE, TRUNCATED or BAD_SIZE (state[0] = where).
    """
    position = 0
    total = 0
    before = 0
    while position < stop or (position == stop and inclusive):
        if position == stop:
            before = total
        store64(state, position)
        if size - position < OVERHEAD_BYTES:
            return TRUNCATED
        header = source + position + CHECKSUM_BYTES
        method = peek8(header)
        packed = peek32(header + SIZE_AT)
        plain = peek32(header + PLAIN_SIZE_AT)
        if packed < HEADER_BYTES or plain > PLAIN_MAX or packed > _SIZE_MAX:
            return BAD_SIZE
        if plain > _ratio_max(method) * packed or (method == NONE and plain != packed - HEADER_BYTES):
            return BAD_SIZE
        if packed > size - position - CHECKSUM_BYTES:
            return TRUNCATED
        position += packed + CHECKSUM_BYTES
        total += plain
    store64(state, position)
    store64(state + 8, before if inclusive else total)
    store64(state + 16, total)
    if not inclusive and position != stop:
        return BAD_SIZE
    if inclusive and position <= stop:
        return BAD_SIZE
    return DONE


@kernel
def decode_run(source: int, size: int, out: int, room: int, table: int, state: int) -> int:
    """Verify and decompress blocks from state[0] (position in `source`) to state[1] (position in `out`).

    Goes on to the end of the `size` bytes and keeps `state` (4 i64) at the block in work; state[2:4] gets the checksum
    of its bytes when another one stands before them. `table` is the thread's. Returns a result as above.
    """
    position = peek64(state)
    filled = peek64(state + 8)
    while position < size:
        store64(state, position)
        store64(state + 8, filled)
        if size - position < OVERHEAD_BYTES:
            return TRUNCATED
        header = source + position + CHECKSUM_BYTES
        packed = peek32(header + SIZE_AT)
        plain = peek32(header + PLAIN_SIZE_AT)
        if packed < HEADER_BYTES or packed > size - position - CHECKSUM_BYTES:
            return TRUNCATED
        if plain > room - filled:
            return OVERFLOW
        first, second = city(header, packed)
        if first != load64(header - CHECKSUM_BYTES) or second != load64(header - CHECKSUM_BYTES + 8):
            store64(state + 16, first)
            store64(state + 24, second)
            return BAD_CHECKSUM
        result: int = unpack(peek8(header), header + HEADER_BYTES, packed - HEADER_BYTES, out + filled, plain, table)
        if result != DONE:
            return result
        position += packed + CHECKSUM_BYTES
        filled += plain
    store64(state, position)
    store64(state + 8, filled)
    return DONE
