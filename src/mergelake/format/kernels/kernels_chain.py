"""Kernels for runs of compressed blocks of common chains: Delta, DoubleDelta or Gorilla, then LZ4, ZSTD or NONE.

The bytes are those of `codec_run`, which does every other chain, and judges every block that these kernels hand back
because something in it is not as it should be. A payload::

    u8 2, u8 method of the values, u8 general method, then the last step, encoded:
    header, and as its payload, compressed, the first step, encoded:
    header, u8 width, u8 number of odd bytes, odd bytes, what the codec of values writes

Source: ClickHouse, `CompressionCodecMultiple.cpp`.
"""

from __future__ import annotations

from mergelake.core.jit.city_hash128 import city
from mergelake.core.jit.intrinsics import copy, inlined, kernel, load64, peek8, peek32, peek64, store8, store64
from mergelake.format.kernels.kernels_bits import COUNT_BYTES, START_BYTES
from mergelake.format.kernels.kernels_compressed_blocks import (
    CHECKSUM_BYTES,
    DONE,
    HEADER_BYTES,
    PLAIN_SIZE_AT,
    SIZE_AT,
    pack,
    sign,
    unpack,
    write_header,
)
from mergelake.format.kernels.kernels_delta import delta_decode, delta_encode
from mergelake.format.kernels.kernels_double_delta import (
    VALUE_BYTES_MAX as DOUBLE_DELTA_MAX,
    double_delta_decode,
    double_delta_encode,
)
from mergelake.format.kernels.kernels_gorilla import VALUE_BYTES_MAX as GORILLA_MAX, gorilla_decode, gorilla_encode
from mergelake.format.kernels.method_bytes import DELTA, DOUBLE_DELTA, GORILLA, MULTIPLE

STEPS = 2
"""Codecs of the chain."""
LIST_BYTES = 1 + STEPS
"""The number of steps and the method of each, which begin the payload of a chain."""
LAST_AT = HEADER_BYTES + LIST_BYTES
"""Where in header and payload of a chain the header of the last step stands."""
PACKED_AT = LAST_AT + HEADER_BYTES
"""Where in them the compressed bytes begin."""
_FIRST_MIN = HEADER_BYTES + START_BYTES
"""Least bytes of the first step, encoded."""
_SIZE_MIN = PACKED_AT + 12
"""Least bytes of header and payload that are tried here: a shorter block, which is rare, is left to Python."""
SPARE_BYTES = 64
"""Room that each block needs beyond its values and what compression adds: headers and the count of values."""


def value_bytes_max(values: int, width: int) -> int:
    """Bytes that the codec `values` (a method byte) writes at most for a value of `width` bytes."""
    return {DOUBLE_DELTA: DOUBLE_DELTA_MAX, GORILLA: GORILLA_MAX}.get(values, width)


@kernel
def encode_chains(
    source: int, begin: int, ends: int, count: int, values: int, width: int, method: int, level: int, table: int,
    scratch: int, out: int, block_ends: int,
) -> int:  # fmt: skip
    """`encode_run` for a chain of two: the codec `values` (a method byte) for values of `width` bytes, then `method`.

    `scratch` has room for the values of the largest block (`value_bytes_max`) and `SPARE_BYTES`, `out` for all blocks.
    """
    position = 0
    for i in range(count):
        end = peek64(ends + 8 * i)
        plain = end - begin
        number = plain // width
        odd = plain - number * width
        start = scratch + HEADER_BYTES
        store8(start, width)
        store8(start + 1, odd)
        copy(start + START_BYTES, source + begin, odd)
        body = start + START_BYTES + odd
        if values == DELTA:
            size = delta_encode(source + begin + odd, number, width, body)
        elif values == DOUBLE_DELTA:
            size = double_delta_encode(source + begin + odd, number, width, body)
        else:
            size = gorilla_encode(source + begin + odd, number, width, body)
        size += HEADER_BYTES + START_BYTES + odd
        write_header(scratch, values, size, plain)
        header = out + position + CHECKSUM_BYTES
        packed = pack(method, scratch, size, header + PACKED_AT, level, table)
        if packed <= 0:
            return -1
        write_header(header, MULTIPLE, packed + PACKED_AT, plain)
        store8(header + HEADER_BYTES, STEPS)
        store8(header + HEADER_BYTES + 1, values)
        store8(header + HEADER_BYTES + 2, method)
        write_header(header + LAST_AT, method, packed + HEADER_BYTES, size)
        sign(header, packed + PACKED_AT)
        position += CHECKSUM_BYTES + PACKED_AT + packed
        store64(block_ends + 8 * i, position)
        begin = end
    return position


