"""Copies streams of several Wide parts, one part behind the other, into a part in the making, as compressed blocks.

A data file is a sequence of compressed blocks, so the files of parts whose rows follow one another are, one behind the
other, the file of all rows. Each block's checksum is verified and the block is decompressed for the hash of the plain
bytes, but no value is decoded. Where the result has another codec, each block is compressed anew. Marks are moved by
the bytes before their part; the final mark stays of the last part.

The stream of LowCardinality dictionaries begins with a version, which a reader expects once. It is left out of the
first block of each later part, which is compressed anew. The parts' dictionaries follow one another: in a stream of
indexes the first block of each part has the flag for a new dictionary. A mark behind which its part has no index
any more moves to the dictionary of the next part, since the next index that a reader meets there is of that part.

Requests to a far store are made ahead, as far as `window` bytes go for each stream that is being copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.model.manifest import PartFile
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.format.codecs.codec import Codec, parse_codec
from mergelake.format.codecs.codec_types import stream_codec
from mergelake.format.codecs.compressed_blocks import (
    decode_compressed_blocks,
    decode_range,
    encode_compressed_blocks,
    encode_each,
)
from mergelake.format.codecs.hashes import FileDigest, FileHash
from mergelake.format.columns.wide import value_types
from mergelake.format.files.marks import encode_marks, mark_records
from mergelake.format.files.profile import Profile
from mergelake.format.indexes.skip_files import index_extension, index_stem
from mergelake.format.kernels.memory import Region, region
from mergelake.format.serializations.lowcardinality import VERSION, low_cardinality_within
from mergelake.format.serializations.names import stream_file_name
from mergelake.format.serializations.tree import build_serialization
from mergelake.parts.read.fetch import FileRange, begin_parts, is_remote, verified
from mergelake.parts.read.layout import locate
from mergelake.parts.read.reader import PartReader
from mergelake.parts.write.indexing import table_indexes
from mergelake.parts.write.writer import PartWriter
from mergelake.store.cache.cached import forget
from mergelake.store.interface.protocol import Buffer

_CHUNK, _CHUNK_MIN = 8 << 20, 256 << 10
"""Bytes of a data file that are read by one request, unless the window is small."""
_PLAIN_BYTES = 4 << 20
"""Plain bytes that are decompressed together, unless one block has more."""
_VERSION = VERSION.to_bytes(8, "little")
_HEADER = 25
"""Bytes of a compressed block before its payload: checksum 16, method 1, size without the checksum 4, plain size 4."""
_RECORD = 24
"""Bytes of a mark before compression."""


@dataclass(frozen=True, slots=True)
class CopiedStream:
    """One stream of a part: a column's, or a skip index."""

    data: str
    """Its data file."""
    marks: str
    codec: Codec
    """What compresses it in the result."""
    granularity: int = 1
    """Granules that one mark stands for: several in a skip index, which has no final mark."""
    index: bool = False
    """Whether it is a skip index."""
    dictionaries: CopiedStream | None = None
    """The stream of dictionaries, if it holds indexes of a LowCardinality column: they are copied together."""

    @property
    def streams(self) -> tuple[CopiedStream, ...]:
        """Itself, and that of dictionaries."""
        return (self,) if self.dictionaries is None else (self, self.dictionaries)

    def mark_bytes(self, granules: int) -> int:
        """Bytes of the marks of a part before compression."""
        return _RECORD * (-(-granules // self.granularity) + (not self.index))


def copied_streams(schema: TableSchema, codec: Codec) -> list[CopiedStream]:
    """All streams of a Wide part of the table that is written now, with `codec` as its default."""
    profile = Profile(TableSettings(schema.settings).text("part_profile") == "modern")
    extension = profile.mark_extension
    found: dict[str, CopiedStream] = {}
    for column in schema.stored:
        node = build_serialization(column.name, column.type, profile.form)
        for stream, values in value_types(node, column.type):
            stem, own = stream_file_name(stream), stream_codec(parse_codec(column.codec, codec), values)
            found[stream] = CopiedStream(f"{stem}.bin", stem + extension, own)
        for each in low_cardinality_within(node):
            found[each.stream] = replace(found[each.stream], dictionaries=found.pop(each.dictionary))
    for index in table_indexes(schema):
        stem = index_stem(index.name)
        name = stem + index_extension(index.kind)
        found[stem] = CopiedStream(name, stem + extension, codec, index.granularity, True)
    return list(found.values())


class StreamCopier:
    """Copies streams of `sources`, parts in the order of their rows. Each stream by one thread, several at a time."""

    def __init__(
        self,
        writer: PartWriter,
        sources: Sequence[PartReader],
        anew: Sequence[Collection[str]],
        window: int,
        on_bytes: Callable[[int], None],
    ) -> None:
        """`anew`: for each source the data files whose blocks get another codec. `window`: bytes of a stream that are
        in memory. `on_bytes` is called with the bytes copied.
        """
        self._writer, self._sources, self._anew = writer, sources, anew
        self._window = window
        self._chunk = max(_CHUNK_MIN, min(_CHUNK, window // 2))
        self._on_bytes = on_bytes

    def small_files(self, name: str) -> list[bytes]:
        """A file that each source has, after checking the hashes: from a far store in one round of requests."""
        asked = [
            begin_parts(source.store, [source.part_ranges([FileRange(name, 0, source.files[name].size)])])
            if is_remote(source.store) and source.manifest.storage == "full" and not source.complete
            else None
            for source in self._sources
        ]
        return [
            source.small_files([name])[name]
            if bodies is None
            else verified(source.store, source.directory, source.files[name], bytes(bodies()[0][0]))
            for source, bodies in zip(self._sources, asked, strict=True)
        ]

    def copy(self, stream: CopiedStream) -> None:
        """Write both files of a stream, and of its dictionaries. Raises CorruptDataError for a damaged source."""
        marks = self._marks(stream)
        self._copy(stream, marks)
        if stream.dictionaries is not None:
            ends = [(table[:, :2] == table[-1, :2]).all(axis=1) for table in marks]
            self._copy(stream.dictionaries, self._marks(stream.dictionaries), ends)

    def _copy(
        self, stream: CopiedStream, marks: list[NDArray[np.int64]], ends: Sequence[NDArray[np.bool_]] = ()
    ) -> None:
        """Copy one stream with these marks; `ends`, of dictionaries, are those behind which no index follows."""
        out = _DataFile(self._writer, stream.data)
        bodies = self._bodies(stream.data)
        moved = []
        for at, (source, before) in enumerate(zip(self._sources, marks, strict=True)):
            strip = bool(ends) and at > 0
            moves = self._copy_file(source, stream, bodies, out, strip=strip, anew=stream.data in self._anew[at])
            table = before.copy()
            if strip:
                table[table[:, 0] == 0, 1] -= len(_VERSION)
            table[:, 0] = moves.moved(stream.marks, table[:, 0])
            if ends:
                table[ends[at], :2] = out.packed.size, 0
            moved.append(table if at + 1 == len(marks) else table[table[:, 2] > 0])
        body, digest = self._writer.profile.pack(encode_marks(np.concatenate(moved).view(np.uint64)))
        self._writer.write_bytes(stream.marks, body)
        self._writer.file_done({stream.data: out.digest(), stream.marks: digest})

    def _marks(self, stream: CopiedStream) -> list[NDArray[np.int64]]:
        return [mark_records(stream.marks, body)[0] for body in self.small_files(stream.marks)]

    def _copy_file(
        self,
        source: PartReader,
        stream: CopiedStream,
        bodies: Iterator[tuple[Buffer, bool]],
        out: _DataFile,
        *,
        strip: bool,
        anew: bool,
    ) -> _Moves:
        """Copy the next file of `bodies`: with `strip` without the version, with `anew` each block compressed anew."""
        file = source.files[stream.data]
        before, moves = out.plain.size, _Moves()
        with _located(source, file):
            for offset, blocks in self._blocks(bodies, file.size):
                if strip and not offset:
                    moves.add(0, out.packed.size)
                    out.append_stripped(blocks, stream.codec)
                    continue
                decoded, _ = decode_range(region(blocks), len(blocks), inclusive=False, lead=0, offset=offset)
                if anew:
                    starts, ends = _bounds(blocks)
                    packed, packed_ends = encode_each(decoded, ends, stream.codec)
                    moves.add(offset + starts, out.packed.size + np.append(0, packed_ends[:-1]))
                    out.append(packed.tobytes(), decoded)
                else:
                    moves.add(offset, out.packed.size)
                    out.append(blocks, decoded)
            moves.add(file.size, out.packed.size)
            found = out.plain.size - before + len(_VERSION) * strip
            if found != file.uncompressed_size:
                raise CorruptDataError(
                    f"{file.name} has other plain bytes than the manifest of its part says",
                    expected=str(file.uncompressed_size),
                    found=str(found),
                )
        return moves

    def _blocks(self, bodies: Iterator[tuple[Buffer, bool]], size: int) -> Iterator[tuple[int, memoryview]]:
        """The compressed blocks of the next file of `bodies`: runs of them, and where they begin in the file."""
        rest, at, last = b"", 0, False
        while not last:
            body, last = next(bodies)
            self._on_bytes(len(body))
            view = memoryview(rest + bytes(body) if rest else body).cast("B")
            done = 0
            for end in _run_ends(view, at, size):
                yield at + done, view[done:end]
                done = end
            at += done
            rest = bytes(view[done:])
        if rest:
            raise CorruptDataError("A compressed block is cut short", name="CANNOT_READ_ALL_DATA", offset=at)

    def _bodies(self, name: str) -> Iterator[tuple[Buffer, bool]]:
        """The bytes of a data file of all sources, in pieces, and of each whether it is the last of its file."""
        coming: deque[tuple[Callable[[], Buffer], int, bool]] = deque()
        waiting = 0
        for source in self._sources:
            size = source.files[name].size
            step = max(size, 1) if source.complete else self._chunk
            for start in range(0, max(size, 1), step):
                wanted = FileRange(name, start, min(start + step, size))
                length = wanted.end - start
                while coming and waiting + length > self._window:
                    body, asked, last = coming.popleft()
                    yield body(), last
                    waiting -= asked
                coming.append((_begin(source, wanted), length, wanted.end == size))
                waiting += length
        for body, _, last in coming:
            yield body(), last


@contextmanager
def _located(source: PartReader, file: PartFile) -> Iterator[None]:
    """Add the object, and the offset in it, to errors of damaged blocks."""
    try:
        yield
    except CorruptDataError as problem:
        problem.object_key, problem.offset = locate(source.directory, file, max(problem.offset, 0))
        problem.file = file.name
        forget(source.store, problem.object_key)
        raise


def _begin(source: PartReader, wanted: FileRange) -> Callable[[], Buffer]:
    """Request bytes of a file now, if the store is far; the returned function waits for them."""
    held = source.held_files.get(wanted.name)
    if held is not None:
        body = memoryview(held).cast("B")[wanted.start : wanted.end]
        return lambda: body
    bodies = begin_parts(source.store, [source.part_ranges([wanted])])
    return lambda: bodies()[0][0]


def _run_ends(view: memoryview, offset: int, size: int) -> Iterator[int]:
    """Where runs of whole blocks end in `view`, which begins at `offset` of a file of `size` bytes.

    A file's first block is a run of its own; others have about `_PLAIN_BYTES` plain bytes.
    """
    at = first = plain = 0
    while at + _HEADER <= len(view):
        packed = int.from_bytes(view[at + 17 : at + 21], "little")
        end = at + 16 + packed
        if packed < _HEADER - 16 or offset + end > size:
            raise CorruptDataError(
                "A compressed block has impossible sizes", name="CANNOT_DECOMPRESS", offset=offset + at
            )
        if end > len(view):
            break
        more = int.from_bytes(view[at + 21 : at + 25], "little")
        if at > first and (plain + more > _PLAIN_BYTES or offset + first == 0):
            yield at
            first, plain = at, 0
        plain += more
        at = end
    if at > first:
        yield at


def _bounds(blocks: memoryview) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each of some whole blocks begins, and where it ends in their plain bytes."""
    starts, sizes, at = [], [], 0
    while at < len(blocks):
        starts.append(at)
        sizes.append(int.from_bytes(blocks[at + 21 : at + 25], "little"))
        at += 16 + int.from_bytes(blocks[at + 17 : at + 21], "little")
    return np.array(starts, np.int64), np.cumsum(np.array(sizes, np.int64))


class _Moves:
    """Where the bytes of a source's file are in the new one: stretches that were moved as a whole."""

    def __init__(self) -> None:
        self._old: list[NDArray[np.int64]] = []
        self._new: list[NDArray[np.int64]] = []

    def add(self, old: int | NDArray[np.int64], new: int | NDArray[np.int64]) -> None:
        """Note the next stretches: where each began, and where it begins now."""
        self._old.append(np.atleast_1d(np.asarray(old, np.int64)))
        self._new.append(np.atleast_1d(np.asarray(new, np.int64)))

    def moved(self, name: str, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The new places of blocks that began at `places`, as the file of marks `name` has them."""
        old, new = np.concatenate(self._old), np.concatenate(self._new)
        if len(places) and (places.min() < 0 or places.max() > old[-1]):
            raise CorruptDataError(f"A mark of {name} is past the end of its data file")
        # Of stretches without bytes the last one counts: an empty file has but its end.
        at = np.searchsorted(old, places, side="right") - 1
        return new[at] + places - old[at]


class _DataFile:
    """A data file in the making."""

    def __init__(self, writer: PartWriter, name: str) -> None:
        self._writer, self._name = writer, name
        self.packed, self.plain = FileHash(), FileHash()

    def append(self, blocks: bytes | memoryview, plain: bytes | Region) -> None:
        """Write compressed blocks; `plain` are their plain bytes."""
        self.packed.update(blocks)
        self.plain.update(plain)
        if len(blocks):
            self._writer.write_bytes(self._name, blocks)

    def append_stripped(self, block: memoryview, codec: Codec) -> None:
        """Write the first block of a stream of dictionaries without the version."""
        plain = decode_compressed_blocks(block)
        if plain[: len(_VERSION)] != _VERSION:
            raise CorruptDataError("Unknown version of a LowCardinality dictionary", offset=0)
        rest = plain[len(_VERSION) :]
        # One block, as marks point into its plain bytes.
        anew = encode_compressed_blocks(rest, codec, max_block=max(len(rest), 1))
        self.append(anew, rest)

    def digest(self) -> FileDigest:
        """Sizes and hashes of the file."""
        return FileDigest(self.packed.size, self.packed.hexdigest(), self.plain.size, self.plain.hexdigest())
