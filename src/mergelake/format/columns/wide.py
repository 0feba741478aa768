"""Writing one column of a Wide part, by default in the classic profile, which every ClickHouse since 21.x reads.

Each stream of the column becomes two files: `<stream>.bin`, compressed blocks, and `<stream>.mrk2`, plain records of
(offset of the compressed block, offset in its plain bytes, rows) for each granule and a final one. Strings lie inline.
The bytes are those that ClickHouse itself writes with the settings of the classic profile (LowCardinality dictionaries
excepted).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.format.codecs.codec import Codec
from mergelake.format.codecs.codec_types import stream_codec, stream_types
from mergelake.format.codecs.compressed_blocks import MAX_BLOCK, MIN_BLOCK, CompressedBlockWriter
from mergelake.format.codecs.hashes import FileDigest, FileHash
from mergelake.format.files.profile import CLASSIC_PROFILE, Profile
from mergelake.format.kernels.memory import Region
from mergelake.format.serializations.names import stream_file_name
from mergelake.format.serializations.serialization import Bounds, Serialization
from mergelake.format.serializations.tree import build_serialization

PIECE_ROWS = 1 << 17
"""Most rows that go through the kernels at once: their bytes should stay in the processor's cache."""
PIECE_BYTES = 1 << 21
"""Most bytes that do, unless one granule has more."""


def stream_files(name: str, data_type: t.DataType, *, skip: Collection[str] = ()) -> tuple[str, ...]:
    """The files that a column of this name and type has, without those of the streams in `skip`."""
    streams = [stream for stream in build_serialization(name, data_type).streams() if stream not in skip]
    return tuple(stream_file_name(s) + extension for s in streams for extension in (".bin", ".mrk2"))


def empty_files(name: str, data_type: t.DataType, *, skip: Collection[str] = ()) -> dict[str, FileDigest]:
    """The files of the column in a part without rows, all of them empty."""
    zero = "0" * 32
    return {
        file: FileDigest(0, zero, 0, zero) if file.endswith(".bin") else FileDigest(0, zero)
        for file in stream_files(name, data_type, skip=skip)
    }


def value_types(node: Serialization, data_type: t.DataType) -> Iterator[tuple[str, t.DataType | None]]:
    """Each stream of `node`, of a column of `data_type`, and the type of its values (None: sizes, null maps, …)."""
    types = stream_types(data_type)
    for stream in node.streams():
        # Only lengths of strings end in `.size`: sizes of arrays have a number, a dot in a name is escaped.
        yield stream, None if stream.endswith(".size") else next(types)


