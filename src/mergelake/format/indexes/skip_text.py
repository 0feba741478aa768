"""tokenbf_v1 and ngrambf_v1 indexes: Bloom filters of the words, or of the runs of n characters, of strings.

A granule is a filter of fixed size for each expression. Words are runs of ASCII letters and digits and of bytes above
127; characters are UTF-8 sequences. Arrays of strings give the pieces of all elements.

A constant of a predicate becomes a filter too, of the pieces that every matching string must have; a granule may match
if its filter holds all those bits. Which pieces these are depends on the comparison: all of an equal string, those
between wildcards of LIKE, and where the constant is a part of the string, no word that the rest could prolong.

Source: ClickHouse, `MergeTreeIndexBloomFilterText.cpp`, `BloomFilter.cpp`, `ITokenizer.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError
from mergelake.format.indexes.skip_builder import GranuleBuilder, Rows, segments
from mergelake.format.indexes.skip_types import TextBloom
from mergelake.format.kernels.kernels_skip import add_piece, text_filters
from mergelake.format.kernels.memory import Region
from mergelake.format.serializations.ragged import VarBinaryColumn, fixed, list_elements
from mergelake.format.serializations.serialization import as_numpy
from mergelake.format.serializations.values import binary_cells, fixed_bytes

Filter = NDArray[np.uint8]
"""Bytes of one filter."""


class TextBuilder(GranuleBuilder[Filter]):
    """Granules of a tokenbf_v1 or ngrambf_v1 index; the summary is (expressions, bytes of a filter)."""

    def __init__(self, kind: TextBloom, granularity: int) -> None:
        super().__init__(granularity)
        self._kind = kind

    def _take(self, arrays: Sequence[pa.Array], cuts: Rows, ends: Rows) -> tuple[bytes, Rows]:
        bounds, goes_on = segments(ends, len(arrays[0]))
        out = np.zeros((len(bounds), len(arrays), self._kind.size), np.uint8)
        for i, array in enumerate(arrays):
            out[:, i] = self._filters(array, bounds)
        if self._open is not None:
            out[0] |= self._open
        self._open = out[-1].copy() if goes_on else None
        whole = out[: len(bounds) - goes_on]
        size = len(arrays) * self._kind.size
        return whole.tobytes(), np.arange(1, len(whole) + 1, dtype=np.int64) * size

    def _filters(self, array: pa.Array, bounds: Rows) -> NDArray[np.uint8]:
        """(segments, bytes) of the filters of one expression."""
        kind = self._kind
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_list(array.type):
            array, edges = list_elements(array)
            bounds = edges[bounds]
        cells = text_cells(array)
        out = np.zeros((len(bounds), kind.size), np.uint8)
        data = np.ascontiguousarray(cells.data)
        text_filters(
            data.ctypes.data, cells.offsets, bounds, kind.ngram, kind.size, kind.hashes, kind.seed,
            out.ctypes.data,
        )  # fmt: skip
        return out

    def _encode_open(self, summary: Filter) -> tuple[bytes, Rows]:
        return summary.tobytes(), np.array([summary.size], np.int64)


def text_cells(array: pa.Array) -> VarBinaryColumn:
    """The bytes of each String or FixedString."""
    return binary_cells(array) if pa.types.is_binary(array.type) else fixed(np.ascontiguousarray(fixed_bytes(array)))


def decode_text(plain: Region, kind: TextBloom, expressions: int, granules: int) -> NDArray[np.uint8]:
    """(granules, expressions, bytes) of the first granules. Raises CorruptDataError if they are cut short."""
    size = granules * expressions * kind.size
    if size > plain.size:
        raise CorruptDataError("A Bloom filter is cut short", name="CANNOT_READ_ALL_DATA", offset=plain.size)
    return as_numpy(plain.part(0, size), np.uint8).reshape(granules, expressions, kind.size)


def may_hold(granules: NDArray[np.uint8], wanted: Filter) -> NDArray[np.bool_]:
    """For each granule's filter (granules, bytes) whether all bits of `wanted` are set."""
    at = np.flatnonzero(wanted)
    return np.asarray(((granules[:, at] & wanted[at]) == wanted[at]).all(axis=1))


