"""The last of a dropped table: all of its directory."""

from __future__ import annotations

from itertools import islice

from mergelake.core.errors import CorruptDataError
from mergelake.log.operations import Collect
from mergelake.log.segment import is_segment
from mergelake.table.handle import TableHandle
from mergelake.table.publish import unpublish

_DELETE_MAX = 1000
_CHECKPOINTS_MAX = 3


def remove_table(handle: TableHandle) -> tuple[int, int]:
    """Delete everything below a dropped table that nobody needs; objects and bytes.

    What ClickHouse is still shown goes first by name, then by file: so it sees an empty table, and no missing files.
    A checkpoint that says that it was dropped is made, read back, and goes last: whoever opens the table in between, or
    goes on after a crash, finds it. CorruptDataError where none can be read: nothing has been deleted then.
    """
    _leave_word(handle)
    unpublish(handle)
    last = (f"{handle.directory}/_log/checkpoints/", f"{handle.directory}/_log/_last_checkpoint")
    objects = size = 0
    kept: list[str] = []
    listing = iter(handle.store.list(handle.directory))
    while page := list(islice(listing, _DELETE_MAX)):
        objects, size = objects + len(page), size + sum(meta.size for meta in page)
        handle.store.delete([meta.key for meta in page if not meta.key.startswith(last)])
        kept += [meta.key for meta in page if meta.key.startswith(last)]
    kept.sort(key=lambda key: (is_segment(key.rpartition("/")[2]), key))  # segments after what names them
    for start in range(0, len(kept), _DELETE_MAX):
        handle.store.delete(kept[start : start + _DELETE_MAX])
    handle.log.backend.forget()
    return objects, size


def _leave_word(handle: TableHandle) -> None:
    """Write the newest state down. A checkpoint that was damaged on the way stays: the next version gets another."""
    for attempt in range(_CHECKPOINTS_MAX):
        if attempt:
            handle.log.commit(lambda state: [Collect(state.fence, state.history)])
        handle.log.write_checkpoint()
        if handle.log.has_checkpoint(handle.log.state.version):
            return
    raise CorruptDataError("The checkpoint of a dropped table cannot be read back", object_key=handle.directory)
