"""Writing a Compact part: all columns in one `data.bin`, granule by granule, with one mark a column.

For each granule, for each column, the streams of the column lie one behind the other, the prefixes of all streams (the
version of a dictionary) before their data; nothing is carried over from granule to granule, so each holds its own
dictionary. Each column of a granule starts a compressed block, and so does each change of codec in it. Compact parts
are small: their columns are held until all are complete.

Source: ClickHouse, `MergeTreeDataPartWriterCompact.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.jit.city_hash128 import file_hash_finish
from mergelake.core.types import types as t
from mergelake.format.codecs.codec import Codec
from mergelake.format.codecs.codec_types import stream_codec
from mergelake.format.codecs.compressed_blocks import MAX_BLOCK, encode_compressed_blocks
from mergelake.format.codecs.hashes import FileDigest, FileHash
from mergelake.format.columns.wide import value_types
from mergelake.format.files.profile import Profile
from mergelake.format.kernels.memory import Region
from mergelake.format.serializations.serialization import Bounds
from mergelake.format.serializations.streams import shared_sizes_stream
from mergelake.format.serializations.tree import build_serialization

DATA = "data.bin"


class CompactColumn:
    """The bytes of one column, by granule. It has the methods of `ColumnWriter`, but no files of its own."""

    def __init__(self, name: str, data_type: t.DataType, codec: Codec, profile: Profile) -> None:
        self.name = name
        self._serialization = build_serialization(name, data_type, profile.form)
        kinds = value_types(self._serialization, data_type)
        self._codecs = {stream: stream_codec(codec, values) for stream, values in kinds}
        self._sizes = shared_sizes_stream(name, data_type)
        self._streams: dict[str, list[bytes]] = {stream: [] for stream in self._codecs}
        self._prefixes: dict[str, bytes] = {}

    def append(self, array: pa.Array | pa.ChunkedArray, granule_rows: Bounds) -> None:
        """Take whole granules; errors as `ColumnWriter.append`."""
        whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        self._serialization.encode(whole, np.cumsum(granule_rows), self)

    def put(self, stream: str, data: Region, ends: Bounds | None) -> None:
        """Take bytes of a stream, cut at granules; a prefix (`ends` None) is repeated in each granule."""
        body = data.tobytes()
        if ends is None:
            self._prefixes[stream] = body
            return
        edges = [0, *ends.tolist()]
        self._streams[stream] += [body[a:b] for a, b in pairwise(edges)]

    def drain(self) -> list[tuple[str, bytes]]:
        """No files: `compact_files` writes all columns at once."""
        return []

    def finish(self) -> list[tuple[str, bytes]]:
        """No files, as `drain`."""
        return []

    def digests(self) -> dict[str, FileDigest]:
        """No digests: the column has no files."""
        return {}

    @property
    def granules(self) -> int:
        """Granules taken so far."""
        return len(next(iter(self._streams.values())))

    def shared_sizes(self) -> tuple[str, list[bytes]] | None:
        """The stream of array sizes that is shared with Nested siblings, and its bytes by granule, or None."""
        return None if self._sizes is None else (self._sizes, self._streams[self._sizes])

    def pieces(self, granule: int) -> list[tuple[Codec, bytes]]:
        """The bytes of one granule, those of streams that follow each other with the same codec put together."""
        parts = [(self._codecs[stream], prefix) for stream, prefix in self._prefixes.items()]
        parts += [(self._codecs[stream], granules[granule]) for stream, granules in self._streams.items()]
        out: list[tuple[Codec, bytes]] = []
        for codec, body in parts:
            if out and out[-1][0] == codec:
                out[-1] = (codec, out[-1][1] + body)
            elif body:
                out.append((codec, body))
        return out


def compact_files(
    columns: Sequence[CompactColumn], granule_rows: Bounds, profile: Profile, *, max_block: int = MAX_BLOCK
) -> tuple[dict[str, bytes], dict[str, FileDigest]]:
    """`data.bin` and its mark file, and their digests; both are empty for a part without rows.

    The plain hash of `data.bin` is that of ClickHouse: the hash, codec by codec, of the hashes of the plain bytes.

    Raises SIZES_OF_ARRAYS_DONT_MATCH for siblings of a Nested column that differ in sizes.
    """
    _check_shared(columns)
    chunks: list[bytes] = []
    plain: dict[Codec, FileHash] = {}
    records = np.zeros((len(granule_rows) + 1, 2 * len(columns) + 1), np.uint64)
    at = 0
    for granule, rows in enumerate(granule_rows.tolist()):
        for number, column in enumerate(columns):
            records[granule, 2 * number] = at
            for codec, body in column.pieces(granule):
                plain.setdefault(codec, FileHash()).update(body)
                chunks.append(encode_compressed_blocks(body, codec, max_block=max_block))
                at += len(chunks[-1])
        records[granule, -1] = rows
    records[-1, 0:-1:2] = at
    data = b"".join(chunks)
    packed = FileHash()
    packed.update(data)
    total = np.zeros(2, np.uint64)
    for chain in plain.values():
        chain_hash = np.frombuffer(bytes.fromhex(chain.hexdigest()), np.uint64).copy()
        file_hash_finish(total.ctypes.data, chain_hash.ctypes.data, 16)
    marks, mark_digest = profile.pack(records.tobytes() if len(granule_rows) else b"")
    file = "data" + profile.mark_extension
    size = sum(chain.size for chain in plain.values())
    digests = {DATA: FileDigest(packed.size, packed.hexdigest(), size, total.tobytes().hex()), file: mark_digest}
    return {DATA: data, file: marks}, digests


def _check_shared(columns: Sequence[CompactColumn]) -> None:
    """Raise SIZES_OF_ARRAYS_DONT_MATCH for siblings of a Nested column that differ in sizes."""
    known: dict[str, list[bytes]] = {}
    for column in columns:
        shared = column.shared_sizes()
        if shared is not None and known.setdefault(*shared) != shared[1]:
            raise error(
                "SIZES_OF_ARRAYS_DONT_MATCH",
                f"Elements of the nested data structure of column {column.name} have different array sizes",
            )
