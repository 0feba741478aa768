"""What a node that listens serves of the bytes on its disk: the service of *peer reads* (`table.volatile_wire`).

Only objects of parts with a record are served, and only their ranges: a request cannot name another file. Bytes are
immutable; a part that the node drops while somebody reads it is missing from then on, and the reader goes back to the
stored parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mergelake.core.errors import error
from mergelake.merge.volatile import LocalPart
from mergelake.store.protocol import Store
from mergelake.table.volatile_wire import BytesRequest, ReadyRequest, decode_request, encode_ready

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
        """The answer to a request. Raises ValueError for an unreadable one, and errors for parts that are not here."""
        request = decode_request(data)
        held, disk = self._tables.get(request.table, (dict, None))
        parts = held()
        if isinstance(request, ReadyRequest):
            return encode_ready((each, parts[each].manifest) for each in request.ids if each in parts)
        part_id = request.key.partition("/")[0]
        if disk is None or not request.fits or not any(part.manifest.id == part_id for part in parts.values()):
            raise error("NO_SUCH_DATA_PART", f"{request.key} of {request.table} is not served here")
        return self._bytes(request, disk)

    def _bytes(self, request: BytesRequest, disk: Store) -> bytes:
        body = b"".join(disk.get_ranges(f"{request.table}/{request.key}", request.ranges))
        self.bytes_served += len(body)
        return body
