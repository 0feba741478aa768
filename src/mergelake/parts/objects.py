"""Objects for the parts of one insert: small parts share one, and uploads go side by side.

A part that is stored in one piece (`packed`) comes here as bytes. Small ones are gathered into shared objects, each of
its own directory; a larger one gets the object `<part id>/files.packed`, which is also what becomes of a shared object
with a single part in it. Until `finish` a part of a shared object knows it by a temporary key::

    objects = PartObjects(store, directory, ids, share_max=..., object_max=...)
    key, offset = objects.add(part_id, chunks, size)   # from any thread
    manifests = objects.finish(manifests)              # everything is stored, and the manifests say where; or
    objects.abort()                                    # deletes what was stored

The key of a shared object is `<drawn id>/<bytes>.packed`: the log alone tells how large it is, and so how much of it
no part needs any more. Its id is drawn after the writer read `base_version`, as the ids of its parts are, so the fence
that keeps a late part out of the log keeps the references to a collected shared object out, too.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from mergelake.core.errors import MergelakeError
from mergelake.core.ids import IdSource
from mergelake.core.manifest import PartManifest, with_keys
from mergelake.store.protocol import Store

OWN_OBJECT = "files.packed"
"""Object of a packed part. ClickHouse has packed parts of its own in `data.packed`: with such a name among the
published files it takes the part for one of those or not, by the order of its hash table, and then detaches it."""
SMALL_PUT = 16 << 20
"""Larger objects go by multipart upload."""
_UPLOADS_AT_ONCE = 8
_IN_FLIGHT_BYTES = 64 << 20
"""Bytes that wait for their upload; whoever brings more waits as well."""
_SHARED = re.compile(r"[0-9a-f]{32}/([0-9]+)\.packed")
_logger = logging.getLogger("mergelake.parts")


def shared_size(key: str) -> int | None:
    """Bytes of a shared object of this table, by its key; None for any other object."""
    found = _SHARED.fullmatch(key)
    return int(found[1]) if found else None


@dataclass(slots=True)
class _Open:
    """A shared object that is being filled."""

    key: str
    """By which its parts know it until it is complete: the own object of the first one."""
    parts: int = 0
    chunks: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0


class PartObjects:
    """Where the packed parts of one insert go. Safe for many threads."""

    def __init__(self, store: Store, directory: str, ids: IdSource, *, share_max: int, object_max: int) -> None:
        """Parts of up to `share_max` bytes share objects of up to `object_max`; `directory` is the table's."""
        self._store = store
        self._prefix = f"{directory.rstrip('/')}/" if directory else ""
        self._ids = ids
        self._share_max, self._object_max = share_max, object_max
        self._lock = threading.Lock()
        self._open: _Open | None = None
        self._final: dict[str, str] = {}
        self._begun: list[str] = []
        self._pool: ThreadPoolExecutor | None = None
        self._uploads: list[Future[None]] = []
        self._in_flight = 0
        self._room = threading.Condition()

    def add(self, part_id: str, chunks: Sequence[bytes | memoryview], size: int) -> tuple[str, int]:
        """Store the bytes of a part, at some time before `finish` returns; the key and the offset of the first one.

        Waits while too much is under way, and raises what an upload failed with.
        """
        if size > min(self._share_max, self._object_max):
            key = f"{part_id}/{OWN_OBJECT}"
            self._upload(key, list(chunks), size)
            return key, 0
        with self._lock:
            full = None
            if self._open is not None and self._open.size + size > self._object_max:
                full, self._open = self._open, None
            shared = self._open = self._open or _Open(f"{part_id}/{OWN_OBJECT}")
            offset = shared.size
            shared.parts += 1
            shared.chunks.extend(chunks)
            shared.size += size
        if full is not None:
            self._close(full)
        return shared.key, offset

    def finish(self, manifests: Sequence[PartManifest]) -> list[PartManifest]:
        """Wait until everything is stored; the manifests of the parts, with the keys that their objects have."""
        last, self._open = self._open, None
        if last is not None:
            self._close(last, wait=not self._uploads)
        for upload in self._uploads:
            upload.result()
        self._shut()
        return [with_keys(manifest, self._final) for manifest in manifests]

    def abort(self) -> None:
        """Delete what was stored. What cannot be deleted is swept later: why the insert was given up matters more."""
        for upload in self._uploads:
            upload.cancel()
        self._shut()
        if not self._begun:
            return
        try:
            self._store.delete(sorted(self._prefix + key for key in self._begun))
        except MergelakeError as problem:
            _logger.warning("objects of an insert that was given up stay: %s", problem)

    def _close(self, shared: _Open, *, wait: bool = False) -> None:
        key = f"{self._ids.new_id()}/{shared.size}.packed" if shared.parts > 1 else shared.key
        self._final[shared.key] = key
        if wait:  # a lone object needs no thread
            self._begun.append(key)
            self._put(key, shared.chunks, shared.size)
        else:
            self._upload(key, shared.chunks, shared.size)

    def _upload(self, key: str, chunks: list[bytes | memoryview], size: int) -> None:
        with self._room:
            # One object may always be under way, however large.
            self._room.wait_for(lambda: not self._in_flight or self._in_flight + size <= _IN_FLIGHT_BYTES)
            self._in_flight += size
        with self._lock:
            failed = next((upload for upload in self._uploads if upload.done() and upload.exception()), None)
            if failed is None:
                self._pool = self._pool or ThreadPoolExecutor(_UPLOADS_AT_ONCE, thread_name_prefix="mergelake-upload")
                self._begun.append(key)
                self._uploads.append(self._pool.submit(self._put_waiting, key, chunks, size))
        if failed is not None:
            failed.result()

    def _put_waiting(self, key: str, chunks: list[bytes | memoryview], size: int) -> None:
        try:
            self._put(key, chunks, size)
        finally:
            chunks.clear()
            with self._room:
                self._in_flight -= size
                self._room.notify_all()

    def _put(self, key: str, chunks: list[bytes | memoryview], size: int) -> None:
        if size <= SMALL_PUT:
            self._store.put(self._prefix + key, b"".join(chunks))
        else:
            self._store.put_large(self._prefix + key, chunks)

    def _shut(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