class ColumnWriter:
    """One column of a Wide part, streaming: `append` granules, `drain` bytes now and then, `finish`, `digests`.

    `skip` names streams that another column writes: siblings of a Nested column share their sizes
    (`streams.shared_sizes_stream`). A column that got no rows has empty files.
    """

    def __init__(
        self,
        name: str,
        data_type: t.DataType,
        codec: Codec,
        *,
        min_block: int = MIN_BLOCK,
        max_block: int = MAX_BLOCK,
        skip: Collection[str] = (),
        profile: Profile = CLASSIC_PROFILE,
    ) -> None:
        self.name = name
        self.data_type = data_type
        self._profile = profile
        self._serialization = build_serialization(name, data_type, profile.form)
        kinds = value_types(self._serialization, data_type)
        self._streams = {
            stream: _Stream(CompressedBlockWriter(stream_codec(codec, values), min_block, max_block), profile)
            for stream, values in kinds
            if stream not in skip
        }
        self.rows = 0
        """Rows taken so far."""

    def append(self, array: pa.Array | pa.ChunkedArray, granule_rows: NDArray[np.int64]) -> None:
        """Take whole granules: `granule_rows` (all positive) sums to the rows of `array`, in storage form.

        Raises CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN for NULLs where the type has none, TYPE_MISMATCH for an array
        that is not in storage form, BAD_ARGUMENTS for granules that do not fit.
        """
        granules = np.ascontiguousarray(granule_rows, np.int64)
        if granules.sum() != len(array) or (granules <= 0).any():
            raise error("BAD_ARGUMENTS", f"Granules of {granules.sum()} rows for {len(array)} rows of {self.name}")
        rows_max = min(PIECE_ROWS, PIECE_BYTES * len(array) // max(array.nbytes, 1))
        for start, stop, counts in pieces(granules, rows_max):
            self._append(_as_array(array.slice(start, stop - start)), counts)

    def _append(self, array: pa.Array, granule_rows: Bounds) -> None:
        sink = _Granules(self._streams, granule_rows)
        self._serialization.encode(array, np.cumsum(granule_rows), sink)
        self.rows += len(array)

    def drain(self) -> list[tuple[str, bytes | memoryview]]:
        """(file, its next bytes) since the last call; files without new bytes are left out."""
        out: list[tuple[str, bytes | memoryview]] = []
        for name, stream in self._streams.items():
            stem = stream_file_name(name)
            marks = stem + self._profile.mark_extension
            out += [(stem + ".bin", stream.blocks.drain()), (marks, stream.drain_marks())]
        return [(file, data) for file, data in out if data]

    def finish(self) -> list[tuple[str, bytes | memoryview]]:
        """Write what waits and the final mark; the last bytes of each file. Nothing may be appended afterwards."""
        if self.rows:
            self._serialization.finish(_Granules(self._streams, np.empty(0, np.int64)))
            for stream in self._streams.values():
                stream.mark(stream.blocks.finish())
                stream.finish()
        return self.drain()

    def digests(self) -> dict[str, FileDigest]:
        """Sizes and hashes of every file, also of empty ones; call after `finish`."""
        out: dict[str, FileDigest] = {}
        for name, stream in self._streams.items():
            stem = stream_file_name(name)
            out[stem + ".bin"] = stream.blocks.digest()
            out[stem + self._profile.mark_extension] = stream.mark_digest()
        return out


class _Stream:
    """The two files of a stream."""

    def __init__(self, blocks: CompressedBlockWriter, profile: Profile) -> None:
        self.blocks = blocks
        self._profile = profile
        self._hash = FileHash()
        self._marks: list[bytes] = []
        self._packed: FileDigest | None = None

    def mark(self, marks: NDArray[np.uint64]) -> None:
        self._marks.append(marks.tobytes())
        if not self._profile.modern:
            self._hash.update(marks)

    def finish(self) -> None:
        if self._profile.modern:
            packed, self._packed = self._profile.pack(b"".join(self._marks))
            self._marks = [packed]

    def drain_marks(self) -> bytes:
        if self._profile.modern and self._packed is None:
            return b""  # marks are compressed together at the end
        out, self._marks = b"".join(self._marks), []
        return out

    def mark_digest(self) -> FileDigest:
        if self._profile.modern:
            return self._packed or self._profile.pack(b"")[1]
        return FileDigest(self._hash.size, self._hash.hexdigest())


class _Granules:
    """The sink of one append: bytes of a stream become granules of `rows`."""

    def __init__(self, streams: dict[str, _Stream], rows: Bounds) -> None:
        self._streams = streams
        self._rows = rows

    def put(self, stream: str, data: Region, ends: Bounds | None) -> None:
        target = self._streams.get(stream)
        if target is None:
            return
        if ends is None:
            target.blocks.append(data, np.array([data.size], np.int64), np.zeros(1, np.int64))
        else:
            target.mark(target.blocks.append(data, ends, self._rows))


def pieces(granules: Bounds, rows_max: int) -> list[tuple[int, int, Bounds]]:
    """(first row, last row exclusive, granules) of runs of at most `rows_max` rows, or of one granule."""
    rows = int(granules.sum())
    if rows <= rows_max:
        return [(0, rows, granules)] if rows else []
    ends = np.cumsum(granules)
    out: list[tuple[int, int, Bounds]] = []
    first = start = 0
    while first < len(ends):
        last = max(int(np.searchsorted(ends, start + rows_max, side="right")), first + 1)
        out.append((start, int(ends[last - 1]), granules[first:last]))
        start, first = int(ends[last - 1]), last
    return out


def _as_array(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(array, pa.ChunkedArray):
        return array
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
