"""Codecs: what compresses a frame's payload, and the table of methods that a reader understands.

To add a codec to the reader, add its method byte to `DECODERS`; to the writer, a kind to `parse_codec` and `compress`.
Delta, DoubleDelta, Gorilla, T64, FPC, GCD and chains of codecs are refused by name.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass

import lz4.block
import zstandard

from mergelake.core.errors import CorruptDataError, UnsupportedError, error
from mergelake.format.kernels_frames import LZ4, NONE
from mergelake.format.memory import Region

ZSTD = 0x90

_NAMES = {
    0x91: "Multiple",
    0x92: "Delta",
    0x93: "T64",
    0x94: "DoubleDelta",
    0x95: "Gorilla",
    0x96: "AES_128_GCM_SIV",
    0x97: "AES_256_GCM_SIV",
    0x98: "FPC",
    0x9A: "GCD",
    0x9C: "ALP",
    0x9E: "Quantized",
    0x9F: "ZXC",
}
_KNOWN = {"LZ4HC", "DEFLATE_QPL", "ZSTD_QAT", "NONE", "LZ4", "ZSTD", *_NAMES.values()}


@dataclass(frozen=True, slots=True)
class Codec:
    """One codec with its level; `str` gives ClickHouse's spelling without `CODEC(…)`."""

    method: int
    """The method byte of frames."""
    level: int = 0
    """Compression level of ZSTD."""

    def __str__(self) -> str:
        return {NONE: "NONE", LZ4: "LZ4"}.get(self.method, f"ZSTD({self.level})")


CODEC_LZ4 = Codec(LZ4)
CODEC_NONE = Codec(NONE)


def parse_codec(text: str) -> Codec:
    """The codec that `LZ4`, `ZSTD(3)`, `CODEC(NONE)`, `Default` or empty text names (empty and `Default`: LZ4).

    Raises ILLEGAL_CODEC_PARAMETER for a bad level, UNKNOWN_CODEC for an unknown name, UnsupportedError for a codec
    that ClickHouse has and we do not.

    >>> str(parse_codec("CODEC(ZSTD)"))
    'ZSTD(1)'
    """
    inner = re.sub(r"^\s*CODEC\s*\((.*)\)\s*$", r"\1", text, flags=re.IGNORECASE | re.DOTALL).strip()
    match = re.fullmatch(r"([A-Za-z0-9_]+)\s*(?:\(\s*(-?\d+)\s*\))?", inner)
    name = (match.group(1) if match else inner).upper()
    parameter = match.group(2) if match else None
    if parameter is not None and name in {"LZ4", "NONE", "DEFAULT"}:
        raise error("ILLEGAL_CODEC_PARAMETER", f"Codec {name} takes no parameter, got {parameter}")
    if name in {"", "LZ4", "DEFAULT"}:
        return CODEC_LZ4
    if name == "NONE":
        return CODEC_NONE
    if name == "ZSTD":
        level = int(parameter or 1)
        if not 1 <= level <= 22:
            raise error(
                "ILLEGAL_CODEC_PARAMETER", f"ZSTD codec can't have level more than 22 and less than 1, got {level}"
            )
        return Codec(ZSTD, level)
    words = {word.upper() for word in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", inner)}
    if words and words <= {known.upper() for known in _KNOWN}:
        raise error("NOT_IMPLEMENTED", f"Codec {inner} is not supported", "Use NONE, LZ4 or ZSTD(level)")
    raise error("UNKNOWN_CODEC", f"Unknown codec family code: {inner}", "Use NONE, LZ4 or ZSTD(level)")


def _find_lz4() -> tuple[int, int]:
    """Addresses of LZ4_decompress_safe and LZ4_compress_fast in the `lz4` package's own library; 0 if not exported.

    They are tried on a known block before they are trusted.
    """
    try:
        library = ctypes.CDLL(lz4.block._block.__file__)
        decompress, compress = library.LZ4_decompress_safe, library.LZ4_compress_fast
    except (AttributeError, OSError):
        return 0, 0
    plain = b"mergelake" * 20
    packed, back = ctypes.create_string_buffer(512), ctypes.create_string_buffer(512)
    size = compress(plain, packed, len(plain), 512, 1)
    if size <= 0 or decompress(packed, back, size, 512) != len(plain) or back.raw[: len(plain)] != plain:
        return 0, 0
    addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in (decompress, compress)]
    return addresses[0], addresses[1]


LZ4_DECOMPRESS, LZ4_COMPRESS = _find_lz4()
"""Addresses for kernels, or 0: then frames go through `lz4.block` one by one."""


def _decode_lz4(payload: Region, plain_size: int) -> bytes:
    return bytes(lz4.block.decompress(payload.buffer(), uncompressed_size=plain_size))


def _decode_zstd(payload: Region, plain_size: int) -> bytes:
    source = payload.buffer()
    stated = zstandard.frame_content_size(source)
    if stated not in (-1, plain_size):
        raise ValueError(f"the ZSTD frame holds {stated} bytes")
    return zstandard.ZstdDecompressor(max_window_size=1 << 27).decompress(source, max_output_size=plain_size)


DECODERS: dict[int, Callable[[Region, int], bytes]] = {LZ4: _decode_lz4, ZSTD: _decode_zstd}
"""Method byte -> decoder(payload, plain size) -> plain bytes; any exception means that the payload is corrupt."""


def decompress(method: int, payload: Region, plain_size: int, offset: int) -> bytes:
    """The plain bytes of one frame's payload.

    Raises UnsupportedError for a method we do not know, CorruptDataError (with `offset`) for a bad payload.
    """
    decoder = DECODERS.get(method)
    if decoder is None:
        name = _NAMES.get(method, f"with method byte {method:#04x}")
        raise UnsupportedError(
            f"Compression codec {name} is not supported (frame at offset {offset})",
            name="UNKNOWN_COMPRESSION_METHOD",
            hint="Rewrite the column with NONE, LZ4 or ZSTD in ClickHouse",
        )
    try:
        plain = decoder(payload, plain_size)
    except (ValueError, RuntimeError, MemoryError, zstandard.ZstdError) as caught:
        raise bad_payload(offset, str(caught)) from caught
    if len(plain) != plain_size:
        raise bad_payload(offset, f"{len(plain)} bytes in place of {plain_size}")
    return plain


def bad_payload(offset: int, why: str = "") -> CorruptDataError:
    """The error for a payload that does not decompress."""
    because = f" ({why})" if why else ""
    return CorruptDataError(f"A compressed frame does not decompress{because}", name="CANNOT_DECOMPRESS", offset=offset)


def compress(codec: Codec, plain: Region) -> bytes:
    """One payload, for codecs that kernels do not have."""
    if codec.method == ZSTD:
        return zstandard.ZstdCompressor(level=codec.level).compress(plain.buffer())
    if codec.method == LZ4:
        return bytes(lz4.block.compress(plain.buffer(), store_size=False))
    return plain.tobytes()
