"""Where the files of a part go while it is written: into memory first, into objects when it grows.

A small part becomes one object, so nothing may be stored before its size is known; a large one must not be
held in memory. The spool therefore starts by keeping everything (`packed`) and, when more than `limit`
bytes have come in, sends what it has and from then on streams each file to an object of its own (`full`)::

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
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from mergelake.core.errors import MergelakeError
from mergelake.core.manifest import Extent
from mergelake.parts.objects import OWN_OBJECT, SMALL_PUT, PartObjects
from mergelake.store.protocol import Store

_logger = logging.getLogger("mergelake.parts")
STREAM_CHUNK = 8 << 20
"""Bytes that a file gathers before they are handed to its upload."""
_PUTS_AT_ONCE = 4


class Spool:
    """Files by name, written in pieces, stored as one object or one each.

    Keys are `<part id>/…`, relative to `directory`, which is the table's directory in the store.
    """

    def __init__(
        self, store: Store, directory: str, part_id: str, *, limit: int, objects: PartObjects | None = None
    ) -> None:
        """`objects`: where a packed part goes, with others; without it, it is stored by `finish`."""
        self._store = store
        self._objects = objects
        self._prefix = f"{directory.rstrip('/')}/" if directory else ""
        self._part_id = part_id
        self._limit = limit
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        self._size = 0
        self._full = False
        self._pool: ThreadPoolExecutor | None = None
        self._puts: list[Future[None]] = []

    @property
    def storage(self) -> str:
        """`packed` or `full`: so far, and for good after `finish`."""
        return "full" if self._full else "packed"

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._files

    def claim(self, name: str) -> bool:
        """Make the file `name` this caller's; False if another has it (columns of one Nested share a file)."""
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
        """No more bytes for this file."""
        file = self._files[name]
        with self._lock:
            file.closed = True
            if self._full and file.upload is None:
                self._put(file)
        if file.upload is not None:
            self._stream(file)
            file.upload.finish()

    def take(self, files: Mapping[str, bytes]) -> None:
        """Small files that are whole, as `claim`, `write` and `close` of each: of names that nobody has."""
        with self._lock:
            for name, data in files.items():
                file = self._files[name] = _File(name, [data], len(data), len(data), closed=True)
                self._size += len(data)
                if self._full:
                    self._put(file)
            if not self._full and self._size > self._limit:
                self._spill()

    def finish(self, front: Iterable[str] = ()) -> dict[str, tuple[Extent, ...]]:
        """Store what is not stored yet; the place of each file. `front`: files that a packed part begins with."""
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
        """In `full` storage: wait until all else is stored, then store this file (`checksums.txt`)."""
        self._wait()
        self._files[name] = _File(name, size=len(data), closed=True)
        self._store.put(f"{self._prefix}{self._part_id}/{name}", data)

    def abort(self, *, delete: bool = True) -> None:
        """Stop uploads and, with `delete`, delete the objects that were stored already.

        What cannot be deleted is left to the sweeper: why the part was given up matters more.
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
        """From one object to one a file; the lock is held."""
        self._full = True
        for file in self._files.values():
            if file.closed:
                self._put(file)

    def _put(self, file: _File) -> None:
        """Store a whole small file in the background; the lock is held."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_PUTS_AT_ONCE, thread_name_prefix="mergelake-put")
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


@dataclass(slots=True)
class _File:
    name: str
    chunks: list[bytes | memoryview] = field(default_factory=list)
    pending: int = 0
    size: int = 0
    closed: bool = False
    upload: _Upload | None = None


class _Upload:
    """One object, pushed into `Store.put_large`, which pulls, from a thread of its own."""

    def __init__(self, store: Store, key: str) -> None:
        self._queue: queue.Queue[list[bytes | memoryview] | None] = queue.Queue(maxsize=1)
        self._error: BaseException | None = None
        self._cancelled = False
        self._done = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, args=(store, key), name="mergelake-upload", daemon=True)
        self._thread.start()

    def send(self, chunks: list[bytes | memoryview]) -> None:
        """Hand over the next bytes; waits while the upload is behind, raises what it died of."""
        if self._error is not None:
            raise self._error
        self._queue.put(chunks)

    def finish(self) -> None:
        """No more bytes."""
        if not self._done:
            self._done = True
            self._queue.put(None)

    def wait(self) -> None:
        """Until the object is stored; raises what the upload died of."""
        self.finish()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Give up: nothing becomes visible."""
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
            # The writer may be waiting for room: take what comes until it notices.
            while not self._ended:
                self._ended = self._queue.get() is None


class _CancelledError(Exception):
    """Ends an upload that is not wanted any more."""
