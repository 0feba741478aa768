"""The columns of a part for `mergelake part inspect`: their codecs and sizes.

In a Wide part a column has files of its own. In a Compact part all lie in `data.bin`: the marks tell which bytes are a
column's, and the headers of its compressed blocks the plain sizes. The codec is that of the last block of the first
granule, as null maps and sizes, which only have the general part of a chain, come before the values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mergelake.core.base.errors import MergelakeError
from mergelake.format.codecs import codec as c
from mergelake.format.kernels import method_bytes
from mergelake.parts.read.fetch import FileRange, fetch
from mergelake.parts.read.reader import PartReader

_HEADER = 25
_BLOCK_BYTES = _HEADER + 256
"""Enough of a compressed block to read its header and the names of a chain of codecs."""
_WALKED_BYTES = 32 << 20
"""A Compact part's data file is walked block by block up to this size."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column."""

    name: str
    type: str
    codec: str
    """Codec of the values; empty for a column without data."""
    files: tuple[str, ...]
    size: int
    """Bytes of its data on disk; 0 in a Compact part whose columns share blocks, or that is large."""
    uncompressed_size: int
    form: str
    """`default`, `sparse`, or why it cannot be read."""


def column_facts(reader: PartReader) -> Iterator[ColumnFacts]:
    """Every column, in the part's order."""
    layout = reader.layout
    data = b""
    if layout.compact and reader.manifest.rows and reader.files["data.bin"].size <= _WALKED_BYTES:
        whole = FileRange("data.bin", 0, reader.files["data.bin"].size)
        data = bytes(fetch(reader.store, reader.directory, reader.files, [whole])[0])
    for name, kind in layout.columns.items():
        info = layout.info.columns.get(name)
        form = "sparse" if info is not None and info.any_sparse else "default"
        try:
            files = layout.data_files(name, kind)
        except MergelakeError as refusal:
            yield ColumnFacts(name, str(kind), "", (), 0, 0, refusal.what)
            continue
        codec, size, plain = _in_compact(reader, name, data) if layout.compact else _in_wide(reader, files)
        yield ColumnFacts(name, str(kind), codec, files, size, plain, form)


def _in_wide(reader: PartReader, files: tuple[str, ...]) -> tuple[str, int, int]:
    sizes = [reader.files[file] for file in files]
    largest = max(sizes, key=lambda file: file.uncompressed_size)
    span = FileRange(largest.name, 0, min(_BLOCK_BYTES, largest.size))
    block = bytes(fetch(reader.store, reader.directory, reader.files, [span])[0]) if largest.size else b""
    return (
        _codec(block),
        sum(file.size for file in sizes),
        sum(max(file.uncompressed_size, 0) for file in sizes),
    )


def _in_compact(reader: PartReader, name: str, data: bytes) -> tuple[str, int, int]:
    codec, size, plain = "", 0, 0
    for granule in range(len(reader.granule_rows)):
        start, end = reader.column_bytes(name, granule, granule + 1)["data.bin"]
        blocks = list(_blocks(data, start, end))
        if not blocks or sum(length for _, length, _ in blocks) != end - start:
            return codec, 0, 0  # shared with its neighbours, or not walked
        codec = codec or _codec(data[blocks[-1][0] : blocks[-1][0] + _BLOCK_BYTES])
        size += end - start
        plain += sum(bytes_plain for _, _, bytes_plain in blocks)
    return codec, size, plain


def _blocks(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(start, bytes, plain bytes) of the compressed blocks in a range."""
    while at + _HEADER <= min(end, len(data)):
        length = 16 + int.from_bytes(data[at + 17 : at + 21], "little")
        yield at, length, int.from_bytes(data[at + 21 : at + 25], "little")
        at += length


def _codec(block: bytes) -> str:
    """The codec of a compressed block, without arguments: `Delta, ZSTD`."""
    if len(block) <= _HEADER:
        return ""
    method = block[16]
    methods = block[26 : 26 + block[25]] if method == method_bytes.MULTIPLE else bytes([method])
    return ", ".join(c.NAMES.get(each, f"{each:#04x}") for each in methods)
