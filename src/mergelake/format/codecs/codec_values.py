"""Codecs of values, both ways: sizes and counts are checked here, the loops are kernels.

All but T64 and FPC start with: u8 width of a value, u8 number of odd bytes (plain size mod width), those bytes. Kernels
are imported when a codec is first met: most tables need none of them.

Source: ClickHouse, `src/Compression/CompressionCodec*.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mergelake.format.codecs.codec import Codec
from mergelake.format.kernels.kernels_bits import COUNT_BYTES, START_BYTES, STREAM_SPARE
from mergelake.format.kernels.memory import Region, allocate, as_writable, copy_in, padded, with_room
from mergelake.format.kernels.method_bytes import DELTA, DOUBLE_DELTA, FPC, GCD, GORILLA, T64

_WIDTHS = (1, 2, 4, 8)


def _encode(codec: Codec, plain: Region, room: int, encode: Callable[[int, int, int, int], int]) -> Region:
    """The payload of the common start and of what `encode(source, count, width, target)` writes.

    `room` is for what it writes; it returns how many bytes that are.
    """
    odd = plain.size % codec.width
    start = START_BYTES + odd
    out = with_room(start + room)
    copy_in(out, bytes([codec.width, odd]) + plain.part(0, odd).tobytes())
    written = encode(plain.address + odd, plain.size // codec.width, codec.width, out.address + start)
    return out.part(0, start + written)


def _open(payload: Region, target: Region, widths: tuple[int, ...] = _WIDTHS) -> tuple[int, Region, Region]:
    """The width of values, the payload after the common start, the target after the odd bytes, which are filled in."""
    width = payload.byte(0) if payload.size >= START_BYTES else 0
    if width not in widths:
        raise ValueError(f"values of {width} bytes")
    odd = target.size % width
    if payload.size < START_BYTES + odd:
        raise ValueError("the payload is cut short")
    copy_in(target, payload.part(START_BYTES, START_BYTES + odd).tobytes())
    return width, payload.tail(START_BYTES + odd), target.tail(odd)


def encode_delta(codec: Codec, plain: Region) -> Region:
    """Differences to the value before."""
    from mergelake.format.kernels.kernels_delta import delta_encode

    return _encode(codec, plain, plain.size, delta_encode)


def decode_delta(payload: Region, target: Region) -> None:
    """Inverse of `encode_delta`."""
    from mergelake.format.kernels.kernels_delta import delta_decode

    width, body, values = _open(payload, target)
    if body.size != values.size:
        raise ValueError(f"{body.size} bytes of differences for {values.size}")
    delta_decode(body.address, values.size // width, width, values.address)


def encode_double_delta(codec: Codec, plain: Region) -> Region:
    """u32 count, the first value, the first difference, then the differences of differences as bits."""
    from mergelake.format.kernels.kernels_double_delta import VALUE_BYTES_MAX, double_delta_encode

    room = VALUE_BYTES_MAX * (plain.size // codec.width) + STREAM_SPARE
    return _encode(codec, plain, room, double_delta_encode)


def decode_double_delta(payload: Region, target: Region) -> None:
    """Inverse of `encode_double_delta`."""
    from mergelake.format.kernels.kernels_double_delta import double_delta_decode

    if not _decode_series(payload, target, 2, double_delta_decode):
        raise ValueError("the stream of bits ends early")


def encode_gorilla(codec: Codec, plain: Region) -> Region:
    """u32 count, the first value, then what changed from value to value as bits."""
    from mergelake.format.kernels.kernels_gorilla import VALUE_BYTES_MAX, gorilla_encode

    room = VALUE_BYTES_MAX * (plain.size // codec.width) + STREAM_SPARE
    return _encode(codec, plain, room, gorilla_encode)


def decode_gorilla(payload: Region, target: Region) -> None:
    """Inverse of `encode_gorilla`."""
    from mergelake.format.kernels.kernels_gorilla import gorilla_decode

    if not _decode_series(payload, target, 1, gorilla_decode):
        raise ValueError("the stream of bits is not what Gorilla writes")


def _decode_series(
    payload: Region, target: Region, in_full: int, decode: Callable[[int, int, int, int, int], int]
) -> bool:
    """Decode a count and a stream of bits by `decode(stream, size, count, width, target)`; whether the bits are right.

    `in_full` words of a value's width (values or differences) stand before the bits; fewer values are only copied.
    """
    width, body, values = _open(payload, target)
    count = values.size // width
    if body.size < COUNT_BYTES + min(count, in_full) * width:
        raise ValueError("the payload is cut short")
    stated = int.from_bytes(body.part(0, COUNT_BYTES).tobytes(), "little")
    if stated != count:
        raise ValueError(f"{stated} values in place of {count}")
    stream = padded(body.tail(COUNT_BYTES))
    if count < in_full:
        copy_in(values, stream.part(0, count * width).tobytes())
        return True
    return decode(stream.address, stream.size, count, width, values.address) == 0


def encode_gcd(codec: Codec, plain: Region) -> Region:
    """The greatest common divisor, then the quotients."""
    if codec.width <= 8:
        from mergelake.format.kernels.kernels_gcd import gcd_encode as kernel
    else:
        from mergelake.format.kernels.kernels_gcd_wide import gcd_encode_wide as kernel

    def encode(source: int, count: int, width: int, target: int) -> int:
        kernel(source, count, width, codec.kind, target)
        return (count + 1) * width

    return _encode(codec, plain, plain.size + codec.width, encode)


def decode_gcd(payload: Region, target: Region) -> None:
    """Inverse of `encode_gcd`."""
    width, body, values = _open(payload, target, (*_WIDTHS, 16, 32))
    if body.size != values.size + width:
        raise ValueError(f"{body.size} bytes of quotients for {values.size}")
    if width <= 8:
        from mergelake.format.kernels.kernels_gcd import gcd_decode as kernel
    else:
        from mergelake.format.kernels.kernels_gcd_wide import gcd_decode_wide as kernel
    kernel(body.address, values.size // width, width, values.address)


def encode_fpc(codec: Codec, plain: Region) -> Region:
    """u8 width, u8 level, then pairs of values: a byte with the codes of both, and what the predictions missed."""
    from mergelake.format.kernels.kernels_fpc import SPARE_BYTES, fpc_encode

    out = with_room(2 + plain.size + plain.size // codec.width + SPARE_BYTES)
    copy_in(out, bytes([codec.width, codec.level]))
    tables = np.zeros(2 << codec.level, np.uint64)
    written = fpc_encode(plain.address, plain.size, codec.width, codec.level, tables.ctypes.data, out.address + 2)
    return out.part(0, 2 + written)


def decode_fpc(payload: Region, target: Region) -> None:
    """Inverse of `encode_fpc`."""
    from mergelake.format.kernels.kernels_fpc import fpc_decode

    width, level = payload.part(0, 2).tobytes() if payload.size >= 2 else (0, 0)
    if width not in (4, 8) or not 1 <= level <= 28:
        raise ValueError(f"FPC of {width} bytes and level {level}")
    tables = np.zeros(2 << level, np.uint64)  # pages that are not touched take no memory
    body = padded(payload.tail(2))
    if fpc_decode(body.address, body.size, target.size, width, level, tables.ctypes.data, target.address):
        raise ValueError("the stream of values is not what FPC writes")


_T64_BITS_FLAG = 0x80
"""Bit of the first byte of a payload of T64: the "bit" variant. The others are the number of the type."""
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
"""Width and sign by the type's number in payloads. Source: ClickHouse, `TypeIndex` in `IDataType.h`."""


