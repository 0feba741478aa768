"""A store in which volatile parts seem to lie: their objects are read from nodes, all others from the store below.

What comes from a node is *pinned*: it is verified, and kept until the read ends, so that a read which has all it needs
cannot fail any more, whatever becomes of the node. Files are verified by their hash, ranges of data files by the
checksums of their compressed blocks. Large pieces are kept in a temporary file.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import IO

from mergelake.core.base.errors import CorruptDataError, UnavailableError
from mergelake.core.model.manifest import PartFile
from mergelake.format.codecs.compressed_blocks import verify_blocks
from mergelake.format.codecs.hashes import file_hash
from mergelake.store.cache.cached import cache_of
from mergelake.store.interface.protocol import Buffer, Counters, ObjectMeta, PutOutcome, Store, StoreSpec
from mergelake.table.handle.volatile_choice import MergedPart
from mergelake.table.volatile.volatile_reads import SMALL_BYTES, OwnerGone, VolatileReads, of_process

SPOOL_BYTES = 1 << 20
"""Pieces of this size or more are kept in a temporary file."""
Span = tuple[int, int]
"""Bytes [start, end) of an object."""


@dataclass(slots=True)
class _Pinned:
    """The pinned bytes of one part."""

    part: MergedPart
    files: dict[str, list[tuple[Span, PartFile]]]
    """By object, the files in it in order."""
    pieces: dict[str, list[tuple[Span, Buffer]]] = field(default_factory=dict)
    """By object, in order."""
    complete: bool = False
    """Whether all that the read needs is here, and its sources are not read any more."""

    def find(self, key: str, span: Span) -> Buffer | None:
        pieces = self.pieces.get(key, [])
        for at in range(bisect_right(pieces, span[0], key=lambda piece: piece[0][0]) - 1, -1, -1):
            (start, end), body = pieces[at]
            if span[1] <= end:
                return memoryview(body)[span[0] - start : span[1] - start]
        return None

    def keep(self, key: str, span: Span, body: Buffer) -> None:
        insort(self.pieces.setdefault(key, []), (span, body), key=lambda piece: piece[0][0])


class VolatileStore:
    """A `Store` with the objects of some volatile parts in it. Writes nothing. Threads may share it."""

    def __init__(self, stored: Store, directory: str, reads: VolatileReads) -> None:
        self.stored = stored
        """The store of the table."""
        self.late = 0
        """Ranges of parts that were requested from nodes after `complete`: none, unless something was overlooked."""
        self._directory = directory
        self._reads = reads
        self._parts: dict[str, _Pinned] = {}
        self._spool = _Spool()
        self._lock = threading.Lock()
        self.url = stored.url
        self.spec: StoreSpec = stored.spec

    def add(self, parts: Iterable[MergedPart]) -> None:
        """Make the objects of these parts readable."""
        with self._lock:
            for part in parts:
                if part.manifest.id not in self._parts:
                    self._parts[part.manifest.id] = _Pinned(part, _files(part))

    def complete(self, part: MergedPart) -> None:
        """All that the read needs of a part has been read once, and is pinned: its rows may be returned."""
        self._parts[part.manifest.id].complete = True

    @property
    def counters(self) -> Counters:
        """Requests and bytes of the store below; those of nodes are not in it."""
        return self.stored.counters

    def get_range(self, key: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`."""
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One result for each (start, length). Raises OwnerGone for an object of a volatile part, before `complete`."""
        own = key.removeprefix(f"{self._directory}/")
        pinned = self._parts.get(own.partition("/")[0]) if own != key else None
        if pinned is None:
            return self.stored.get_ranges(key, ranges)
        spans = [(start, start + length) for start, length in ranges]
        found = [pinned.find(own, span) for span in spans]
        missing = list(dict.fromkeys(span for span, body in zip(spans, found, strict=True) if body is None))
        new = dict(zip(missing, self._pin(pinned, own, missing), strict=True)) if missing else {}
        return [new[span] if body is None else body for span, body in zip(spans, found, strict=True)]

    def _pin(self, pinned: _Pinned, key: str, spans: Sequence[Span]) -> list[Buffer]:
        """Fetch, verify and keep spans; of files that are not read by blocks, the whole files."""
        if pinned.complete:
            self.late += len(spans)
        widened = {span: _widened(pinned.files.get(key, ()), span) for span in spans}
        wanted = list(dict.fromkeys(widened.values()))
        small, place = self._reads.small, (self._directory, key)
        known = {span: small.get((*place, span)) for span in wanted}
        bodies: dict[Span, Buffer] = {span: body for span, body in known.items() if isinstance(body, bytes)}
        wanted = [span for span in wanted if span not in bodies]
        try:
            new = dict(zip(wanted, self._fetched(pinned, key, wanted) if wanted else (), strict=True))
        except OwnerGone as gone:
            if pinned.complete:
                raise UnavailableError(str(gone), hint="Read again: the stored parts are read then") from gone
            raise
        with self._lock:
            for span, body in new.items():
                if isinstance(body, bytes) and len(body) <= SMALL_BYTES:
                    small.put((*place, span), body, len(body) + 200)
            bodies |= new
            for span, body in bodies.items():
                pinned.keep(key, span, body)
        return [memoryview(bodies[wide])[a - wide[0] : b - wide[0]] for (a, b), wide in widened.items()]

    def _fetched(self, pinned: _Pinned, key: str, spans: Sequence[Span]) -> list[Buffer]:
        """The verified bytes, from the cache directory or the node."""
        cached, name = cache_of(self.stored), f"volatile\0{self._directory}/{key}".encode()
        if cached is not None:
            held = [[body for *_, body in pieces] for pieces in cached.cache.find(name, spans)]
            if all(body is not None for pieces in held for body in pieces):
                bodies = [
                    self._spool.keep(end - start, (memoryview(body) for body in pieces if body is not None))
                    for (start, end), pieces in zip(spans, held, strict=True)
                ]
                if self._wrong(pinned, key, spans, bodies) is None:
                    return bodies
                cached.cache.forget(name)
        ranges = [(start, end - start) for start, end in spans]
        pieces = self._reads.fetch(pinned.part, self._directory, key, ranges)
        fetched = [self._spool.keep(length, pieces) for _, length in ranges]
        problem = self._wrong(pinned, key, spans, fetched)
        if problem is not None:
            self._reads.failed(pinned.part, str(problem))
            raise OwnerGone(pinned.part, "what it sends is damaged") from problem
        if cached is not None:
            cached.cache.keep(name, [(start, body) for (start, _), body in zip(spans, fetched, strict=True)])
        return fetched

    def _wrong(
        self, pinned: _Pinned, key: str, spans: Sequence[Span], bodies: Sequence[Buffer]
    ) -> CorruptDataError | None:
        try:
            for span, body in zip(spans, bodies, strict=True):
                _verify(pinned.files.get(key, ()), span, memoryview(body))
        except CorruptDataError as problem:
            return problem
        return None

    # -- all else is the business of the store below -------------------------------------------

    def get(self, key: str) -> bytes:
        """The whole object, from the store below."""
        return self.stored.get(key)

    def head(self, key: str) -> ObjectMeta:
        """Size and time of one object of the store below."""
        return self.stored.head(key)

    def list(self, prefix: str, after: str = "", until: str = "") -> Iterator[ObjectMeta]:
        """Objects of the store below."""
        return self.stored.list(prefix, after, until)

    def put(self, key: str, data: Buffer) -> None:
        """Write to the store below."""
        self.stored.put(key, data)

    def put_large(self, key: str, chunks: Iterable[Buffer]) -> int:
        """Write to the store below."""
        return self.stored.put_large(key, chunks)

    def create(self, key: str, data: Buffer) -> PutOutcome:
        """Write to the store below."""
        return self.stored.create(key, data)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete from the store below."""
        self.stored.delete(keys)


