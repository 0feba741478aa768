"""One column of many small parts at once: what `wide.ColumnWriter` writes for each, in a few calls for all.

An insert into a thousand partitions writes a thousand parts of a few rows, and what a column costs there is the calls,
not the bytes. Where each part is one granule and less than one compressed block of a stream, the parts can lie
one behind the other as granules do: the column is encoded once, its blocks are compressed by one call and hashed by
another, and cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from mergelake.core.types import types as t
from mergelake.format.codecs.codec import Codec
from mergelake.format.codecs.codec_types import stream_codec
from mergelake.format.codecs.compressed_blocks import encode_each
from mergelake.format.codecs.hashes import FileDigest, file_hashes
from mergelake.format.columns.wide import value_types
from mergelake.format.files.profile import Profile
from mergelake.format.kernels.memory import Region, region
from mergelake.format.serializations.names import stream_file_name
from mergelake.format.serializations.nested import NullableSerialization
from mergelake.format.serializations.scalars import Fixed, InlineString
from mergelake.format.serializations.serialization import Bounds, Serialization
from mergelake.format.serializations.tree import build_serialization
from mergelake.format.serializations.values import value_cells

Files = dict[str, tuple[bytes, FileDigest]]
"""The files that a column has in one part."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The pieces of one part that were encoded together with those of others."""

    keys: tuple[bytes, bytes]
    """Primary key of the first and of the last row."""
    columns: dict[str, Files]
    """By column; columns that cannot be encoded together are missing."""
    minmax: dict[str, tuple[bytes, bytes]]
    """Extremes of the partition key's source columns."""
    listed: bytes
    """`columns.txt`, the same for all."""


def encode_keys(arrays: Sequence[pa.Array], types: Sequence[t.DataType], ends: Bounds) -> list[tuple[bytes, bytes]]:
    """The primary key of the first and of the last row of each part; `arrays` and `ends` as for `encode_parts`."""
    if not types:
        return [(b"", b"")] * len(ends)
    firsts = np.concatenate([[0], ends[:-1]])
    sides = [value_cells([array.take(pa.array(rows)) for array in arrays], types) for rows in (firsts, ends - 1)]
    return [(sides[0].row(at), sides[1].row(at)) for at in range(len(ends))]


def encode_parts(
    name: str, data_type: t.DataType, codec: Codec, array: pa.Array, ends: Bounds, profile: Profile, *, block_max: int
) -> list[Files] | None:
    """The files of a column in parts of one granule each, or None where they cannot be made like this.

    `array` (storage form) has the rows of all parts, `ends` (ascending, none twice) where those of each end. None of
    the streams may have `block_max` bytes of one part: it would be more than one compressed block.
    """
    node = build_serialization(name, data_type, profile.form)
    if profile.modern or profile.compact or not _stands_alone(node):
        return None
    sink = _Sink()
    node.encode(array, ends, sink)
    rows = np.diff(ends, prepend=0)
    out: list[Files] = [{} for _ in rows]
    for stream, values in value_types(node, data_type):
        plain, plain_ends = sink.streams[stream]
        sizes = np.diff(plain_ends, prepend=0)
        if sizes.min() < 1 or sizes.max() >= block_max:
            return None
        _add_stream(out, stream_file_name(stream), plain, plain_ends, rows, stream_codec(codec, values), profile)
    return out


def _stands_alone(node: Serialization) -> bool:
    """Whether the bytes of a granule depend on nothing before it, and each stream is put in one call."""
    return isinstance(node.inner if isinstance(node, NullableSerialization) else node, (Fixed, InlineString))


@dataclass(slots=True)
class _Sink:
    streams: dict[str, tuple[Region, Bounds]] = field(default_factory=dict)

    def put(self, stream: str, data: Region, ends: Bounds | None) -> None:
        assert ends is not None
        self.streams[stream] = data, np.ascontiguousarray(ends, np.int64)


def _add_stream(
    out: list[Files], stem: str, plain: Region, ends: Bounds, rows: Bounds, codec: Codec, profile: Profile
) -> None:
    """Add the two files of a stream to those of every part."""
    packed, packed_ends = encode_each(plain, ends, codec)
    # Two records of (block, offset in it, rows): the granule starts at (0, 0), and, as the block is not full, the final
    # mark is where its bytes end in the same block.
    marks = np.zeros((len(rows), 6), np.uint64)
    marks[:, 2] = rows
    marks[:, 4] = sizes = np.diff(ends, prepend=0)
    mark_bytes = marks.itemsize * marks.shape[1]
    mark_ends = np.arange(1, len(rows) + 1, dtype=np.int64) * mark_bytes
    hashes = [file_hashes(packed, packed_ends), file_hashes(plain, ends), file_hashes(region(marks), mark_ends)]
    data, records = packed.tobytes(), marks.tobytes()
    spans = pairwise([0, *packed_ends.tolist()])
    names = stem + ".bin", stem + profile.mark_extension
    for at, (files, (begin, end), size) in enumerate(zip(out, spans, sizes.tolist(), strict=True)):
        of_packed, of_plain, of_marks = (each[at] for each in hashes)
        files[names[0]] = data[begin:end], FileDigest(end - begin, of_packed, size, of_plain)
        files[names[1]] = records[mark_bytes * at : mark_bytes * (at + 1)], FileDigest(mark_bytes, of_marks)
