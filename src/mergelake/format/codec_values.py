"""Codecs of values, both ways: sizes and counts are checked here, the loops are kernels.

All but T64 and FPC start with: u8 width of a value, u8 number of odd bytes (plain size mod width), those bytes. Kernels
are imported, and so compiled or loaded, when a codec is first met: most tables need none of them.

Source: ClickHouse, `src/Compression/CompressionCodec*.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mergelake.format.codec import DELTA, DOUBLE_DELTA, FPC, GCD, GORILLA, T64, Codec
from mergelake.format.memory import Region, allocate, as_writable, copy_in, padded, with_room


def _start(codec: Codec, plain: Region, most: int) -> tuple[Region, Region, int]:
    """A payload with room for `most` bytes after the common start, the whole values, and their number."""
    odd = plain.size % codec.width
    out = with_room(2 + odd + most)
    copy_in(out, bytes([codec.width, odd]) + plain.part(0, odd).tobytes())
    return out, plain.tail(odd), plain.size // codec.width


def _end(out: Region, plain: Region, codec: Codec, written: int) -> Region:
    return out.part(0, 2 + plain.size % codec.width + written)


def _opened(payload: Region, target: Region, widths: tuple[int, ...]) -> tuple[int, Region, Region]:
    """The width, and what is left of payload and target after the common start."""
    width = payload.byte(0) if payload.size >= 2 else 0
    if width not in widths:
        raise ValueError(f"values of {width} bytes")
    odd = target.size % width
    if payload.size < 2 + odd:
        raise ValueError("the payload is cut short")
    copy_in(target, payload.part(2, 2 + odd).tobytes())
    return width, payload.tail(2 + odd), target.tail(odd)


_WIDTHS = (1, 2, 4, 8)


def encode_delta(codec: Codec, plain: Region) -> Region:
    """Differences to the value before."""
    from mergelake.format.kernels_delta import delta_encode

    out, body, count = _start(codec, plain, plain.size)
    target = out.address + 2 + plain.size % codec.width
    delta_encode(body.address, target, count, codec.width)
    return _end(out, plain, codec, count * codec.width)


def decode_delta(payload: Region, target: Region) -> None:
    """Inverse of `encode_delta`."""
    from mergelake.format.kernels_delta import delta_decode

    width, body, rest = _opened(payload, target, _WIDTHS)
    if body.size != rest.size:
        raise ValueError(f"{body.size} bytes of differences for {rest.size}")
    delta_decode(body.address, rest.address, rest.size // width, width)


def encode_double_delta(codec: Codec, plain: Region) -> Region:
    """u32 count, the first value, the first difference, then the differences of differences as bits."""
    from mergelake.format.kernels_double_delta import double_delta_encode

    out, body, count = _start(codec, plain, 9 * (plain.size // codec.width) + 24)
    target = out.address + 2 + plain.size % codec.width
    return _end(out, plain, codec, double_delta_encode(body.address, count, codec.width, target))


def decode_double_delta(payload: Region, target: Region) -> None:
    """Inverse of `encode_double_delta`."""
    from mergelake.format.kernels_double_delta import double_delta_decode

    width, body, rest = _opened(payload, target, _WIDTHS)
    count = _counted(body, rest.size // width, width, first=2)
    stream = padded(body.tail(4))
    if count <= 1:
        copy_in(rest, stream.part(0, count * width).tobytes())
    elif double_delta_decode(stream.address, stream.size, count, width, rest.address):
        raise ValueError("the stream of bits ends early")


def encode_gorilla(codec: Codec, plain: Region) -> Region:
    """u32 count, the first value, then what changed from value to value as bits."""
    from mergelake.format.kernels_gorilla import gorilla_encode

    out, body, count = _start(codec, plain, 10 * (plain.size // codec.width) + 24)
    target = out.address + 2 + plain.size % codec.width
    return _end(out, plain, codec, gorilla_encode(body.address, count, codec.width, target))


def decode_gorilla(payload: Region, target: Region) -> None:
    """Inverse of `encode_gorilla`."""
    from mergelake.format.kernels_gorilla import gorilla_decode

    width, body, rest = _opened(payload, target, _WIDTHS)
    count = _counted(body, rest.size // width, width, first=1)
    stream = padded(body.tail(4))
    if count and gorilla_decode(stream.address, stream.size, count, width, rest.address):
        raise ValueError("the stream of bits is not what Gorilla writes")


def _counted(body: Region, count: int, width: int, *, first: int) -> int:
    """The count, if it is the right one and up to `first` values that are written in full are there."""
    if body.size < 4 + min(count, first) * width:
        raise ValueError("the payload is cut short")
    stated = int.from_bytes(body.part(0, 4).tobytes(), "little")
    if stated != count:
        raise ValueError(f"{stated} values in place of {count}")
    return count


def encode_gcd(codec: Codec, plain: Region) -> Region:
    """The greatest common divisor, then the quotients."""
    out, body, count = _start(codec, plain, plain.size + codec.width)
    target = out.address + 2 + plain.size % codec.width
    if codec.width <= 8:
        from mergelake.format.kernels_gcd import gcd_encode

        gcd_encode(body.address, count, codec.width, codec.kind, target)
    else:
        from mergelake.format.kernels_gcd_wide import gcd_encode_wide

        gcd_encode_wide(body.address, count, codec.width, codec.kind, target)
    return _end(out, plain, codec, (count + 1) * codec.width)


def decode_gcd(payload: Region, target: Region) -> None:
    """Inverse of `encode_gcd`."""
    width, body, rest = _opened(payload, target, (1, 2, 4, 8, 16, 32))
    if body.size != rest.size + width:
        raise ValueError(f"{body.size} bytes of quotients for {rest.size}")
    if width <= 8:
        from mergelake.format.kernels_gcd import gcd_decode

        gcd_decode(body.address, rest.size // width, width, rest.address)
    else:
        from mergelake.format.kernels_gcd_wide import gcd_decode_wide

        gcd_decode_wide(body.address, rest.size // width, width, rest.address)


def encode_fpc(codec: Codec, plain: Region) -> Region:
    """u8 width, u8 level, then pairs of values: a byte that says how, and what the predictions missed."""
    from mergelake.format.kernels_fpc import fpc_encode

    out = with_room(plain.size + plain.size // codec.width + 32)
    copy_in(out, bytes([codec.width, codec.level]))
    tables = np.zeros(2 << codec.level, np.uint64)
    written = fpc_encode(plain.address, plain.size, codec.width, codec.level, tables.ctypes.data, out.address + 2)
    return out.part(0, 2 + written)


def decode_fpc(payload: Region, target: Region) -> None:
    """Inverse of `encode_fpc`."""
    from mergelake.format.kernels_fpc import fpc_decode

    width, level = payload.part(0, 2).tobytes() if payload.size >= 2 else (0, 0)
    if width not in (4, 8) or not 1 <= level <= 28:
        raise ValueError(f"FPC of {width} bytes and level {level}")
    tables = np.zeros(2 << level, np.uint64)  # pages that are not touched take no memory
    body = padded(payload.tail(2))
    if fpc_decode(body.address, body.size, target.size, width, level, tables.ctypes.data, target.address):
        raise ValueError("the stream of values is not what FPC writes")


_T64_TYPES = {
    **dict.fromkeys((1, 17), (1, False)),
    **dict.fromkeys((2, 13, 18), (2, False)),
    **dict.fromkeys((3, 14, 21), (4, False)),
    4: (8, False),
    6: (1, True),
    7: (2, True),
    **dict.fromkeys((8, 19, 22, 23), (4, True)),
    **dict.fromkeys((9, 15, 20, 24), (8, True)),
}
"""Width and sign by the type's number in payloads."""