class _Spool:
    """Keeps bytes: large ones in a temporary file, which goes with its maps. Threads may share it."""

    def __init__(self) -> None:
        self._end = 0
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def keep(self, size: int, pieces: Iterator[memoryview]) -> Buffer:
        """The next `size` bytes of some pieces, one of which ends there."""
        parts = _up_to(size, pieces)
        if size < SPOOL_BYTES:
            return b"".join(parts)  # a view would keep all that came with it
        first = next(parts)
        if len(first) == size and isinstance(first.obj, mmap.mmap):
            return first  # it stays, even if the file is deleted
        room = self._room(size)
        if room is None:
            return b"".join((first, *parts))
        file, start = room
        at = start
        for piece in chain((first,), parts):
            at += os.pwrite(file, piece, at)
        return memoryview(mmap.mmap(file, size, offset=start, access=mmap.ACCESS_READ))

    def _room(self, size: int) -> tuple[int, int] | None:
        """The file, and where in it there is room for so many bytes; None if there is none."""
        if not hasattr(os, "posix_fallocate"):
            return None
        with self._lock:
            try:
                if self._file is None:
                    self._file = tempfile.TemporaryFile(prefix="mergelake-pinned-")  # noqa: SIM115  while it is mapped
                os.posix_fallocate(self._file.fileno(), self._end, size)
            except OSError:
                return None
            start = self._end
            self._end += -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
            return self._file.fileno(), start


