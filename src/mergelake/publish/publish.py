"""Showing a table to ClickHouse: its directory, kept up as a `plain_rewritable` disk.

A part exists for ClickHouse once `__meta/<token>/prefix.path` holds its name; the files lie in `<token>/`, and a part
in `full` storage lies there already. So publishing is mostly one tiny PUT a part. Parts that are packed (or made of
extents) are laid out in plain files first; their own objects stay, they are what mergelake reads.

It is a one-way view of the log: list the tokens, read the log, plan (`published.plan_publish`, of the partitions for
which it may be anything: `shown`), then

1. lay out and name new active parts, merged ones before what they cover is taken away;
2. write and name an empty part over what was dropped;
3. take away names whose cover has been visible for the grace period. Objects are never deleted here (`collect` does,
   for parts that have no name).

The listing comes first: whoever named what it shows knew a version no newer than the one that is read after it. The
other way round, what another publisher named in between would look like something dropped, and be covered.

Every step may be repeated, and any step may be the last one before a crash. Two publishers at once do the same
work twice and no harm.

ClickHouse attaches the directory read-only by the statement of `attach.create_statement`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

from mergelake.core.durations import check_seconds
from mergelake.core.errors import CorruptDataError, NotFoundError
from mergelake.core.manifest import PartManifest
from mergelake.core.names import PartInfo
from mergelake.core.schema import TableSchema
from mergelake.core.settings import TableSettings
from mergelake.format.partition import Partition
from mergelake.log.head_freshness import HEAD_FRESHNESS_S, Instant
from mergelake.log.retention import reachable
from mergelake.log.state import ActivePart
from mergelake.order.keys import table_keys
from mergelake.parts.fetch import fetch_whole
from mergelake.parts.layout import layout
from mergelake.parts.listing import CHUNK_BYTES, file_chunks
from mergelake.parts.part_spec import PartSpec, PartTarget
from mergelake.parts.writer import PartWriter
from mergelake.publish.plan import GRACE_SECONDS, Cover, empty_info, shown_token
from mergelake.publish.shown import Shown
from mergelake.store.protocol import Store
from mergelake.table.gc_notes import Notes
from mergelake.table.handle import TableHandle

_LOOKS_MAX = 8
_FILES_AT_ONCE = 8
_EVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class PublishReport:
    """What one round did; part names as ClickHouse sees them."""

    version: int
    """The version of the table that is visible now."""
    added: tuple[str, ...]
    """Active parts that became visible."""
    dropped: tuple[str, ...]
    """Empty parts that became visible, over what was dropped."""
    removed: tuple[str, ...]
    """Names that are gone: their cover has been visible for the grace period."""
    waiting: int
    """Covered names that are still visible."""


def publish(handle: TableHandle, *, grace_seconds: float = GRACE_SECONDS) -> PublishReport:
    """Bring what ClickHouse sees up to the table's newest version, and take away what it no longer needs.

    Costs one LIST, and for each new part one PUT if it lies in plain files, else one more PUT a file; where names wait,
    a PUT and a HEAD to learn the store's time.
    """
    check_seconds("grace_seconds", grace_seconds)
    return _round(handle, grace_seconds)


def follow(
    handle: TableHandle,
    poll_seconds: float,
    stop: Callable[[], bool],
    *,
    grace_seconds: float = GRACE_SECONDS,
    on_report: Callable[[PublishReport], None] | None = None,
) -> None:
    """Publish after every commit, until `stop()` is true; `on_report` hears of the rounds that did something.

    A quiet table costs one GET a poll (a log in ZooKeeper tells by itself), and a LIST only while covered names wait
    for their grace period.
    """
    check_seconds("poll_seconds", poll_seconds)
    check_seconds("grace_seconds", grace_seconds)
    seen, waiting, due_s = 0, 0, 0.0
    handle.refresh()
    while not stop():
        state, now_s = handle.log.state, handle.clock.monotonic_s()
        if state.version != seen or (waiting and now_s >= due_s):
            report = _round(handle, grace_seconds)
            seen, waiting, due_s = report.version, report.waiting, now_s + max(grace_seconds / 4, poll_seconds)
            if on_report is not None and (report.added or report.dropped or report.removed):
                on_report(report)
        if stop():
            return
        handle.log.wait(poll_seconds, poll_seconds)


def unpublish(handle: TableHandle) -> int:
    """Take all names away, so that nothing is visible; returns how many there were. ClickHouse must detach first."""
    keys = [meta.key for meta in handle.store.list(f"{handle.directory}/__meta/")]
    handle.store.delete(keys)
    return len(keys)


def names_shown(handle: TableHandle, shown: Shown) -> None:
    """Learn what ClickHouse sees, by one LIST, and a state of the log no older, which knows whose names these are."""
    shown.look(handle, _named_in)


def _round(handle: TableHandle, grace_seconds: float) -> PublishReport:
    with handle.remembering(Shown) as shown:
        return _publish(handle, shown, grace_seconds)


def _publish(handle: TableHandle, shown: Shown, grace_seconds: float) -> PublishReport:
    store, directory = handle.store, handle.directory
    began = Instant.now(handle.clock)
    names_shown(handle, shown)
    state, grace_ms = shown.state, round(grace_seconds * 1000)
    plan = shown.plan(_EVER_MS, 0)
    if plan.remove and grace_ms:
        # How long something waited is told by the clock that dated it, the store's.
        plan = shown.plan(Notes(store, directory, handle.ids).now_ms(), grace_ms)
    active, named = shown.active(), shown.names()
    if not len(shown):
        store.put(f"{directory}/__root/format_version.txt", b"1")
    adding = {shown_token(active[part_id].manifest): active[part_id] for part_id in plan.add}
    try:
        with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="mergelake-publish") as pool:
            for token, part in adding.items():
                lay_out(store, directory, part.manifest, token, pool)
                _name(store, directory, token, part.info)
        for cover in plan.cover:
            _write_empty(handle, state.schema, cover)
            _name(store, directory, cover.token, cover.info)
    finally:
        # A fraction of the time between noting an object and deleting it, as for knowledge of the log.
        if began.age_s(handle.clock) > min(HEAD_FRESHNESS_S, handle.settings.integer("gc_grace_seconds") / 4):
            _take_back(handle, adding, plan.cover)
    removed = plan.remove
    if grace_ms == 0 and (plan.add or plan.cover):
        # What was named just now may be all the cover that an old name waits for.
        names_shown(handle, shown)
        removed, named = shown.plan(_EVER_MS, 0).remove, shown.names()
    store.delete([f"{directory}/__meta/{token}/prefix.path" for token in removed])
    infos = {name.token: name.info for name in named}
    stale = sum(name.part_id not in active and not name.empty for name in named)
    return PublishReport(
        state.version,
        tuple(str(active[part_id].info) for part_id in plan.add),
        tuple(str(cover.info) for cover in plan.cover),
        tuple(str(infos[token]) for token in removed),
        stale - sum(empty_info(token) is None for token in removed),
    )


def _take_back(handle: TableHandle, added: Mapping[str, ActivePart], covers: Iterable[Cover]) -> None:
    """Take away names of parts that are no longer kept: this process slept, and their files may be gone.

    `added` are parts by their tokens.
    Of empty parts those that have no files any more: others were made since, which cover the same.
    """
    store, directory, live = handle.store, handle.directory, reachable(handle.refresh())
    gone = [token for token, part in added.items() if part.manifest.id not in live]
    gone += [cover.token for cover in covers if not any(True for _ in store.list(f"{directory}/{cover.token}"))]
    store.delete([f"{directory}/__meta/{name}/prefix.path" for name in gone])


def lay_out(store: Store, directory: str, manifest: PartManifest, token: str, pool: ThreadPoolExecutor) -> None:
    """Make the files of a part exist as plain objects `<token>/<file>`; what lies so already is left alone."""
    files, prefix = manifest.file_table(), f"{directory}/{token}/"
    missing = [files[name] for name in layout(directory, manifest).elsewhere(prefix)]
    small = [file.name for file in missing if file.size <= CHUNK_BYTES]
    bodies = fetch_whole(store, directory, files, small)
    puts = [pool.submit(store.put, prefix + n, bytes(body)) for n, body in zip(small, bodies, strict=True)]
    for file in missing:
        if file.size > CHUNK_BYTES:
            store.put_large(prefix + file.name, map(bytes, file_chunks(store, directory, file)))
    for put in puts:
        put.result()


def _name(store: Store, directory: str, token: str, info: PartInfo) -> None:
    store.put(f"{directory}/__meta/{token}/prefix.path", f"{info}/".encode())


def _named_in(store: Store, key: str) -> PartInfo | None:
    """The name that a `prefix.path` gives, where the log has forgotten the part; None if it was taken away since."""
    try:
        return PartInfo.try_parse(agreed(store, key).decode(errors="replace").rstrip("/"))
    except NotFoundError:
        return None


def agreed(store: Store, key: str) -> bytes:
    """An object of ClickHouse's that has no digest: believed when two looks agree.

    A bit that went wrong on the way would name other blocks, which would be covered, or taken for a cover.
    CorruptDataError if no two looks in a row agree.
    """
    said = store.get(key)
    for _ in range(_LOOKS_MAX):
        before, said = said, store.get(key)
        if said == before:
            return said
    raise CorruptDataError("An object reads differently each time", object_key=key)


def _write_empty(handle: TableHandle, schema: TableSchema, cover: Cover) -> None:
    """The files of a part without rows, of the partition of the parts that it covers."""
    data = b""
    if schema.partition_by:
        data = agreed(handle.store, f"{handle.directory}/{cover.over[0]}/partition.dat")
    keys = table_keys(schema)
    target = PartTarget(
        handle.store,
        handle.directory,
        schema,
        TableSettings({**schema.settings, "min_bytes_for_full_part_storage": 0}),
        [key.type for key in keys.primary],
        handle.ids,
        handle.clock,
    )
    partition = Partition(cover.info.partition_id, data)
    writer = PartWriter(target, PartSpec(8192, partition, level=cover.info.level, part_id=cover.token))
    try:
        for column in schema.stored:
            writer.write_column(column.name, chain())
        writer.finish()
    except BaseException:
        # The directory follows from the name: another publisher may just have made, and shown, the same part.
        writer.abort(delete=False)
        raise
