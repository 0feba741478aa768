"""Segments: immutable objects with parts of checkpoints, `_log/checkpoints/<20 digits>-<id>.segment`. Pure.

::

    rows      an Arrow IPC stream (zstd): what planning needs of each part, about 64 bytes; by partition and block
    frames    the file tables of up to 64 rows each: a JSON list of texts, zstd

A checkpoint names its segments with the length and the digest of `rows`, and has a bit for each row: whether the part
is active. The header of `rows` holds the places and digests of the frames. A part is immutable, and is in one segment
of a checkpoint at most: only the bits change from checkpoint to checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard
from numpy.typing import NDArray

from mergelake.core.base.json_load import loads
from mergelake.core.model.manifest import FileTable
from mergelake.log.model.parts import ActivePart
from mergelake.log.storage.encoding import require_format
from mergelake.log.storage.part_rows import (
    completed,
    digest_of,
    header_of,
    lists_of,
    open_stream,
    parts_of,
    require_digest,
    write_stream,
)

SEGMENT_FORMAT = 2
FRAME_ROWS = 64
FRAME_BYTES = 1 << 20
"""File tables of a frame, at most; and the approximate bytes of their texts."""
NOT_WHAT_WAS_WRITTEN = "A segment of a checkpoint does not hold what was written"


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """The reference of a checkpoint to a segment."""

    name: str
    """Name of the object, below `_log/checkpoints`."""
    rows: int
    hot_bytes: int
    """The length of its rows, at the beginning of the object."""
    size: int
    """Bytes of the object."""
    digest: bytes
    """Digest of the rows, 16 bytes."""


@dataclass(frozen=True, slots=True)
class SegmentMember:
    """A segment of one checkpoint."""

    ref: SegmentRef
    live: NDArray[np.bool_]
    """By row: whether the part is active."""

    @property
    def live_bytes(self) -> int:
        """Approximate bytes of its active parts."""
        return self.ref.size * int(np.count_nonzero(self.live)) // max(self.ref.rows, 1)


class FrameSource(Protocol):
    """Reads file tables of segments."""

    def text(self, place: StoredFiles) -> str:
        """The text at a place."""
        ...


@dataclass(frozen=True)
class OpenSegment:
    """A segment whose rows were read."""

    ref: SegmentRef
    rows: pa.Table
    """`part_rows.WITHOUT_FILES`, sorted by partition and block."""
    frames: tuple[tuple[int, int, bytes], ...]
    """Offset in the object, length, and digest of each frame."""
    frame_rows: int
    """File tables in a frame, but for the last."""
    source: FrameSource
    derived: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)
    """Values that readers have derived from its rows, which are immutable."""

    @cached_property
    def ranges(self) -> Mapping[str, tuple[int, int]]:
        """Partition id -> its first row, and the one after its last."""
        runs = pc.run_end_encode(self.rows["partition_id"].combine_chunks(), run_end_type=pa.int32())
        ends = runs.run_ends.to_pylist()
        return dict(zip(runs.values.to_pylist(), zip([0, *ends], ends, strict=False), strict=True))

    def rows_in(self, partition_id: str, live: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The rows of a partition that are `live`."""
        start, end = self.ranges.get(partition_id, (0, 0))
        return np.flatnonzero(live[start:end]) + start

    def known(self, partition_id: str) -> dict[tuple[str, int], int]:
        """Id and `added` of each part of a partition in it, alive or not, with its row."""
        start, end = self.ranges.get(partition_id, (0, 0))
        return {key: row for row, key in enumerate(self.keys(np.arange(start, end)), start)}

    def keys(self, rows: NDArray[np.int64]) -> list[tuple[str, int]]:
        """Id and `added` of the parts in some rows."""
        columns = lists_of(_taken(self.rows.select(["id", "added"]), rows))
        return list(zip(columns["id"], columns["added"], strict=True))

    def parts(self, rows: NDArray[np.int64]) -> list[ActivePart]:
        """The parts in some rows; their file tables are read on demand."""
        columns = lists_of(_taken(self.rows, rows))
        facts = (columns[name] for name in ("id", "files_digest", "outside", "added"))
        files = [
            FileTable(None, StoredFiles(self, row, part_id, digest, tuple(outside), added))
            for row, part_id, digest, outside, added in zip(rows.tolist(), *facts, strict=True)
        ]
        return parts_of(columns, files)

    def texts(self, data: bytes, key: str) -> Iterator[str]:
        """All file tables, in the order of the rows, from the whole object."""
        for number, (offset, length, _) in enumerate(self.frames):
            yield from decode_frame(self, number, data[offset : offset + length], key)


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """A row of a segment, as the place of a file table (`core.model.manifest.FilePlace`)."""

    segment: OpenSegment
    row: int
    part_id: str
    digest: bytes
    outside: tuple[str, ...]
    added: int

    def text(self) -> str:
        """Read the text; its frame is cached."""
        return self.segment.source.text(self)

    def __repr__(self) -> str:
        return f"StoredFiles({self.segment.ref.name!r}, {self.row})"


