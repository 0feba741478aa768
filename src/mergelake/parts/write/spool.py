"""Storage of the files of a part while it is written: in memory first, in objects once it is large.

A small part becomes one object, so nothing may be stored before its size is known; a large one must not be held in
memory. So the spool holds everything at first (`packed`) and, after more than `limit` bytes, stores what it holds and
streams each file to its own object (`full`)::

    buffering --(more than limit bytes)--> streaming --finish()--> one object a file
        '------------finish()------------> one object for all

Files that grow beyond a few megabytes are uploaded while they grow, by a thread each, with back-pressure.
All methods may be called from several threads, each file from one at a time.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from mergelake.core.base.errors import InternalError, MergelakeError
from mergelake.core.model.manifest import Extent
from mergelake.parts.write.objects import OWN_OBJECT, SMALL_PUT, PartObjects
from mergelake.store.interface.protocol import Store
from mergelake.store.metering.meter import Pool, carried

_logger = logging.getLogger("mergelake.parts")
STREAM_CHUNK = 8 << 20
"""Bytes of a file that are collected before they are passed to its upload."""
_PUTS_AT_ONCE = 4


class Spool:
    """Files by name, written in pieces, stored as one object or one each.

    Keys are `<part id>/…`, relative to `directory`, which is the table's directory in the store.
    """

    def __init__(
        self, store: Store, directory: str, part_id: str, *, limit: int, objects: PartObjects | None = None
    ) -> None:
        """`objects` stores a packed part together with others; without it, `finish` stores the part."""
        self._store = store
        self._objects = objects
        self._prefix = f"{directory.rstrip('/')}/" if directory else ""
        self._part_id = part_id
        self._limit = limit
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        self._size = 0
        self._full = False
        self._pool: Pool | None = None
        self._puts: list[Future[None]] = []

    @property
    def storage(self) -> str:
        """`packed` or `full`; final after `finish`."""
        return "full" if self._full else "packed"

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._files

    def claim(self, name: str) -> bool:
        """Reserve the file `name` for the caller; False if another has it (columns of one Nested share a file)."""
        with self._lock:
            if name in self._files:
                return False
            self._files[name] = _File(name)
            return True

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Append to a claimed file."""
        file = self._files[name]
        with self._lock:
            file.chunks.append(data)
            file.pending += len(data)
            file.size += len(data)
            self._size += len(data)
            if not self._full and self._size > self._limit:
                self._spill()
        if self._full and file.pending >= STREAM_CHUNK:
            self._stream(file)

    def close(self, name: str) -> None:
        """End the file."""
        file = self._files[name]
        with self._lock:
            file.closed = True
            if self._full and file.upload is None:
                self._put(file)
        if file.upload is not None:
            self._stream(file)
            file.upload.finish()

    def take(self, files: Mapping[str, bytes]) -> None:
        """Add whole small files: `claim`, `write` and `close` of each. Their names must not be claimed yet."""
        with self._lock:
            for name, data in files.items():
                file = self._files[name] = _File(name, [data], len(data), len(data), closed=True)
                self._size += len(data)
                if self._full:
                    self._put(file)
            if not self._full and self._size > self._limit:
                self._spill()

    def finish(self, front: Iterable[str] = ()) -> dict[str, tuple[Extent, ...]]:
        """Store the remaining files; returns the extents of each. A packed part begins with the files in `front`."""
        if self._full:
            self._wait()
            return {f.name: (Extent(f"{self._part_id}/{f.name}", 0, f.size),) for f in self._files.values()}
        first = dict.fromkeys(name for name in front if name in self._files)
        order = [self._files[name] for name in {**first, **dict.fromkeys(self._files)}]
        chunks = [chunk for file in order for chunk in file.chunks]
        size = sum(file.size for file in order)
        key, at = f"{self._part_id}/{OWN_OBJECT}", 0
        if self._objects is not None:
            key, at = self._objects.add(self._part_id, chunks, size)
        elif size <= SMALL_PUT:
            self._store.put(self._prefix + key, b"".join(chunks))
        else:
            self._store.put_large(self._prefix + key, chunks)
        places: dict[str, tuple[Extent, ...]] = {}
        for file in order:
            places[file.name] = (Extent(key, at, file.size),)
            at += file.size
        return places

    def put_last(self, name: str, data: bytes) -> None:
        """In `full` storage: wait until all other files are stored, then store this one (`checksums.txt`)."""
        self._wait()
        self._files[name] = _File(name, size=len(data), closed=True)
        self._store.put(f"{self._prefix}{self._part_id}/{name}", data)

    def abort(self, *, delete: bool = True) -> None:
        """Stop uploads and, with `delete`, delete the objects that are already stored.

        A failure to delete is only logged: the sweeper deletes them later.
        """
        with self._lock:
            files = list(self._files.values())
        for file in files:
            if file.upload is not None:
                file.upload.cancel()
        for put in self._puts:
            put.exception()
        self._close_pool()
        if self._full and delete:
            try:
                self._store.delete([f"{self._prefix}{self._part_id}/{file.name}" for file in files])
            except MergelakeError as problem:
                _logger.warning("objects of the part %s, which was given up, stay: %s", self._part_id, problem)

    def _spill(self) -> None:
        """Switch from `packed` to `full` storage; the caller holds the lock."""
        self._full = True
        for file in self._files.values():
            if file.closed:
                self._put(file)

    def _put(self, file: _File) -> None:
        """Store a whole small file in the background; the caller holds the lock."""
        if self._pool is None:
            self._pool = Pool(_PUTS_AT_ONCE, thread_name_prefix="mergelake-put")
        data = b"".join(file.chunks)
        file.chunks.clear()
        self._puts.append(self._pool.submit(self._store.put, f"{self._prefix}{self._part_id}/{file.name}", data))

    def _stream(self, file: _File) -> None:
        if file.upload is None:
            file.upload = _Upload(self._store, f"{self._prefix}{self._part_id}/{file.name}")
        with self._lock:
            chunks, file.chunks, file.pending = file.chunks, [], 0
        if chunks:
            file.upload.send(chunks)

    def _wait(self) -> None:
        for put in self._puts:
            put.result()
        self._close_pool()
        for file in self._files.values():
            if file.upload is not None:
                file.upload.wait()

    def _close_pool(self) -> None:
        self._puts.clear()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class SpoolFolder:
    """The files of a spool whose names begin with `prefix`, under their names without it: those of a projection.

    The spool itself is finished and aborted by its owner.
    """

    def __init__(self, spool: Spool | SpoolFolder, prefix: str) -> None:
        self._spool, self._prefix = spool, prefix

    @property
    def storage(self) -> str:
        """That of the spool."""
        return self._spool.storage

    def __contains__(self, name: str) -> bool:
        return f"{self._prefix}{name}" in self._spool

    def claim(self, name: str) -> bool:
        """As `Spool.claim`."""
        return self._spool.claim(f"{self._prefix}{name}")

    def write(self, name: str, data: bytes | memoryview) -> None:
        """As `Spool.write`."""
        self._spool.write(f"{self._prefix}{name}", data)

    def close(self, name: str) -> None:
        """As `Spool.close`."""
        self._spool.close(f"{self._prefix}{name}")

    def take(self, files: Mapping[str, bytes]) -> None:
        """As `Spool.take`."""
        self._spool.take({f"{self._prefix}{name}": data for name, data in files.items()})

    def abort(self, *, delete: bool = True) -> None:
        """Nothing: the part is aborted as a whole."""

    def finish(self, front: Iterable[str] = ()) -> dict[str, tuple[Extent, ...]]:
        """Not for folders: the places are known when the part is finished."""
        raise InternalError("A projection is finished with its part")

    def put_last(self, name: str, data: bytes) -> None:
        """Not for folders, as `finish`."""
        raise InternalError("A projection is finished with its part")