def _up_to(size: int, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
    """The next pieces, of so many bytes together."""
    while size > 0:
        piece = next(pieces, None)
        if piece is None or len(piece) > size:
            raise CorruptDataError("The bytes of a volatile part are cut short", name="CANNOT_READ_ALL_DATA")
        size -= len(piece)
        yield piece


def _files(part: MergedPart) -> dict[str, list[tuple[Span, PartFile]]]:
    """By object the files of a part in it; a part that a merge wrote has each file in one piece."""
    out: dict[str, list[tuple[Span, PartFile]]] = {}
    for file in part.manifest.file_table().values():
        for extent in file.extents[:1]:
            out.setdefault(extent.key, []).append(((extent.offset, extent.offset + extent.length), file))
    for files in out.values():
        files.sort(key=lambda each: each[0])
    return out


def _by_blocks(file: PartFile) -> bool:
    return file.name.endswith(".bin")


def _widened(files: Sequence[tuple[Span, PartFile]], span: Span) -> Span:
    """The span, with the whole of each file that it touches and that can only be verified as a whole."""
    start, end = span
    for (low, high), file in files:
        if low < span[1] and span[0] < high and not _by_blocks(file):
            start, end = min(start, low), max(end, high)
    return start, end


def _verify(files: Sequence[tuple[Span, PartFile]], span: Span, body: memoryview) -> None:
    """CorruptDataError if the bytes of a span are not what they should be."""
    for (low, high), file in files:
        start, end = max(low, span[0]), min(high, span[1])
        if start >= end:
            continue
        piece = body[start - span[0] : end - span[0]]
        if (start, end) == (low, high) and file.hash:
            if file_hash(piece) != file.hash:
                raise CorruptDataError(f"Checksum of the file {file.name} does not match", name="CHECKSUM_DOESNT_MATCH")
        elif _by_blocks(file):
            verify_blocks(piece)


def volatile_store(
    store: Store, directory: str, parts: Iterable[MergedPart], reads: VolatileReads | None = None
) -> Store:
    """The store with the objects of these parts, if there are any; `reads`: how (default: as tasks do)."""
    merged = list(parts)
    if not merged:
        return store
    if not isinstance(store, VolatileStore):
        store = VolatileStore(store, directory, reads or of_process())
    store.add(merged)
    return store