def filter_of(pieces: Sequence[bytes], kind: TextBloom) -> Filter:
    """The filter that has just these pieces."""
    out = np.zeros(kind.size, np.uint8)
    for piece in pieces:
        data = np.frombuffer(piece, np.uint8)
        add_piece(data.ctypes.data, len(piece), out.ctypes.data, kind.size, kind.hashes, kind.seed)
    return out


# --- the pieces of constants


def pieces_of(text: bytes, kind: TextBloom) -> list[bytes]:
    """All pieces of a string."""
    return [text[start:stop] for start, stop in (_ngrams(text, kind.ngram) if kind.ngram else _words(text))]


def pieces_of_part(text: bytes, kind: TextBloom, *, prefix: bool, suffix: bool) -> list[bytes]:
    """The pieces of every string that contains `text`, at its beginning (`prefix`) or end (`suffix`)."""
    if kind.ngram:
        return pieces_of(text, kind)
    return [
        text[start:stop]
        for start, stop in _words(text)
        if (start > 0 or prefix) and (stop < len(text) or suffix)
    ]  # fmt: skip


def pieces_of_like(pattern: bytes, kind: TextBloom) -> list[bytes]:
    """The pieces of every string that is LIKE `pattern`."""
    return _like_ngrams(pattern, kind.ngram) if kind.ngram else _like_words(pattern)


def _is_word(byte: int) -> bool:
    return byte >= 0x80 or 48 <= byte <= 57 or 97 <= (byte | 0x20) <= 122


def _words(text: bytes) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    start = -1
    for at, byte in enumerate((*text, 0)):
        if _is_word(byte):
            start = at if start < 0 else start
        elif start >= 0:
            out.append((start, at))
            start = -1
    return out


def _sequence(byte: int) -> int:
    """Bytes of the UTF-8 sequence that begins so; 1 for a byte that begins none."""
    return 1 if byte < 0xC0 or byte >= 0xF8 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4


def _ngrams(text: bytes, length: int) -> list[tuple[int, int]]:
    starts = []
    at = 0
    while at < len(text):
        starts.append(at)
        at += _sequence(text[at])
    ends = [*starts[1:], len(text)] if starts else []
    return [(starts[i], ends[i + length - 1]) for i in range(len(starts) - length + 1)]


def _like_words(pattern: bytes) -> list[bytes]:
    """Words with neither a wildcard nor the end of a fixed piece next to them."""
    out: list[bytes] = []
    word = b""
    bad = escaped = False
    at = 0
    while at < len(pattern):
        byte = pattern[at]
        if not escaped and byte in b"%_":
            word, bad = b"", True
            at += 1
        elif not escaped and byte == 0x5C:
            escaped = True
            at += 1
        elif not _is_word(byte):
            if word and not bad:
                out.append(word)
            word, bad, escaped = b"", False, False
            at += 1
        else:
            size = _sequence(byte)
            word += pattern[at : at + size]
            at += size
            escaped = False
    if word and not bad:
        out.append(word)
    return out


def _like_ngrams(pattern: bytes, length: int) -> list[bytes]:
    """Runs of characters without wildcards."""
    out: list[bytes] = []
    run: list[bytes] = []
    escaped = False
    at = 0
    while at <= len(pattern):
        if at == len(pattern) or (not escaped and pattern[at] in b"%_"):
            out += [b"".join(run[i : i + length]) for i in range(len(run) - length + 1)]
            run = []
            at += 1
        elif not escaped and pattern[at] == 0x5C:
            escaped = True
            at += 1
        else:
            size = 1 if escaped and pattern[at] in b"%_\\" else _sequence(pattern[at])
            run.append(pattern[at : at + size])
            escaped = False
            at += size
    return out
