"""Publishes a table to ClickHouse: keeps its directory up to date as a `plain_rewritable` disk.

A part exists for ClickHouse once `__meta/<token>/prefix.path` holds its name; the files lie in `<token>/`, and a part
in `full` storage lies there already. So publishing is mostly one tiny PUT per part. Parts that are packed (or made of
extents) are copied to plain files first; their own objects stay, as mergelake reads them.

It is a one-way view of the log: list the tokens, read the log, plan (`plan.plan_publish`, of the partitions that may
have changed: `shown`), then

1. write the files and names of new active parts, merged ones before the names they cover are removed, and those that
   take the place of a dropped partition first;
2. write the files and names of empty parts over dropped blocks;
3. remove names whose cover has been visible for the grace period. Objects are never deleted here (`gc` deletes those of
   parts without a name).

The listing comes first: its names were written at versions not newer than the state that is read after it. Otherwise,
parts that another publisher has named in between would look like dropped ones, and be covered.

Every step may be repeated, and a crash is harmless at any step. Two concurrent publishers do the same work twice.

ClickHouse knows the parts, and none of our pending mutations. So a version at which some part lacks one is not shown:
such a round changes nothing and says so (`PublishReport.pending`); the version before stays visible until the mutations
are written into parts. Then the files of all new parts are laid out first and their names put in one go, as a reader
that refreshes in between sees some parts mutated and others not; likewise when a dropped partition has parts again.

ClickHouse attaches the directory read-only by the statement of `definition.create_statement`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from mergelake.core.base.durations import check_seconds
from mergelake.core.base.errors import CorruptDataError, NotFoundError
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.engines.order.keys import table_keys
from mergelake.format.files.partition import Partition
from mergelake.jobs.publish.plan import (
    GRACE_SECONDS,
    EmptyPart,
    empty_info,
    name_over,
    projection_token,
    shown_token,
    uncovered,
)
from mergelake.jobs.publish.served import forget_served, misread_versions, outdated, read_wrongly, serve
from mergelake.jobs.publish.shown import Shown
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.retention import reachable
from mergelake.log.model.volatile import unfinished
from mergelake.log.reading.head_freshness import HEAD_FRESHNESS_S, Instant
from mergelake.parts.read.fetch import fetch_whole
from mergelake.parts.read.layout import layout
from mergelake.parts.read.listing import CHUNK_BYTES, file_chunks, projection_names
from mergelake.parts.write.part_spec import PartSpec, PartTarget
from mergelake.parts.write.writer import PartWriter
from mergelake.store.interface.protocol import Store
from mergelake.store.metering.meter import Pool
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.gc_notes import Notes

_LOOKS_MAX = 8
_FILES_AT_ONCE = 8
_EVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class PublishReport:
    """The result of a round, with ClickHouse's part names."""

    version: int
    """The published version of the table; with `pending`, the last one that this process published, or 0."""
    added: tuple[str, ...]
    """Active parts that became visible."""
    dropped: tuple[str, ...]
    """Empty parts that became visible, over dropped blocks."""
    removed: tuple[str, ...]
    """Names that were removed: their cover has been visible for the grace period."""
    waiting: int
    """Covered names that are still visible."""
    pending: tuple[str, ...] = ()
    """Mutations that some part lacks. While there are any, nothing new is shown."""
    outdated: tuple[str, ...] = ()
    """Parts with columns under names or types of before: they have to be rewritten first, and nothing new is shown."""
    redefined: str = ""
    """Why a server that has attached the table would read it wrongly. Nothing new is shown until it was detached."""

    @property
    def held_back(self) -> bool:
        """Whether the newest version is not shown yet."""
        return bool(self.pending or self.outdated or self.redefined)