@inlined
def _decode_values(method: int, body: int, size: int, out: int, plain: int) -> bool:
    """Turn a payload of `size` bytes at `body`, padded, into `plain` bytes of values; false if it is corrupt."""
    if size < START_BYTES:
        return False
    width = peek8(body)
    if width != 1 and width != 2 and width != 4 and width != 8:
        return False
    number = plain // width
    odd = plain - number * width
    if size < START_BYTES + odd:
        return False
    copy(out, body + START_BYTES, odd)
    body += START_BYTES + odd
    size -= START_BYTES + odd
    if method == DELTA:
        if size != number * width:
            return False
        delta_decode(body, number, width, out + odd)
        return True
    in_full = 2 if method == DOUBLE_DELTA else 1  # a value and a difference, or a value
    if size < COUNT_BYTES + min(number, in_full) * width or peek32(body) != number:
        return False
    body += COUNT_BYTES
    size -= COUNT_BYTES
    if number < in_full:
        copy(out + odd, body, number * width)
        return True
    if method == DOUBLE_DELTA:
        return double_delta_decode(body, size, number, width, out + odd) == 0
    return gorilla_decode(body, size, number, width, out + odd) == 0


@kernel
def decode_chains(
    source: int, size: int, out: int, room: int, table: int, scratch: int, scratch_room: int, state: int
) -> int:
    """Go on where `decode_run` met a chain, for as many blocks as are such chains and are right.

    `state` as there; `scratch` has `scratch_room` bytes, and 64 more to read. Returns the number of blocks done.
    """
    position = peek64(state)
    filled = peek64(state + 8)
    done = 0
    while size - position >= CHECKSUM_BYTES + _SIZE_MIN:
        header = source + position + CHECKSUM_BYTES
        packed = peek32(header + SIZE_AT)
        plain = peek32(header + PLAIN_SIZE_AT)
        if peek8(header) != MULTIPLE or packed > size - position - CHECKSUM_BYTES or packed < _SIZE_MIN:
            break
        values = peek8(header + HEADER_BYTES + 1)
        method = peek8(header + HEADER_BYTES + 2)
        last = header + LAST_AT
        encoded = peek32(last + PLAIN_SIZE_AT)
        if peek8(header + HEADER_BYTES) != STEPS or plain > room - filled:
            break
        if values != DELTA and values != DOUBLE_DELTA and values != GORILLA:
            break
        if peek8(last) != method or peek32(last + SIZE_AT) != packed - LAST_AT:
            break
        if encoded < _FIRST_MIN or encoded > scratch_room:
            break
        first, second = city(header, packed)
        if first != load64(header - CHECKSUM_BYTES) or second != load64(header - CHECKSUM_BYTES + 8):
            break
        if unpack(method, header + PACKED_AT, packed - PACKED_AT, scratch, encoded, table) != DONE:
            break
        if peek8(scratch) != values or peek32(scratch + SIZE_AT) != encoded or peek32(scratch + PLAIN_SIZE_AT) != plain:
            break
        if not _decode_values(values, scratch + HEADER_BYTES, encoded - HEADER_BYTES, out + filled, plain):
            break
        position += packed + CHECKSUM_BYTES
        filled += plain
        done += 1
        store64(state, position)
        store64(state + 8, filled)
    return done
