"""Objects for the parts of one insert: small parts share objects, and uploads run concurrently.

A part that is stored in one piece (`packed`) is added as bytes. Small parts are collected into shared objects, each in
its own directory; a larger part, or a single one in a shared object, gets the object `<part id>/files.packed`. Until
`finish` a part refers to a shared object by a temporary key::

    objects = PartObjects(store, directory, ids, share_max=..., object_max=...)
    key, offset = objects.add(part_id, chunks, size)   # from any thread
    manifests = objects.finish(manifests)              # everything is stored, and the manifests say where; or
    objects.abort()                                    # deletes what was stored

The key of a shared object is `<new id>/<bytes>.packed`: the log alone tells its size, and so how much of it no part
needs any more. Like the ids of its parts, its id is created after the writer read `base_version`, so the fence that
keeps a late part out of the log also keeps out references to a collected shared object.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.ids import IdSource
from mergelake.core.model.manifest import PartManifest, with_keys
from mergelake.store.interface.protocol import Store
from mergelake.store.metering.meter import Pool

OWN_OBJECT = "files.packed"
"""Object of a packed part. Not `data.packed`, the name of ClickHouse's own packed parts: with such a file among those
published, ClickHouse may take the part for one of these and detach it."""
SMALL_PUT = 16 << 20
"""Maximum bytes of an object that is stored by one request; larger ones are multipart uploads."""
_UPLOADS_AT_ONCE = 8
_IN_FLIGHT_BYTES = 64 << 20
"""Maximum bytes that wait for their upload; `add` blocks while there are more."""
_SHARED = re.compile(r"[0-9a-f]{32}/([0-9]+)\.packed")
_logger = logging.getLogger("mergelake.parts")


def shared_size(key: str) -> int | None:
    """Bytes of a shared object of this table, by its key; None for any other object."""
    match = _SHARED.fullmatch(key)
    return int(match[1]) if match else None


@dataclass(slots=True)
class _Open:
    """A shared object that is being filled."""

    key: str
    """Temporary key until it is complete: the own object of its first part."""
    parts: int = 0
    chunks: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0


class PartObjects:
    """Stores the packed parts of one insert. Thread-safe."""

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
        self._pool: Pool | None = None
        self._uploads: list[Future[None]] = []
        self._in_flight = 0
        self._room = threading.Condition()

    def add(self, part_id: str, chunks: Sequence[bytes | memoryview], size: int) -> tuple[str, int]:
        """Store the bytes of a part before `finish` returns; returns the key and the offset of the first byte.

        Blocks while too many bytes are being uploaded. Raises the error of an upload that failed.
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
        """Wait until everything is stored; returns the manifests with the final keys of their objects."""
        last, self._open = self._open, None
        if last is not None:
            self._close(last, wait=not self._uploads)
        for upload in self._uploads:
            upload.result()
        self._shut()
        return [with_keys(manifest, self._final) for manifest in manifests]

    def abort(self) -> None:
        """Delete the stored objects. A failure is only logged: the sweeper deletes them later."""
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
            # One object may always be uploaded, however large.
            self._room.wait_for(lambda: not self._in_flight or self._in_flight + size <= _IN_FLIGHT_BYTES)
            self._in_flight += size
        with self._lock:
            failed = next((upload for upload in self._uploads if upload.done() and upload.exception()), None)
            if failed is None:
                self._pool = self._pool or Pool(_UPLOADS_AT_ONCE, thread_name_prefix="mergelake-upload")
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
