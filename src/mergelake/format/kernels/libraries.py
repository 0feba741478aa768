"""liblz4 and libzstd, as the packages `lz4` and `zstandard` carry them, for kernels to call by address.

Both packages link their library into a module that exports its functions; where one does not, its addresses are 0 and
compressed blocks go through the package's Python functions one by one. Functions are tried on a known text before they
are trusted. ZSTD's working memory costs more than a compressed block: it is kept, one for each thread.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from typing import Any

import lz4.block
import numpy as np

_I, _L, _P = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
_PLAIN, _PACKED_BYTES = b"mergelake" * 20, 512
"""The text on which functions are tried, and room for it in both forms."""
LZ4_DECOMPRESS, LZ4_COMPRESS, ZSTD_DECOMPRESS, ZSTD_COMPRESS, DECOMPRESSOR, COMPRESSOR = range(6)
"""Places in a thread's table: four functions, and ZSTD's contexts for both ways."""


def _address(function: Any) -> int:
    """The address of a function of C."""
    return ctypes.cast(function, _P).value or 0


def _find_lz4() -> tuple[int, int]:
    """Addresses of LZ4_decompress_safe and LZ4_compress_fast; 0 if not exported."""
    try:
        library = ctypes.CDLL(lz4.block._block.__file__)
        decompress, compress = library.LZ4_decompress_safe, library.LZ4_compress_fast
    except (AttributeError, OSError):
        return 0, 0
    packed, back = ctypes.create_string_buffer(_PACKED_BYTES), ctypes.create_string_buffer(_PACKED_BYTES)
    size = compress(_PLAIN, packed, len(_PLAIN), _PACKED_BYTES, 1)
    if size <= 0 or decompress(packed, back, size, _PACKED_BYTES) != len(_PLAIN) or back.raw[: len(_PLAIN)] != _PLAIN:
        return 0, 0
    return _address(decompress), _address(compress)


def _find_zstd() -> ctypes.CDLL | None:
    """The library, if it exports what is needed and works."""
    spec = importlib.util.find_spec("zstandard._cffi")
    try:
        library = ctypes.CDLL(spec.origin if spec is not None else "")
        for name, result, arguments in (
            ("ZSTD_createCCtx", _P, []), ("ZSTD_createDCtx", _P, []), ("ZSTD_freeCCtx", _L, [_P]),
            ("ZSTD_freeDCtx", _L, [_P]), ("ZSTD_compressCCtx", _L, [_P, _P, _L, _P, _L, _I]),
            ("ZSTD_decompressDCtx", _L, [_P, _P, _L, _P, _L]),
        ):  # fmt: skip
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (AttributeError, OSError, TypeError):
        return None
    contexts = _Contexts(library)
    packed, back = ctypes.create_string_buffer(_PACKED_BYTES), ctypes.create_string_buffer(_PACKED_BYTES)
    size = library.ZSTD_compressCCtx(contexts.compressor, packed, _PACKED_BYTES, _PLAIN, len(_PLAIN), 1)
    if size > _PACKED_BYTES:  # an error
        return None
    plain = library.ZSTD_decompressDCtx(contexts.decompressor, back, _PACKED_BYTES, packed, size)
    return library if plain == len(_PLAIN) and back.raw[: len(_PLAIN)] == _PLAIN else None


class _Contexts:
    """ZSTD's working memory for one thread, freed with it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.compressor, self.decompressor = library.ZSTD_createCCtx(), library.ZSTD_createDCtx()
        if not self.compressor or not self.decompressor:
            raise MemoryError("no memory for ZSTD")

    def __del__(self) -> None:
        self._library.ZSTD_freeCCtx(self.compressor)
        self._library.ZSTD_freeDCtx(self.decompressor)


LZ4 = _find_lz4()
"""Addresses of LZ4_decompress_safe and LZ4_compress_fast, or 0."""
_zstd = _find_zstd()


class _Table(threading.local):
    """The addresses that kernels call in this thread: functions, and contexts of ZSTD, which one thread may use."""

    def __init__(self) -> None:
        self.words = np.zeros(6, np.int64)
        self.words[LZ4_DECOMPRESS], self.words[LZ4_COMPRESS] = LZ4
        self._contexts = None
        if _zstd is not None:
            self._contexts = _Contexts(_zstd)
            self.words[ZSTD_DECOMPRESS] = _address(_zstd.ZSTD_decompressDCtx)
            self.words[ZSTD_COMPRESS] = _address(_zstd.ZSTD_compressCCtx)
            self.words[DECOMPRESSOR], self.words[COMPRESSOR] = self._contexts.decompressor, self._contexts.compressor
        self.address: int = self.words.ctypes.data


table = _Table()
"""The table of the thread at hand: `table.words`, six i64, at the address `table.address`."""
