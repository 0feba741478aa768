"""What a listening node serves of the bytes on its disk: the service of *peer reads* (`table.volatile.volatile_wire`).

Only objects of parts with a record are served, by the keys in their manifests: a request cannot name another file.
Bytes are immutable; a part that the node drops while somebody reads it is missing from then on, and the reader goes
back to the stored parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mergelake.core.base.errors import NotFoundError
from mergelake.jobs.merge.volatile import LocalPart
from mergelake.store.interface.protocol import Store
from mergelake.table.volatile.volatile_wire import ReadyRequest, decode_request, encode_ready

Held = Callable[[], Mapping[str, LocalPart]]
"""Returns the parts on the disk, by id of the volatile part; empty if the table does not allow to serve them."""


class VolatileService:
    """The handler of `volatile_wire.SERVICE`, for any number of tables."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[Held, Store]] = {}
        self.bytes_served = 0
        """Bytes of parts that were sent to readers."""

    def add(self, directory: str, held: Held, disk: Store) -> None:
        """Serve the parts of a table from now on."""
        self._tables[directory] = held, disk

    def remove(self, directory: str) -> None:
        """Serve the parts of a table no longer."""
        self._tables.pop(directory, None)

    def __call__(self, data: bytes) -> bytes:
        """The answer to a request; no bytes for an object that is not here. Raises ValueError for an unreadable one."""
        request = decode_request(data)
        held, disk = self._tables.get(request.table, (dict, None))
        parts = held()
        if isinstance(request, ReadyRequest):
            return encode_ready((each, parts[each].manifest) for each in request.ids if each in parts)
        if not request.fits:
            raise ValueError("ranges that cannot be, or too many of them")
        part_id = request.key.partition("/")[0]
        part = next((part for part in parts.values() if part.manifest.id == part_id), None)
        if disk is None or part is None or request.key not in part.manifest.object_keys():
            return b""
        try:
            body = b"".join(disk.get_ranges(f"{request.table}/{request.key}", request.ranges))
        except NotFoundError:  # it was dropped just now
            return b""
        self.bytes_served += len(body)
        return body
