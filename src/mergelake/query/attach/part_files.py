"""Byte ranges of the files of a set of parts, as ClickHouse requests them.

Small files are fetched once and cached: all files of a small part, and of a large part those that ClickHouse reads when
it attaches the part. `prefetch` fetches these of all parts at once, in one round of requests to a bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import cast

from cachetools import LRUCache, cachedmethod

from mergelake.core.base.errors import MergelakeError, NotFoundError
from mergelake.core.model.manifest import PartFile
from mergelake.log.model.parts import ActivePart
from mergelake.parts.read.ahead import SMALL_BYTES
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.fetch import FileRange, PartRanges, fetch, fetch_parts, is_held, verified
from mergelake.parts.read.held import Held, whole_files
from mergelake.store.interface.protocol import Buffer, Store

SMALL_FILE = 1 << 20
"""Maximum bytes of an index or of marks that are fetched whole and cached."""
PREFETCHED_AT_ONCE = 128
"""Number of parts whose small files are fetched in one round."""
PIECE_BYTES = 512 << 10
"""Bytes of a piece of a long range in a cache directory."""
_TABLES_KEPT = 256
_DATA = ".bin"
_MARKS = (".mrk", ".mrk2", ".mrk3", ".mrk4", ".cmrk", ".cmrk2", ".cmrk3", ".cmrk4")


class PartFiles:
    """Files of the parts of one table. Thread-safe."""

    def __init__(self, store: Store, directory: str, parts: Sequence[ActivePart], caches: PartCache) -> None:
        self._store, self.directory, self._caches = store, directory, caches
        self._parts = {part.name: part for part in parts}
        self._tables: LRUCache[str, Mapping[str, PartFile]] = LRUCache(_TABLES_KEPT)

    def files(self, part_name: str) -> Mapping[str, PartFile]:
        """The file table of a part. Raises NotFoundError for an unknown part."""
        if part_name not in self._parts:
            raise NotFoundError(f"There is no part {part_name} in this set")
        return self._file_table(part_name)

    @cachedmethod(lambda self: self._tables)
    def _file_table(self, part_name: str) -> Mapping[str, PartFile]:
        return self._parts[part_name].manifest.file_table()

    def size(self, path: str) -> int:
        """Size in bytes of the file `<part name>/<file>`. Raises NotFoundError."""
        part_name, _, name = path.partition("/")
        file = self.files(part_name).get(name)
        if file is None:
            raise NotFoundError(f"The part {part_name} has no file {name}")
        return file.size

    def read(self, path: str, start: int, end: int) -> Buffer:
        """Bytes `start` to `end` of the existing file `<part name>/<file>`.

        CorruptDataError for an object that is too short, and for an index or marks that do not have their hash:
        ClickHouse looks at the checksums of compressed blocks alone.
        """
        part_name, _, name = path.partition("/")
        file = self.files(part_name)[name]
        kept = self._caches.get(self._key(part_name, name))
        if isinstance(kept, bytes):
            return kept[start:end]
        if name.endswith(_DATA) or file.size > SMALL_FILE:
            return fetch(self._store, self.directory, {name: file}, [FileRange(name, start, end)])[0]
        (body,) = self._fetch_whole(part_name, [name])
        return body[start:end]

    def pieces(self, path: str, start: int, end: int) -> Iterator[Buffer]:
        """Like `read`, in pieces if cached locally: ClickHouse requests all that it may read, but stops early."""
        part_name, _, name = path.partition("/")
        if end - start <= PIECE_BYTES or not is_held(
            self._store, self.directory, self.files(part_name)[name], start, end
        ):
            yield self.read(path, start, end)
            return
        for first in range(start, end, PIECE_BYTES):
            yield self.read(path, first, min(first + PIECE_BYTES, end))

    def whole(self, part_name: str) -> dict[str, bytes]:
        """All files of a part, by name. Errors: those of `read`."""
        names = list(self.files(part_name))
        kept = {name: self._caches.get(self._key(part_name, name)) for name in names}
        if any(body is None for body in kept.values()):
            return dict(zip(names, self._fetch_whole(part_name, names), strict=True))
        return cast(dict[str, bytes], kept)

    def prefetch(self) -> None:
        """Fetch and cache the files that attaching the parts reads. Errors are ignored: reading raises them again."""
        wanted = [(name, names) for name in self._parts if (names := self._missing(name))]
        for first in range(0, len(wanted), PREFETCHED_AT_ONCE):
            some = wanted[first : first + PREFETCHED_AT_ONCE]
            ranges = [PartRanges(self.directory, self.files(name), self._whole(name, names)) for name, names in some]
            with suppress(MergelakeError):  # raised again when ClickHouse requests the file
                for (name, names), bodies in zip(some, fetch_parts(self._store, ranges), strict=True):
                    self._keep(name, names, bodies)

    def _missing(self, part_name: str) -> list[str]:
        """Names of the files of a part to prefetch."""
        part = self._parts[part_name].manifest
        if self._caches.get(self._key(part_name, "columns.txt")) is not None or self._scanned(part_name) is not None:
            return []
        return small_files(self.files(part_name), packed=part.storage == "packed", size=part.bytes_on_disk)

    def _whole(self, part_name: str, names: Sequence[str]) -> list[FileRange]:
        files = self.files(part_name)
        return [FileRange(name, 0, files[name].size) for name in names]

    def _fetch_whole(self, part_name: str, names: Sequence[str]) -> list[bytes]:
        scanned = self._scanned(part_name)
        if scanned is not None:
            return self._keep(part_name, names, [scanned.files[name] for name in names])
        bodies = fetch(self._store, self.directory, self.files(part_name), self._whole(part_name, names))
        return self._keep(part_name, names, bodies)

    def _scanned(self, part_name: str) -> Held | None:
        """All files of a small part, if a scan has cached them."""
        return whole_files(self._caches, self._store, self.directory, self._parts[part_name].manifest.id)

    def _keep(self, part_name: str, names: Sequence[str], bodies: Sequence[Buffer]) -> list[bytes]:
        files, kept = self.files(part_name), []
        for name, body in zip(names, bodies, strict=True):
            whole = bytes(body)
            if not name.endswith(_DATA):
                verified(self._store, self.directory, files[name], whole)
            self._caches.put(self._key(part_name, name), whole, len(whole))
            kept.append(whole)
        return kept

    def _key(self, part_name: str, name: str) -> tuple[str, str, str]:
        return "file", self._parts[part_name].manifest.id, name


def small_files(files: Mapping[str, PartFile], *, packed: bool, size: int) -> list[str]:
    """Names of the files of a part that are fetched when it is attached; `size` is the size of the part.

    The marks of a large part with an object for each file are not fetched: that would be a request for each column.
    """
    if size <= SMALL_BYTES:
        return list(files)
    return [
        file.name
        for file in files.values()
        if file.size <= SMALL_FILE
        and not file.name.endswith(_DATA)
        and (packed or not file.name.endswith(_MARKS))
        and ".proj/" not in file.name
    ]