def segment_name(version: int, drawn: str) -> str:
    """The name of a new segment for the checkpoint of a version."""
    return f"{version:020d}-{drawn}.segment"


def is_segment(name: str) -> bool:
    """Whether an object beside the checkpoints has the name of a segment."""
    return name.endswith(".segment") and name[:20].isdigit()


def written_for(name: str) -> int:
    """The version of the checkpoint for which a segment was written."""
    return int(name[:20])


def encode_segment(name: str, rows: pa.Table, texts: Sequence[str], source: FrameSource) -> tuple[OpenSegment, bytes]:
    """A segment of rows and the texts of their file tables, as an open segment; and its bytes."""
    compressor = zstandard.ZstdCompressor(level=3)
    frame_rows = max(min(FRAME_ROWS, FRAME_BYTES * len(texts) // max(sum(map(len, texts)), 1)), 1)
    groups = (texts[first : first + frame_rows] for first in range(0, len(texts), frame_rows))
    frames = [compressor.compress(json.dumps(group).encode()) for group in groups]
    listed = [[len(frame), digest_of(frame).hex()] for frame in frames]
    sink = pa.BufferOutputStream()
    write_stream(sink, rows, {"format": SEGMENT_FORMAT, "frame_rows": frame_rows, "frames": listed})
    hot = bytes(sink.getvalue())
    data = b"".join((hot, *frames))
    ref = SegmentRef(name, len(texts), len(hot), len(data), digest_of(hot))
    return OpenSegment(ref, rows, _places(len(hot), listed), frame_rows, source), data


def decode_segment(ref: SegmentRef, hot: bytes, source: FrameSource, key: str) -> OpenSegment:
    """A segment from its first `hot_bytes` bytes; CorruptDataError with `key` if they do not match `ref`."""
    require_digest(hot, ref.digest, NOT_WHAT_WAS_WRITTEN, key)
    reader = open_stream(pa.BufferReader(hot))
    header: dict[str, Any] = header_of(reader.schema)
    require_format(int(header["format"]), (SEGMENT_FORMAT,), f"Segment {key}")
    rows = completed(reader.read_all().replace_schema_metadata(None))
    return OpenSegment(ref, rows, _places(ref.hot_bytes, header["frames"]), int(header["frame_rows"]), source)


def decode_frame(segment: OpenSegment, number: int, data: bytes, key: str) -> list[str]:
    """The texts of one frame; CorruptDataError if its bytes are not those that were written."""
    offset, _, digest = segment.frames[number]
    message = "The file tables in a segment of a checkpoint are not what was written"
    require_digest(data, digest, message, key, offset)
    texts: list[str] = loads(zstandard.ZstdDecompressor().decompress(data))
    return texts


def _taken(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """Some rows, ascending; contiguous ones are not copied."""
    dense = len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1
    return table.slice(rows[0], len(rows)) if dense else table.take(pa.array(rows))


def _places(at: int, frames: Sequence[Sequence[Any]]) -> tuple[tuple[int, int, bytes], ...]:
    places: list[tuple[int, int, bytes]] = []
    for length, digest in frames:
        places.append((at, length, bytes.fromhex(digest)))
        at += length
    return tuple(places)