def _t64_bits(low: int, high: int) -> int:
    """Bits of a value that differ between `low` and `high`, with one for the sign if that differs."""
    if low < 0 <= high:
        return (high if low + high >= 0 else ~low).bit_length() + 1
    return (low ^ high).bit_length()


def encode_t64(codec: Codec, plain: Region) -> Region:
    """u8 type and variant, odd bytes, least and greatest value as 8 bytes each, then the bits that differ."""
    from mergelake.format.kernels_t64 import t64_encode

    width, signed = _T64_TYPES[codec.kind]
    odd = plain.size % width
    count = plain.size // width
    out = with_room(17 + plain.size + 64 * width + odd)
    head = bytes([codec.kind | codec.by_bits << 7]) + plain.part(0, odd).tobytes()
    body = plain.tail(odd)
    if not count:
        copy_in(out, head)
        return out.part(0, len(head))
    numbers = np.frombuffer(body.part(0, count * width).buffer(), f"{'i' if signed else 'u'}{width}")
    low, high = int(numbers.min()), int(numbers.max())
    bits = _t64_bits(low, high)
    copy_in(out, head + low.to_bytes(8, "little", signed=signed) + high.to_bytes(8, "little", signed=signed))
    start = len(head) + 16
    if bits:
        scratch = allocate(1024)
        t64_encode(body.address, count, width, bits, int(codec.by_bits), scratch.address, out.address + start)
    return out.part(0, start + 8 * bits * -(-count // 64))


def decode_t64(payload: Region, target: Region) -> None:
    """Inverse of `encode_t64`."""
    from mergelake.format.kernels_t64 import t64_decode

    cookie = payload.byte(0) if payload.size else 0
    width, signed = _T64_TYPES.get(cookie & 127, (0, False))
    if not width:
        raise ValueError(f"T64 of the type {cookie & 127}")
    odd, count = target.size % width, target.size // width
    start = 1 + odd + (16 if count else 0)
    if payload.size < start:
        raise ValueError("the payload is cut short")
    head = payload.part(1, start).tobytes()
    copy_in(target, head[:odd])
    if not count:
        return
    low, high = (int.from_bytes(head[at : at + 8], "little", signed=signed) for at in (odd, odd + 8))
    bits = _t64_bits(low, high)
    if bits > 8 * width or payload.size != start + 8 * bits * -(-count // 64):
        raise ValueError(f"{payload.size} bytes for {count} values of {bits} bits")
    rest = target.tail(odd)
    if not bits:
        as_writable(rest, np.dtype(f"u{width}"))[:] = low & ((1 << 8 * width) - 1)
        return
    crossing = low < 0 <= high and bits < 64
    above = ((1 << 64) - 1) >> bits << bits
    sign = 1 << (bits - 1) if crossing else 0
    scratch = allocate(1024)
    t64_decode(
        payload.address + start,
        count,
        width,
        bits,
        cookie >> 7,
        low & above,
        (high if crossing else low) & above,
        sign,
        scratch.address,
        rest.address,
    )


ENCODERS: dict[int, Callable[[Codec, Region], Region]] = {
    DELTA: encode_delta,
    DOUBLE_DELTA: encode_double_delta,
    GORILLA: encode_gorilla,
    T64: encode_t64,
    FPC: encode_fpc,
    GCD: encode_gcd,
}
"""Method byte -> encoder(codec, plain bytes) -> payload, with room for headers before it."""
