"""Runs of compressed blocks of common chains: Delta, DoubleDelta or Gorilla, then LZ4, ZSTD or NONE.

The bytes are those of `codec_run`, which does every other chain, and judges every block that these loops hand back
because something in it is not as it should be.
"""

from __future__ import annotations

from mergelake.format.kernels_compressed_blocks import head, pack, sign
from mergelake.format.kernels_delta import delta_decode, delta_encode
from mergelake.format.kernels_double_delta import double_delta_decode, double_delta_encode
from mergelake.format.kernels_gorilla import gorilla_decode, gorilla_encode
from mergelake.jit.city_hash128 import city
from mergelake.jit.intrinsics import (
    copy,
    inlined,
    kernel,
    load64,
    lz4_decompress,
    peek8,
    peek32,
    peek64,
    store8,
    store64,
    zstd_decompress,
)


@kernel
def encode_chains(
    source: int, begin: int, ends: int, count: int, values: int, width: int, method: int, level: int, table: int,
    scratch: int, out: int, sizes: int,
) -> int:  # fmt: skip
    """`encode_run` for a chain of two: the codec `values` (a method byte) for values of `width` bytes, then `method`.

    `scratch` has room for the encoded values of the largest block: 10 bytes a value and 64; `out` for all blocks.
    """
    position = 0
    for i in range(count):
        end = peek64(ends + 8 * i)
        plain = end - begin
        number = plain // width
        odd = plain - number * width
        body = scratch + 9
        store8(body, width)
        store8(body + 1, odd)
        copy(body + 2, source + begin, odd)
        if values == 0x92:
            delta_encode(source + begin + odd, body + 2 + odd, number, width)
            size = number * width
        elif values == 0x94:
            size = double_delta_encode(source + begin + odd, number, width, body + 2 + odd)
        else:
            size = gorilla_encode(source + begin + odd, number, width, body + 2 + odd)
        size += 11 + odd
        head(scratch, values, size, plain)
        block = out + position + 16
        packed = pack(method, scratch, size, block + 21, level, table)
        if packed <= 0:
            return -1
        head(block, 0x91, packed + 21, plain)
        store8(block + 9, 2)
        store8(block + 10, values)
        store8(block + 11, method)
        head(block + 12, method, packed + 9, size)
        sign(block, packed + 21)
        position += packed + 37
        store64(sizes + 8 * i, position)
        begin = end
    return position


@inlined
def _unpack(method: int, source: int, size: int, out: int, plain: int, table: int) -> bool:
    """Decompress a payload; false if it is not `plain` bytes, or the library is not there."""
    if method == 0x82 and peek64(table):
        return bool(lz4_decompress(peek64(table), source, out, size, plain) == plain)
    if method == 0x90 and peek64(table + 16):
        function = peek64(table + 16)
        return bool(zstd_decompress(function, peek64(table + 32), out, plain, source, size) == plain)
    if method == 0x02 and size == plain:
        copy(out, source, size)
        return True
    return False


@inlined
def _values(method: int, body: int, size: int, out: int, plain: int) -> bool:
    """Turn `size` bytes at `body`, padded, into `plain` bytes of values; false if they are not what they should be."""
    if size < 2:
        return False
    width = peek8(body)
    if width != 1 and width != 2 and width != 4 and width != 8:
        return False
    number = plain // width
    odd = plain - number * width
    if size < 2 + odd:
        return False
    copy(out, body + 2, odd)
    body += 2 + odd
    size -= 2 + odd
    if method == 0x92:
        if size != number * width:
            return False
        delta_decode(body, out + odd, number, width)
        return True
    first = 2 if method == 0x94 else 1
    if size < 4 + min(number, first) * width or peek32(body) != number:
        return False
    if number < first:
        copy(out + odd, body + 4, number * width)
        return True
    if method == 0x94:
        return double_delta_decode(body + 4, size - 4, number, width, out + odd) == 0
    return gorilla_decode(body + 4, size - 4, number, width, out + odd) == 0


@kernel
def decode_chains(
    source: int, size: int, out: int, room: int, table: int, scratch: int, scratch_room: int, state: int
) -> int:
    """Go on where `kernels_compressed_blocks.decode_run` gave up, for as many blocks as are such chains and are right.

    `state` as there; `scratch` has `scratch_room` bytes, and 64 more to read. Returns the number of blocks done.
    """
    position = peek64(state)
    filled = peek64(state + 8)
    done = 0
    while size - position >= 49:
        block = source + position + 16
        packed = peek32(block + 1)
        plain = peek32(block + 5)
        if peek8(block) != 0x91 or packed > size - position - 16 or packed < 33 or plain > room - filled:
            break
        values = peek8(block + 10)
        method = peek8(block + 11)
        inner = peek32(block + 17)
        if peek8(block + 9) != 2 or (values != 0x92 and values != 0x94 and values != 0x95):
            break
        if peek8(block + 12) != method or peek32(block + 13) != packed - 12 or inner < 11 or inner > scratch_room:
            break
        first, second = city(block, packed)
        if first != load64(block - 16) or second != load64(block - 8):
            break
        if not _unpack(method, block + 21, packed - 21, scratch, inner, table):
            break
        if peek8(scratch) != values or peek32(scratch + 1) != inner or peek32(scratch + 5) != plain:
            break
        if not _values(values, scratch + 9, inner - 9, out + filled, plain):
            break
        position += packed + 16
        filled += plain
        done += 1
        store64(state, position)
        store64(state + 8, filled)
    return done