@dataclass(slots=True)
class _File:
    name: str
    chunks: list[bytes | memoryview] = field(default_factory=list)
    pending: int = 0
    size: int = 0
    closed: bool = False
    upload: _Upload | None = None


class _Upload:
    """Upload of one object: a thread calls `Store.put_large`, which pulls the chunks that `send` pushes."""

    def __init__(self, store: Store, key: str) -> None:
        self._queue: queue.Queue[list[bytes | memoryview] | None] = queue.Queue(maxsize=1)
        self._error: BaseException | None = None
        self._cancelled = False
        self._done = False
        self._ended = False
        self._thread = threading.Thread(
            target=carried(self._run), args=(store, key), name="mergelake-upload", daemon=True
        )
        self._thread.start()

    def send(self, chunks: list[bytes | memoryview]) -> None:
        """Upload the next bytes; blocks while the upload is behind. Raises the error of the upload."""
        if self._error is not None:
            raise self._error
        self._queue.put(chunks)

    def finish(self) -> None:
        """End the object."""
        if not self._done:
            self._done = True
            self._queue.put(None)

    def wait(self) -> None:
        """Wait until the object is stored. Raises the error of the upload."""
        self.finish()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Abort the upload: no object becomes visible."""
        self._cancelled = True
        self.finish()
        self._thread.join()

    def _pull(self) -> Iterator[bytes | memoryview]:
        while not self._ended:
            chunks = self._queue.get()
            self._ended = chunks is None
            if self._cancelled:
                raise _CancelledError
            yield from chunks or ()

    def _run(self, store: Store, key: str) -> None:
        try:
            store.put_large(key, self._pull())
        except BaseException as problem:  # noqa: BLE001
            self._error = problem  # raised again by the writer's thread
            # The writer may be blocked in `send`: consume chunks until it sees the error.
            while not self._ended:
                self._ended = self._queue.get() is None


class _CancelledError(Exception):
    """Ends an upload that was cancelled."""
