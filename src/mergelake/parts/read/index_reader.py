"""Reading a skip index of a part: its files, and the uncompressed bytes of some of its granules.

At most two rounds of requests: the marks, which are cached, then the ranges of all requested granules. Small indexes
are read whole and cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mergelake.core.base.errors import CorruptDataError
from mergelake.format.indexes.skip_files import (
    PACKED,
    IndexMarks,
    index_extension,
    index_stems,
    packed_members,
    parse_index_marks,
)
from mergelake.format.indexes.skip_types import IndexType
from mergelake.format.kernels.memory import Region
from mergelake.parts.read.fetch import FileRange, verified
from mergelake.parts.read.layout import locate
from mergelake.parts.read.reader import PartReader
from mergelake.store.cache.cached import forget
from mergelake.store.interface.protocol import Buffer

WHOLE_BYTES = 1 << 18
"""Maximum bytes of an index that is read whole."""
_MARK_EXTENSIONS = (".mrk2", ".cmrk2", ".mrk3", ".cmrk3", ".mrk4", ".cmrk4", ".mrk", ".cmrk")


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index that the part has: its bytes as a range of one of the part's files, and its marks."""

    file: str
    start: int
    size: int
    marks: IndexMarks

    @property
    def granules(self) -> int:
        """Number of granules of the index."""
        return len(self.marks)


def index_size(reader: PartReader, name: str, kind: IndexType) -> int:
    """Bytes of the index's own data file; 0 if the part has none. Makes no request."""
    for stem in index_stems(name):
        file = reader.files.get(stem + index_extension(kind))
        if file is not None:
            return file.size
    return 0


def find_index(reader: PartReader, name: str, kind: IndexType) -> IndexFile | None:
    """The index `name` of the part; None if the part does not have it."""
    return reader.caches.get_or(
        (*reader.cache_key, "index", name, kind.name), lambda: _look_up(reader, name, kind)
    ).index  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Lookup:
    index: IndexFile | None


def _look_up(reader: PartReader, name: str, kind: IndexType) -> tuple[_Lookup, int]:
    members = packed_files(reader) if PACKED in reader.files else {}
    for stem in index_stems(name):
        data_name = stem + index_extension(kind)
        mark_names = [stem + extension for extension in _MARK_EXTENSIONS]
        if data_name in members:
            start, size = members[data_name]
            mark_name = next((n for n in mark_names if n in members), None)
            if mark_name is not None:
                at, length = members[mark_name]
                (marks,) = reader.bytes_of([FileRange(PACKED, at, at + length)])
                return _parsed(reader, PACKED, start, size, mark_name, marks, at)
        elif data_name in reader.files:
            mark_name = next((n for n in mark_names if n in reader.files), None)
            if mark_name is not None:
                own = reader.small_files([mark_name])[mark_name]
                return _parsed(reader, data_name, 0, reader.files[data_name].size, mark_name, own, 0)
    return _Lookup(None), 100


def _parsed(
    reader: PartReader, file: str, start: int, size: int, mark_name: str, marks: Buffer, marks_at: int
) -> tuple[_Lookup, int]:
    try:
        parsed = parse_index_marks(mark_name, marks, size)
    except CorruptDataError as problem:
        raise _located(reader, problem, mark_name if file != PACKED else PACKED, marks_at) from None
    return _Lookup(IndexFile(file, start, size, parsed)), 16 * len(parsed) + 200


def packed_files(reader: PartReader) -> dict[str, tuple[int, int]]:
    """Name -> (offset, size) of the files in the part's `skp_idx.packed`."""

    def load() -> tuple[dict[str, tuple[int, int]], int]:
        (body,) = reader.bytes_of([FileRange(PACKED, 0, reader.files[PACKED].size)])
        data = verified(reader.store, reader.directory, reader.files[PACKED], bytes(body))
        try:
            members = packed_members(data)
        except CorruptDataError as problem:
            raise _located(reader, problem, PACKED, 0) from None
        size = reader.files[PACKED].size
        inside = {name: place for name, place in members.items() if sum(place) <= size}
        return inside, 200 * len(inside)

    return reader.caches.get_or((*reader.cache_key, "packed indexes"), load)


def read_granules(
    reader: PartReader, index: IndexFile, runs: Sequence[tuple[int, int]]
) -> list[tuple[int, int, Region]]:
    """Uncompressed bytes of ascending runs [first, end) of granules: (first, end, bytes that start with `first`).

    The returned runs cover `runs`, but may be larger.
    """
    if not runs:
        return []
    if index.size <= WHOLE_BYTES:
        key = (*reader.cache_key, "index bytes", index.file, index.start)
        return [(0, index.granules, reader.caches.get_or(key, lambda: _whole(reader, index)))]
    ranges = [index.marks.byte_range(first, end, index.size) for first, end in runs]
    bodies = reader.bytes_of([FileRange(index.file, index.start + a, index.start + b) for a, b in ranges])
    return [
        (first, end, _plain(reader, index, first, body)) for (first, end), body in zip(runs, bodies, strict=True)
    ]  # fmt: skip


def _whole(reader: PartReader, index: IndexFile) -> tuple[Region, int]:
    (body,) = reader.bytes_of([FileRange(index.file, index.start, index.start + index.size)])
    whole: Buffer = body
    if index.file != PACKED:
        whole = verified(reader.store, reader.directory, reader.files[index.file], bytes(body))
    plain = _plain(reader, index, 0, whole)
    return plain, plain.size + 200


def _plain(reader: PartReader, index: IndexFile, first: int, body: Buffer) -> Region:
    try:
        return index.marks.plain(first, body)
    except CorruptDataError as problem:
        raise _located(reader, problem, index.file, index.start) from None


def corrupt_index(reader: PartReader, index: IndexFile, problem: CorruptDataError) -> CorruptDataError:
    """Add the object that holds the granules to an error in them."""
    problem.offset = -1  # it was an offset in uncompressed bytes
    return _located(reader, problem, index.file, index.start)


def _located(reader: PartReader, problem: CorruptDataError, file: str, start: int) -> CorruptDataError:
    key, place = locate(reader.directory, reader.files[file], start + max(problem.offset, 0))
    forget(reader.store, key)
    problem.object_key = key
    problem.offset = place
    problem.file = file
    return problem
