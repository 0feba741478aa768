"""The last of a dropped table: all of its directory."""

from __future__ import annotations

from mergelake.core.errors import CorruptDataError
from mergelake.log.operations import AdvanceGcHorizon
from mergelake.log.segment import is_segment
from mergelake.publish.publish import unpublish
from mergelake.table.handle import TableHandle
from mergelake.table.listing import pages

_CHECKPOINTS_MAX = 3


def remove_table(handle: TableHandle) -> tuple[int, int]:
    """Delete everything below a dropped table that nobody needs; objects and bytes.

    What ClickHouse is still shown goes first by name, then by file: so it sees an empty table, and no missing files.

    A checkpoint that says that the table was dropped is made and read back: whoever opens the table in between, or goes
    on after a crash, finds it, and nothing else. So everything from which an older state could be made goes before any
    other entry: the hint, older checkpoints, and the first entry. For a DELETE of many may be carried out in part, and
    the newest checkpoint may be read with a wrong bit. It goes last, and what it names behind it.
    CorruptDataError where it cannot be read: nothing has been deleted then.
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
    """Whether a state can be read from an object of the log, or from those behind it."""
    return _is_checkpoint(key) or key.endswith(("/_last_checkpoint", f"/{1:020d}.json"))


def _leave_word(handle: TableHandle) -> None:
    """Write the newest state down. A checkpoint that was damaged on the way stays: the next version gets another."""
    for attempt in range(_CHECKPOINTS_MAX):
        if attempt:
            handle.log.commit(lambda state: [AdvanceGcHorizon(state.fence, state.history)])
        handle.log.write_checkpoint()
        if handle.log.has_checkpoint(handle.log.state.version):
            return
    raise CorruptDataError("The checkpoint of a dropped table cannot be read back", object_key=handle.directory)