def publish(handle: TableHandle, *, grace_seconds: float = GRACE_SECONDS) -> PublishReport:
    """Publish the table's newest version, and remove names that are no longer needed.

    Changes nothing if some part lacks a mutation (`PublishReport.pending`). Costs one LIST, and for each new part one
    PUT if it lies in plain files, else one more PUT per file; if names wait, a PUT and a HEAD to learn the store's
    time.
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
    """Publish after every commit, until `stop()` is true; `on_report` gets the reports of rounds with changes.

    While some part lacks a mutation, the last published version stays visible, and `on_report` gets a report whenever
    there are new ones; a node writes them into parts. A quiet table costs one GET per poll (a log
    in ZooKeeper notifies), and a LIST only while covered names wait for their grace period.
    """
    check_seconds("poll_seconds", poll_seconds)
    check_seconds("grace_seconds", grace_seconds)
    looked, waiting, due_s = 0, 0, 0.0
    pending: tuple[str, ...] = ()
    held_back = ""
    handle.refresh()
    while not stop():
        state, now_s = handle.log.state, handle.clock.monotonic_s()
        if state.version != looked or (waiting and now_s >= due_s):
            report = _round(handle, grace_seconds)
            looked, waiting = max(report.version, state.version), report.waiting
            due_s = now_s + max(grace_seconds / 4, poll_seconds)
            why = f"{report.redefined}{report.outdated}" if report.held_back else ""
            news = set(report.pending) - set(pending) or why != held_back
            changes = report.added or report.dropped or report.removed or news
            pending, held_back = report.pending, why
            if on_report is not None and changes:
                on_report(report)
        if stop():
            return
        handle.log.wait(poll_seconds, poll_seconds)


def unpublish(handle: TableHandle) -> int:
    """Remove all names, so that nothing is visible; returns how many there were. ClickHouse must detach first."""
    keys = [meta.key for meta in handle.store.list(f"{handle.directory}/__meta/")]
    handle.store.delete(keys)
    forget_served(handle)
    return len(keys)


def shown_wrongly(handle: TableHandle) -> str:
    """The published name of a part that servers see and read wrongly by the newest schema; empty if there is none.

    One that the log has replaced since counts, too. One LIST, if the table has ever had such a schema.
    """
    if not misread_versions(handle.log.state):
        return ""
    shown = Shown()
    names_shown(handle, shown)
    active, others = shown.active(), misread_versions(shown.state)
    for name in uncovered(shown.names()):
        part = active.get(name.part_id)
        if not name.empty and (part is None or part.manifest.schema_version in others):
            return str(name.info)
    return ""


def names_shown(handle: TableHandle, shown: Shown) -> None:
    """Update the published names by one LIST, and then the state of the log, which maps them to parts."""
    shown.look(handle, _named_in)


def _round(handle: TableHandle, grace_seconds: float) -> PublishReport:
    with handle.remembering(Shown) as shown:
        return _publish(handle, shown, grace_seconds)


def _publish(handle: TableHandle, shown: Shown, grace_seconds: float) -> PublishReport:
    store, directory = handle.store, handle.directory
    began = Instant.now(handle.clock)
    names_shown(handle, shown)
    state, grace_ms = shown.state, round(grace_seconds * 1000)
    lacked = unfinished(state)
    if lacked:
        return PublishReport(shown.published, (), (), (), 0, tuple(mutation.name for mutation in lacked))
    if shown.served != state.schema_version:
        reason, versions = read_wrongly(handle, state, named=len(shown) > 0)
        if reason:
            return PublishReport(shown.published, (), (), (), 0, redefined=reason)
        if others := outdated(state, state.parts()):
            return PublishReport(shown.published, (), (), (), 0, outdated=others)
        serve(handle, versions)
        shown.served = state.schema_version
    plan = shown.plan(_EVER_MS, 0)
    if others := outdated(state, [shown.active()[part_id] for part_id in plan.add]):
        return PublishReport(shown.published, (), (), (), 0, outdated=others)
    if plan.remove and grace_ms:
        # The age of names is measured by the store's clock, which dated them.
        plan = shown.plan(Notes(store, directory, handle.ids).now_ms(), grace_ms)
    active, named = shown.active(), shown.names()
    if not len(shown):
        store.put(f"{directory}/__root/format_version.txt", b"1")
    adding = {shown_token(active[part_id].manifest): active[part_id] for part_id in plan.add}
    infos = {token: name_over(state, part.info, part.added) for token, part in adding.items()}
    try:
        with Pool(_FILES_AT_ONCE, thread_name_prefix="mergelake-publish") as pool:
            over = {token for token, part in adding.items() if infos[token] != part.info}
            together = bool(over) or any(part.info.mutation for part in adding.values())
            for token, part in adding.items():
                lay_out(store, directory, part.manifest, token, pool)
                _name_projections(store, directory, part.manifest, infos[token])
                if not together:
                    _name(store, directory, token, infos[token])
            if together:
                # Those that take the place of what was dropped come first, as a server takes them in first, too:
                # of a partition it may miss some of the new rows for a moment, and never shows old and new ones.
                for now in (over, infos.keys() - over):
                    named_now = [(token, info) for token, info in infos.items() if token in now]
                    for put in [pool.submit(_name, store, directory, token, info) for token, info in named_now]:
                        put.result()
        for cover in plan.cover:
            _write_empty(handle, state.schema, cover)
            _name(store, directory, cover.token, cover.info)
    finally:
        # After a fraction of the grace period of collection, files of these parts may be deleted.
        if began.age_s(handle.clock) > min(HEAD_FRESHNESS_S, handle.settings.integer("gc_grace_seconds") / 4):
            _take_back(handle, adding, plan.cover)
    removed = plan.remove
    if grace_ms == 0 and (plan.add or plan.cover):
        # Names that were just written may cover old ones.
        names_shown(handle, shown)
        removed, named = shown.plan(_EVER_MS, 0).remove, shown.names()
    for tokens in (removed, shown.projections(frozenset(removed))):
        store.delete([f"{directory}/__meta/{token}/prefix.path" for token in tokens])
    listed = {name.token: name.info for name in named}
    stale = sum(name.part_id not in active and not name.empty for name in named)
    shown.published = state.version
    return PublishReport(
        state.version,
        tuple(str(active[part_id].info) for part_id in plan.add),
        tuple(str(cover.info) for cover in plan.cover),
        tuple(str(listed[token]) for token in removed),
        stale - sum(empty_info(token) is None for token in removed),
    )


def _take_back(handle: TableHandle, added: Mapping[str, ActivePart], covers: Iterable[EmptyPart]) -> None:
    """Remove names of parts that are no longer kept: this process slept, and their files may be gone.

    `added` are parts by their tokens. Of the empty parts in `covers`, the names of those without files are removed:
    others that cover the same were created since.
    """
    store, directory, live = handle.store, handle.directory, reachable(handle.refresh())
    tokens = [token for token, part in added.items() if part.manifest.id not in live]
    tokens += [cover.token for cover in covers if not any(True for _ in store.list(f"{directory}/{cover.token}"))]
    store.delete([f"{directory}/__meta/{name}/prefix.path" for name in tokens])


def lay_out(store: Store, directory: str, manifest: PartManifest, token: str, pool: Pool) -> None:
    """Write the files of a part as plain objects `<token>/<file>`, except those that exist already.

    Those of a projection go into a directory of its own.
    """
    files, prefix = manifest.file_table(), f"{directory}/{token}/"
    missing = [files[name] for name in layout(directory, manifest).elsewhere(prefix)]
    small = [file.name for file in missing if file.size <= CHUNK_BYTES]
    bodies = fetch_whole(store, directory, files, small)

    def place(name: str) -> str:
        projection, inside, inner = name.partition(".proj/")
        return f"{directory}/{projection_token(manifest.id, projection)}/{inner}" if inside else prefix + name

    puts = [pool.submit(store.put, place(n), bytes(body)) for n, body in zip(small, bodies, strict=True)]
    for file in missing:
        if file.size > CHUNK_BYTES:
            store.put_large(place(file.name), map(bytes, file_chunks(store, directory, file)))
    for put in puts:
        put.result()


def _name_projections(store: Store, directory: str, manifest: PartManifest, info: PartInfo) -> None:
    """Name the projections of a part: ClickHouse does not look there before the part itself has its name."""
    for name in projection_names(manifest.file_table()):
        token = projection_token(manifest.id, name)
        store.put(f"{directory}/__meta/{token}/prefix.path", f"{info}/{name}.proj/".encode())


def _name(store: Store, directory: str, token: str, info: PartInfo) -> None:
    store.put(f"{directory}/__meta/{token}/prefix.path", f"{info}/".encode())


def _named_in(store: Store, key: str) -> PartInfo | None:
    """The name in a `prefix.path`, for a part that the log has forgotten; None if it was removed since."""
    try:
        return PartInfo.try_parse(agreed(store, key).decode(errors="replace").rstrip("/"))
    except NotFoundError:
        return None


def agreed(store: Store, key: str) -> bytes:
    """An object without a digest, read until two consecutive reads agree.

    A bit flipped in transit would name other blocks, which would be covered, or taken for a cover.
    Raises CorruptDataError if no two consecutive reads agree.
    """
    data = store.get(key)
    for _ in range(_LOOKS_MAX):
        before, data = data, store.get(key)
        if data == before:
            return data
    raise CorruptDataError("An object reads differently each time", object_key=key)


def _write_empty(handle: TableHandle, schema: TableSchema, cover: EmptyPart) -> None:
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
        # The directory follows from the name: another publisher may have published the same part.
        writer.abort(delete=False)
        raise
