"""Deletes the whole directory of a dropped table."""

from __future__ import annotations

from mergelake.core.base.errors import CorruptDataError
from mergelake.jobs.publish.publish import unpublish
from mergelake.log.model.operations import AdvanceGcHorizon
from mergelake.log.storage.segment import is_segment
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.listing import pages

_CHECKPOINTS_MAX = 3


def remove_table(handle: TableHandle) -> tuple[int, int]:
    """Delete all objects of a dropped table that is not needed any more; returns their number and bytes.

    Published names are deleted before their files, so that ClickHouse sees an empty table, and no missing files.

    First a checkpoint of the dropped table is written and read back: a process that opens the table in between, or
    continues after a crash, must find this state only. So everything from which an older state could be read is deleted
    before any other entry: the hint, older checkpoints, and the first entry; because a DELETE of many objects may be
    executed in part, and the newest checkpoint may be read with a wrong bit. That checkpoint is deleted last, and its
    segments after it. Raises CorruptDataError if it cannot be read: nothing has been deleted then.
    """
    _leave_word(handle)
    unpublish(handle)
    store, log = handle.store, f"{handle.directory}/_log"
    beginnings = [meta for meta in store.list(log) if _is_beginning(meta.key)]
    newest = max((meta.key for meta in beginnings if _is_checkpoint(meta.key)), default="")
    older = [meta for meta in beginnings if meta.key != newest]
    objects, size = len(older), sum(meta.size for meta in older)
    if older:
        store.delete([meta.key for meta in older])
    kept: list[str] = []
    for page in pages(store.list(handle.directory)):
        objects, size = objects + len(page), size + sum(meta.size for meta in page)
        kept += (meta.key for meta in page if meta.key.startswith(f"{log}/checkpoints/"))
        store.delete([meta.key for meta in page if not meta.key.startswith(f"{log}/checkpoints/")])
    checkpoints = sorted(filter(_is_checkpoint, kept))
    segments = sorted(set(kept).difference(checkpoints))
    for keys in filter(None, (checkpoints[:-1], checkpoints[-1:], segments)):
        store.delete(keys)
    handle.log.backend.forget()
    return objects, size


def _is_checkpoint(key: str) -> bool:
    return "/checkpoints/" in key and not is_segment(key.rpartition("/")[2])


def _is_beginning(key: str) -> bool:
    """Whether a state can be read beginning with this object of the log."""
    return _is_checkpoint(key) or key.endswith(("/_last_checkpoint", f"/{1:020d}.json"))


def _leave_word(handle: TableHandle) -> None:
    """Write a checkpoint of the newest state. If it cannot be read back, try again at a new version."""
    for attempt in range(_CHECKPOINTS_MAX):
        if attempt:
            handle.log.commit(lambda state: [AdvanceGcHorizon(state.fence, state.history)])
        handle.log.write_checkpoint()
        if handle.log.has_checkpoint(handle.log.state.version):
            return
    raise CorruptDataError("The checkpoint of a dropped table cannot be read back", object_key=handle.directory)
