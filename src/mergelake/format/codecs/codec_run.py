"""Running codecs: the payload of a compressed block from its plain bytes, and back.

General codecs and chains are here; those of values in `codec_values`. A chain's payload: u8 number of steps, the method
byte of each, and what the last step made, as header (that of `kernels_compressed_blocks`) and payload. Its plain bytes
are header and payload of the step before it, and so on.

Source: ClickHouse, `CompressionCodecMultiple.cpp`, `CompressionCodecLZ4.cpp`, `CompressionCodecZSTD.cpp`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import lz4.block
import zstandard

from mergelake.core.base.errors import CorruptDataError, UnsupportedError
from mergelake.format.codecs import codec as c, codec_values as values
from mergelake.format.codecs.codec import Codec
from mergelake.format.kernels import method_bytes
from mergelake.format.kernels.kernels_compressed_blocks import HEADER_BYTES, PLAIN_MAX, SIZE_AT, packed_max
from mergelake.format.kernels.libraries import LZ4
from mergelake.format.kernels.memory import Region, allocate, copy_in, with_room

_I, _P = ctypes.c_int, ctypes.c_void_p
_lz4_decompress = ctypes.CFUNCTYPE(_I, _P, _P, _I, _I)(LZ4[0]) if LZ4[0] else None
_lz4_compress = ctypes.CFUNCTYPE(_I, _P, _P, _I, _I, _I)(LZ4[1]) if LZ4[1] else None
_WINDOW_BYTES_MAX = 1 << 27
"""Largest window of ZSTD for which memory is taken."""
_LZ4HC_LEVEL_MAX = 12
"""What is above it is the same to the library. Source: `LZ4HC_CLEVEL_MAX`."""


class _Contexts(threading.local):
    """ZSTD's working memory, which costs more than a compressed block; one context serves one thread."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        """The one of this level."""
        known = self.compressors.get(level)
        if known is None:
            known = self.compressors[level] = zstandard.ZstdCompressor(level=level)
        return known


_contexts = _Contexts()


# -- to payloads: regions with room for headers before them


def compress(codec: Codec, plain: Region) -> Region:
    """The payload of `plain`; before it lie `memory.ROOM` bytes that may be overwritten."""
    match codec.method:
        case method_bytes.MULTIPLE:
            return _compress_chain(codec.steps, plain)
        case method_bytes.LZ4 if codec.level:
            packed = lz4.block.compress(
                plain.buffer(),
                mode="high_compression",
                compression=min(codec.level - 1, _LZ4HC_LEVEL_MAX),
                store_size=False,
            )
        case method_bytes.LZ4:
            return _compress_lz4(plain)
        case method_bytes.ZSTD:
            packed = _contexts.compressor(codec.level).compress(plain.buffer())
        case method_bytes.NONE:
            packed = plain.tobytes()
        case _:
            return values.ENCODERS[codec.method](codec, plain)
    out = with_room(len(packed))
    copy_in(out, packed)
    return out


def _compress_lz4(plain: Region) -> Region:
    room = packed_max(plain.size, 1)
    out = with_room(room)
    if _lz4_compress is not None:
        return out.part(0, _lz4_compress(plain.address, out.address, plain.size, room, 1))
    packed = lz4.block.compress(plain.buffer(), store_size=False)
    copy_in(out, packed)
    return out.part(0, len(packed))


def with_header(method: int, payload: Region, plain_size: int) -> Region:
    """The payload with the header of a compressed block or of a step of a chain, written into the room before it."""
    encoded = payload.part(-HEADER_BYTES, payload.size)
    copy_in(encoded, bytes([method]) + encoded.size.to_bytes(4, "little") + plain_size.to_bytes(4, "little"))
    return encoded


def header_sizes(data: Region, header: int) -> tuple[int, int]:
    """Of the header at byte `header` of `data` the bytes of header and payload, and the plain bytes."""
    sizes = data.part(header + SIZE_AT, header + HEADER_BYTES).tobytes()
    return int.from_bytes(sizes[:4], "little"), int.from_bytes(sizes[4:], "little")


