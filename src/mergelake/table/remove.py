"""The last of a dropped table: all of its directory."""

from __future__ import annotations

from itertools import islice

from mergelake.table.handle import TableHandle
from mergelake.table.publish import unpublish

_DELETE_MAX = 1000


def remove_table(handle: TableHandle) -> tuple[int, int]:
    """Delete everything below a dropped table that nobody needs; objects and bytes.

    What ClickHouse is still shown goes first by name, then by file: so it sees an empty table, and no missing files.
    A checkpoint that says that it was dropped is made, and goes last: whoever opens the table in between, or goes on
    after a crash, finds it.
    """
    handle.log.write_checkpoint()
    unpublish(handle)
    last = (f"{handle.directory}/_log/checkpoints/", f"{handle.directory}/_log/_last_checkpoint")
    objects = size = 0
    kept: list[str] = []
    listing = iter(handle.store.list(handle.directory))
    while page := list(islice(listing, _DELETE_MAX)):
        objects, size = objects + len(page), size + sum(meta.size for meta in page)
        handle.store.delete([meta.key for meta in page if not meta.key.startswith(last)])
        kept += [meta.key for meta in page if meta.key.startswith(last)]
    for start in range(0, len(kept), _DELETE_MAX):
        handle.store.delete(sorted(kept)[start : start + _DELETE_MAX])
    handle.log.backend.forget()
    return objects, size
