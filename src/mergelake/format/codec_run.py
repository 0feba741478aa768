"""Running codecs: the payload of a compressed block from its plain bytes, and back.

General codecs and chains are here; those of values in `codec_values`. A chain's payload: u8 number of steps, their
method bytes, and the last step's block: u8 method, u32 size with this header, u32 plain size, payload. Its plain bytes
are the block of the step before it, and so on.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import lz4.block
import zstandard

from mergelake.core.errors import CorruptDataError, UnsupportedError
from mergelake.format import codec as c
from mergelake.format import codec_values as values
from mergelake.format import kernels_compressed_blocks as k
from mergelake.format.codec import Codec
from mergelake.format.libraries import LZ4
from mergelake.format.memory import Region, allocate, copy_in, with_room

BLOCK_HEADER = 9
_I, _P = ctypes.c_int, ctypes.c_void_p
_lz4_decompress = ctypes.CFUNCTYPE(_I, _P, _P, _I, _I)(LZ4[0]) if LZ4[0] else None
_lz4_compress = ctypes.CFUNCTYPE(_I, _P, _P, _I, _I, _I)(LZ4[1]) if LZ4[1] else None


class _Contexts(threading.local):
    """ZSTD's working memory, which costs more than a compressed block; one context serves one thread."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        """The one of this level."""
        found = self.compressors.get(level)
        if found is None:
            found = self.compressors[level] = zstandard.ZstdCompressor(level=level)
        return found


_contexts = _Contexts()


# -- to payloads: regions with room for headers before them


def compress(codec: Codec, plain: Region) -> Region:
    """The payload of `plain`; before it lie `memory.ROOM` bytes that may be overwritten."""
    match codec.method:
        case c.MULTIPLE:
            return _compress_chain(codec.steps, plain)
        case k.LZ4 if codec.level:
            packed = lz4.block.compress(
                plain.buffer(), mode="high_compression", compression=min(codec.level - 1, 12), store_size=False
            )
        case k.LZ4:
            return _compress_lz4(plain)
        case c.ZSTD:
            packed = _contexts.compressor(codec.level).compress(plain.buffer())
        case k.NONE:
            packed = plain.tobytes()
        case _:
            return values.ENCODERS[codec.method](codec, plain)
    out = with_room(len(packed))
    copy_in(out, packed)
    return out


def _compress_lz4(plain: Region) -> Region:
    room = plain.size + plain.size // 255 + 16
    out = with_room(room)
    if _lz4_compress is not None:
        return out.part(0, _lz4_compress(plain.address, out.address, plain.size, room, 1))
    packed = lz4.block.compress(plain.buffer(), store_size=False)
    copy_in(out, packed)
    return out.part(0, len(packed))


def with_header(method: int, payload: Region, plain_size: int) -> Region:
    """The payload with the header of a compressed block or of a step of a chain, written into the room before it."""
    block = Region(payload.address - BLOCK_HEADER, payload.size + BLOCK_HEADER, payload.owner)
    copy_in(block, bytes([method]) + block.size.to_bytes(4, "little") + plain_size.to_bytes(4, "little"))
    return block


def _compress_chain(steps: tuple[Codec, ...], plain: Region) -> Region:
    for step in steps:
        plain = with_header(step.method, compress(step, plain), plain.size)
    head = bytes([len(steps), *(step.method for step in steps)])
    out = Region(plain.address - len(head), plain.size + len(head), plain.owner)
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
    if method == c.MULTIPLE:
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
    block = payload.tail(1 + len(methods))
    # No codec doubles its input but for a few hundred bytes, so nothing within may be much larger than what comes out.
    most = target.size
    limits = [most := min(2 * most + most // 2 + 1024, k.PLAIN_MAX) for _ in methods[1:]]
    for i in range(len(methods) - 1, -1, -1):
        if block.size < BLOCK_HEADER:
            raise ValueError("a block in a chain is cut short")
        head = block.part(0, BLOCK_HEADER).tobytes()
        packed, plain = int.from_bytes(head[1:5], "little"), int.from_bytes(head[5:9], "little")
        if head[0] != methods[i] or packed != block.size:
            raise ValueError("a block in a chain has another method or size")
        if head[0] == c.MULTIPLE or (plain > limits[i - 1] if i else plain != target.size):
            raise ValueError("a block in a chain has an impossible size")
        out = allocate(plain) if i else target
        _decoder(head[0], offset)(block.tail(BLOCK_HEADER), out)
        block = out


DECODERS: dict[int, Callable[[Region, Region], None]] = {
    k.NONE: _decode_none,
    k.LZ4: _decode_lz4,
    c.ZSTD: _decode_zstd,
    c.DELTA: values.decode_delta,
    c.DOUBLE_DELTA: values.decode_double_delta,
    c.GORILLA: values.decode_gorilla,
    c.T64: values.decode_t64,
    c.FPC: values.decode_fpc,
    c.GCD: values.decode_gcd,
}
"""Method byte -> decoder(payload, target), which fills all of `target`."""