def encoded_max(plain: int) -> int:
    """More than header and payload take that a step of a chain makes of `plain` bytes; no more is allocated for them.

    No codec doubles its input but for a few hundred bytes.
    """
    return min(2 * plain + plain // 2 + 1024, PLAIN_MAX)


def _compress_chain(steps: tuple[Codec, ...], plain: Region) -> Region:
    for step in steps:
        plain = with_header(step.method, compress(step, plain), plain.size)
    head = bytes([len(steps), *(step.method for step in steps)])
    out = plain.part(-len(head), plain.size)
    copy_in(out, head)
    return out


# -- from payloads; ValueError and the like mean that the payload is corrupt


def decompress(method: int, payload: Region, target: Region, offset: int) -> None:
    """Fill `target` with the plain bytes of one payload.

    Raises UnsupportedError for a method we do not know, CorruptDataError (with `offset`) for a bad payload.
    """
    try:
        _decoder(method, offset)(payload, target)
    except (ValueError, RuntimeError, MemoryError, zstandard.ZstdError, lz4.block.LZ4BlockError) as caught:
        raise bad_payload(offset, str(caught)) from caught


def bad_payload(offset: int, why: str = "") -> CorruptDataError:
    """The error for a payload that does not decompress."""
    because = f" ({why})" if why else ""
    return CorruptDataError(f"A compressed block does not decompress{because}", name="CANNOT_DECOMPRESS", offset=offset)


def _decoder(method: int, offset: int) -> Callable[[Region, Region], None]:
    if method == method_bytes.MULTIPLE:
        return lambda payload, target: _decode_chain(payload, target, offset)
    decoder = DECODERS.get(method)
    if decoder is None:
        name = c.NAMES.get(method, f"with method byte {method:#04x}")
        raise UnsupportedError(
            f"Compression codec {name} is not supported (compressed block at offset {offset})",
            name="UNKNOWN_COMPRESSION_METHOD",
            hint="Rewrite the column with LZ4 or ZSTD in ClickHouse",
        )
    return decoder


def _decode_lz4(payload: Region, target: Region) -> None:
    if _lz4_decompress is None:
        _fill(target, lz4.block.decompress(payload.buffer(), uncompressed_size=target.size))
    elif _lz4_decompress(payload.address, target.address, payload.size, target.size) != target.size:
        raise ValueError("no LZ4 block of this size")


def _decode_zstd(payload: Region, target: Region) -> None:
    source = payload.buffer()
    stated = zstandard.frame_content_size(source)
    if stated not in (-1, target.size):
        raise ValueError(f"the payload holds {stated} bytes")
    _fill(target, _contexts.decompressor.decompress(source, max_output_size=target.size))


def _decode_none(payload: Region, target: Region) -> None:
    if payload.size != target.size:
        raise ValueError(f"{payload.size} bytes in place of {target.size}")
    ctypes.memmove(target.address, payload.address, payload.size)


def _fill(target: Region, plain: bytes) -> None:
    if len(plain) != target.size:
        raise ValueError(f"{len(plain)} bytes in place of {target.size}")
    copy_in(target, plain)


def _decode_chain(payload: Region, target: Region, offset: int) -> None:
    methods = payload.part(1, 1 + payload.byte(0)).tobytes() if payload.size and payload.byte(0) < payload.size else b""
    if not methods:
        raise ValueError("a chain without its codecs")
    size = target.size
    limits = [size := encoded_max(size) for _ in methods[1:]]  # of what each step but the last makes
    encoded = payload.tail(1 + len(methods))
    for i in range(len(methods) - 1, -1, -1):
        if encoded.size < HEADER_BYTES:
            raise ValueError("a step of a chain is cut short")
        packed, plain = header_sizes(encoded, 0)
        method = encoded.byte(0)
        if method != methods[i] or packed != encoded.size:
            raise ValueError("a step of a chain has another method or size")
        if method == method_bytes.MULTIPLE or (plain > limits[i - 1] if i else plain != target.size):
            raise ValueError("a step of a chain has an impossible size")
        out = allocate(plain) if i else target
        _decoder(method, offset)(encoded.tail(HEADER_BYTES), out)
        encoded = out


DECODERS: dict[int, Callable[[Region, Region], None]] = {
    method_bytes.NONE: _decode_none,
    method_bytes.LZ4: _decode_lz4,
    method_bytes.ZSTD: _decode_zstd,
    method_bytes.DELTA: values.decode_delta,
    method_bytes.DOUBLE_DELTA: values.decode_double_delta,
    method_bytes.GORILLA: values.decode_gorilla,
    method_bytes.T64: values.decode_t64,
    method_bytes.FPC: values.decode_fpc,
    method_bytes.GCD: values.decode_gcd,
}
"""Method byte -> decoder(payload, target), which fills all of `target`."""
