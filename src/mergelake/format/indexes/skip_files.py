"""The two files of a skip index: granules one behind the other in compressed blocks, and a mark for each.

`skp_idx_<name>.idx` (`.idx2` for minmax) holds the granules; the mark file, with the extension of the part's other
marks, has records of (offset of the compressed block, offset in its plain bytes, 1), one for each granule and none at
the end. ClickHouse 26.x puts small ones together in `skp_idx.packed`: names, places, then the same bytes.

Source: ClickHouse, `MergeTreeDataPartWriterOnDisk.cpp` (`calculateAndSerializeSkipIndices`), `PackedFilesReader.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError
from mergelake.format.codecs.codec import Codec
from mergelake.format.codecs.compressed_blocks import (
    MAX_BLOCK,
    MIN_BLOCK,
    CompressedBlockWriter,
    decode_range,
)
from mergelake.format.codecs.hashes import FileDigest
from mergelake.format.files.marks import mark_records
from mergelake.format.files.profile import CLASSIC_PROFILE, Profile
from mergelake.format.indexes.skip_types import IndexType, MinMax
from mergelake.format.kernels.memory import Bytes, Region, region
from mergelake.format.serializations.names import escape_for_file_name, stream_file_name

PACKED = "skp_idx.packed"
"""File that holds the small index files of a part of ClickHouse 26.x."""
_MEMBERS_MAX = 1 << 20
"""Most files in `skp_idx.packed` that are believed."""


def index_stem(name: str) -> str:
    """The files' name without extension, as new parts have it."""
    return stream_file_name(f"skp_idx_{escape_for_file_name(name)}")


def index_stems(name: str) -> tuple[str, ...]:
    """All names that the files may have: ClickHouse before 26.1 did not escape them."""
    plain = f"skp_idx_{name}"
    return tuple(dict.fromkeys((index_stem(name), f"skp_idx_{escape_for_file_name(name)}", plain)))


def index_extension(kind: IndexType) -> str:
    """The extension of the file of granules."""
    return ".idx2" if isinstance(kind, MinMax) else ".idx"


class IndexFileWriter:
    """Writes both files: `append` granules, `drain` bytes now and then, `finish`, then `digests`."""

    def __init__(
        self,
        name: str,
        kind: IndexType,
        codec: Codec,
        *,
        min_block: int = MIN_BLOCK,
        max_block: int = MAX_BLOCK,
        profile: Profile = CLASSIC_PROFILE,
    ) -> None:
        stem = index_stem(name)
        self.data_file = stem + index_extension(kind)
        self.mark_file = stem + profile.mark_extension
        self._profile = profile
        self._blocks = CompressedBlockWriter(codec, min_block, max_block)
        self._marks: list[bytes] = []
        self._mark_digest = FileDigest(0, "")

    def append(self, data: bytes | NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        """Take whole granules: their bytes, and where each ends in them."""
        if len(ends):
            marks = self._blocks.append(region(data), ends, np.ones(len(ends), np.int64))
            self._marks.append(marks.tobytes())

    def drain(self) -> list[tuple[str, bytes | memoryview]]:
        """(file, its next bytes) since the last call; the marks, which are few, come at the end."""
        data = self._blocks.drain()
        return [(self.data_file, data)] if data else []

    def finish(self) -> list[tuple[str, bytes | memoryview]]:
        """Write what waits; the last bytes of each file."""
        self._blocks.finish()  # its final mark is left out: indexes have none
        marks, self._mark_digest = self._profile.pack(b"".join(self._marks))
        return [*self.drain(), *([(self.mark_file, marks)] if marks else [])]

    def digests(self) -> dict[str, FileDigest]:
        """Sizes and hashes; call after `finish`."""
        return {self.data_file: self._blocks.digest(), self.mark_file: self._mark_digest}


@dataclass(frozen=True, slots=True)
class IndexMarks:
    """Where each granule of an index starts."""

    offset: NDArray[np.int64]
    """File offset of the compressed block in which a granule starts."""
    skip: NDArray[np.int64]
    """Offset of the granule in the plain bytes of that block."""

    def __len__(self) -> int:
        return len(self.offset)

    def byte_range(self, first: int, end: int, size: int) -> tuple[int, int]:
        """File bytes [start, stop) of granules [first, end); `size` is that of the file."""
        if end >= len(self):
            return int(self.offset[first]), size
        stop = int(self.offset[end])
        if self.skip[end]:  # the last granules lie in the block that begins there
            later = int(np.searchsorted(self.offset, stop, side="right"))
            stop = int(self.offset[later]) if later < len(self) else size
        return int(self.offset[first]), stop

    def plain(self, first: int, data: Bytes) -> Region:
        """The plain bytes from granule `first` on; `data` are the file's bytes of `byte_range(first, …)`."""
        source = region(data)
        plain, _ = decode_range(source, source.size, inclusive=False, lead=0, offset=int(self.offset[first]))
        skip = int(self.skip[first])
        if skip > plain.size:
            raise CorruptDataError(
                "A mark of an index points past its compressed block", offset=int(self.offset[first])
            )
        return plain.tail(skip)


def parse_index_marks(name: str, data: Bytes, size: int) -> IndexMarks:
    """The marks in file `name`, whose extension says how they lie; `size` is that of the file of granules.

    Raises CorruptDataError for a length or numbers that cannot be.
    """
    table, _ = mark_records(name, data)
    offset, skip = table[:, 0].copy(), table[:, 1].copy()
    impossible = (offset < 0) | (offset > size) | (skip < 0) | (skip > 1 << 40)
    impossible[1:] |= offset[1:] < offset[:-1]
    if impossible.any():
        at = table.itemsize * table.shape[1] * int(np.argmax(impossible))
        raise CorruptDataError("A mark of an index has impossible numbers", offset=at)
    return IndexMarks(offset, skip)


def packed_members(data: Bytes) -> dict[str, tuple[int, int]]:
    """Name -> (offset, size) of the files in `skp_idx.packed`, from its whole bytes or a long enough beginning.

    Raises CorruptDataError if the list of members is broken or not all there.
    """
    view = region(data)
    at = 0

    def take(count: int) -> bytes:
        nonlocal at
        if count > view.size - at:
            raise CorruptDataError("The list of packed files is cut short", name="CANNOT_READ_ALL_DATA", offset=at)
        member = view.part(at, at + count).tobytes()
        at += count
        return member

    def word() -> int:
        return int.from_bytes(take(8), "little")

    def varuint() -> int:
        value = shift = 0
        while True:
            byte = take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128 or shift > 28:
                return value
            shift += 7

    version = take(1)[0]
    if version > 1:
        raise CorruptDataError("Unknown version of packed files", offset=0, expected="0 or 1", found=str(version))
    count = word()
    if count > _MEMBERS_MAX:
        raise CorruptDataError("Too many packed files", offset=1, found=str(count))
    out: dict[str, tuple[int, int]] = {}
    for _ in range(count):
        name = take(varuint()).decode("utf-8", "replace")
        out[name] = (word(), word())
        if version == 1:
            word()
    return out


def is_index_file(name: str) -> bool:
    """Whether a file of a part holds granules of skip indexes (other files of indexes are small, these need not be)."""
    return (name.endswith((".idx", ".idx2")) and name.startswith("skp_idx_")) or name == PACKED