def _t64_bits(low: int, high: int) -> int:
    """Bits of a value that differ between `low` and `high`, with one for the sign if that differs."""
    if low < 0 <= high:
        return (high if low + high >= 0 else ~low).bit_length() + 1
    return (low ^ high).bit_length()


def _t64_size(count: int, bits: int) -> int:
    """Bytes of the matrices of 64 values each that hold `count` values of so many bits."""
    return 8 * bits * -(-count // 64)


def encode_t64(codec: Codec, plain: Region) -> Region:
    """u8 type and variant, odd bytes, least and greatest value as 8 bytes each, then the bits that differ."""
    from mergelake.format.kernels.kernels_t64 import SCRATCH_BYTES, VALUES, t64_encode

    width, signed = _T64_TYPES[codec.kind]
    odd = plain.size % width
    count = plain.size // width
    head = bytes([codec.kind | (_T64_BITS_FLAG if codec.by_bits else 0)]) + plain.part(0, odd).tobytes()
    body = plain.tail(odd)
    out = with_room(len(head) + 16 + body.size + VALUES * width)
    if not count:
        copy_in(out, head)
        return out.part(0, len(head))
    numbers = np.frombuffer(body.part(0, count * width).buffer(), f"{'i' if signed else 'u'}{width}")
    low, high = int(numbers.min()), int(numbers.max())
    bits = _t64_bits(low, high)
    copy_in(out, head + low.to_bytes(8, "little", signed=signed) + high.to_bytes(8, "little", signed=signed))
    start = len(head) + 16
    if bits:
        scratch = allocate(SCRATCH_BYTES)
        t64_encode(body.address, count, width, bits, int(codec.by_bits), scratch.address, out.address + start)
    return out.part(0, start + _t64_size(count, bits))


def decode_t64(payload: Region, target: Region) -> None:
    """Inverse of `encode_t64`."""
    from mergelake.format.kernels.kernels_t64 import SCRATCH_BYTES, t64_decode

    first = payload.byte(0) if payload.size else 0
    by_bits, kind = int(first & _T64_BITS_FLAG > 0), first & ~_T64_BITS_FLAG
    width, signed = _T64_TYPES.get(kind, (0, False))
    if not width:
        raise ValueError(f"T64 of the type {kind}")
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
    if bits > 8 * width or payload.size != start + _t64_size(count, bits):
        raise ValueError(f"{payload.size} bytes for {count} values of {bits} bits")
    values = target.tail(odd)
    if not bits:
        as_writable(values, np.dtype(f"u{width}"))[:] = low & ((1 << 8 * width) - 1)
        return
    # What the matrices lack are the upper bits: the same in all values, or, where values lie on both sides of zero,
    # those of `low` in negative values (the highest bit that is there says which are) and those of `high` in others.
    crossing = low < 0 <= high and bits < 64
    above = ((1 << 64) - 1) >> bits << bits
    sign = 1 << (bits - 1) if crossing else 0
    scratch = allocate(SCRATCH_BYTES)
    t64_decode(
        payload.address + start, count, width, bits, by_bits, low & above, (high if crossing else low) & above, sign,
        scratch.address, values.address,
    )  # fmt: skip


ENCODERS: dict[int, Callable[[Codec, Region], Region]] = {
    DELTA: encode_delta,
    DOUBLE_DELTA: encode_double_delta,
    GORILLA: encode_gorilla,
    T64: encode_t64,
    FPC: encode_fpc,
    GCD: encode_gcd,
}
"""Method byte -> encoder(codec, plain bytes) -> payload, with room for headers before it."""
