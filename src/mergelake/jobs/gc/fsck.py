"""Checks the consistency of a table, and can repair what is safe to repair.

==============  ==========================================================================================
the log         dense, undamaged, valid, and consistent with the checkpoints (`log.reading.verify`)
the part set    parts of a partition share no block and are above its floor; ids are unique; the parts
                within a Live volatile part tile its blocks, and its sources exist; counts, extents and
                versions are possible (`fsck_numbers`)
objects         every object that a part refers to exists and has its size
names           every published name has files and is right, and every active part is published
orphans         unreferenced objects: no damage, `gc` deletes them eventually
==============  ==========================================================================================

Sizes come from listings, so only the log is read: `check` verifies the bytes. It takes some hundred bytes of memory per
part (`object_sizes`), and one checkpoint. `repair` rewrites checkpoints and the hint, removes names without files, and
publishes again. It never deletes an object of a part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise

from mergelake.core.base.errors import MergelakeError, NotFoundError
from mergelake.core.model.names import PartInfo
from mergelake.jobs.gc.fsck_numbers import absurd_part, absurd_state, look_at_files
from mergelake.jobs.gc.object_sizes import ObjectSizes
from mergelake.jobs.gc.plan import unused
from mergelake.jobs.publish.plan import brought, empty_info, name_over, over_all_before, part_of, projection_of, shows
from mergelake.jobs.publish.publish import agreed, publish
from mergelake.log.commit.commit import Log
from mergelake.log.model.retention import foreign, reachable
from mergelake.log.model.state import State
from mergelake.log.model.volatile import leaves, unfinished
from mergelake.log.reading.verify import LogReport, Progress
from mergelake.log.storage.catalog import CatalogState
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.listing import all_but_log, pages

_GC = "mergelake gc deletes it in its time"
_RESTORE = "Restore it from a copy of the bucket, or drop the partition"
_BUG = "Tell the authors of mergelake, with the table's log"
_NAME = "--repair mends it"


@dataclass(frozen=True, slots=True)
class Finding:
    """An inconsistency."""

    kind: str
    """`log`, `parts`, `object`, `name` or `orphan`."""
    where: str
    """A part, or a key below the table's directory."""
    what: str
    way_out: str
    harmless: bool = False
    """Whether it has no effect on readers."""


@dataclass(slots=True)
class FsckReport:
    """The result of checking a table."""

    version: int
    entries: int = 0
    parts: int = 0
    objects: int = 0
    findings: list[Finding] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    """The repairs that were done; the findings are those before."""

    @property
    def clean(self) -> bool:
        """Whether all findings are harmless."""
        return all(finding.harmless for finding in self.findings)


def fsck(handle: TableHandle, *, repair: bool = False, on_progress: Progress | None = None) -> FsckReport:
    """Check a table, and repair what is safe to repair if `repair`. Writers may go on meanwhile.

    One LIST per thousand objects, one GET for each log entry, checkpoint and published name.
    """
    verified = handle.log.verify(on_progress)
    state = handle.log.state
    report = FsckReport(state.version, verified.entries, state.part_count)
    report.findings += _log_findings(verified)
    report.findings += part_set(state)
    report.findings += [Finding("parts", "", text, _BUG) for text in absurd_state(state)]
    sizes = _listing(handle, state)
    names = {name.partition("/")[0] for name in sizes.names("__meta")}
    shown = _names(handle, names)
    report.objects = len(sizes)
    # What was collected meanwhile is not missing, and what was committed meanwhile is no orphan.
    newest = handle.refresh()
    report.findings += [f for f in parts_at_rest(state, sizes) if f.kind == "parts" or _part(f.where, newest)]
    # One listing may be truncated, or older than files that a publisher has written since, while their name was read
    # later. So a bad name is listed twice and read twice with the same result before it is reported or removed.
    bad_tokens = {finding.where for finding in published(newest, shown, sizes) if not finding.harmless}
    for token in bad_tokens:
        listed = handle.store.list(f"{handle.directory}/{token}")
        sizes.add((meta.key[len(handle.directory) + 1 :], meta.size) for meta in listed)
    shown = {token: name for token, name in shown.items() if token not in bad_tokens} | _names(
        handle, bad_tokens, sure=True
    )
    report.findings += published(newest, shown, sizes)
    report.findings += orphans(sizes, reachable(newest) | names)
    if repair:
        report.repaired += handle.log.repair_checkpoints(verified)
        report.repaired += _mend_names(handle, newest, report.findings)
    return report


def unopened(log: Log[State], problem: Exception, on_progress: Progress | None = None) -> FsckReport:
    """The report on a table that cannot be opened or checked: the problems of its log, or else `problem`."""
    report = FsckReport(0)
    try:
        verified = log.verify(on_progress)
        report.entries = verified.entries
        report.findings += [Finding("log", p.place, p.what, p.way_out) for p in verified.problems]
    except Exception as cause:  # noqa: BLE001  a damaged log must not end the check of other tables
        report.findings.append(Finding("log", "", f"it cannot be verified: {cause}", _way_out(cause)))
    if not report.findings:
        report.findings.append(Finding("log", "", str(problem), _way_out(problem)))
    return report


def _way_out(problem: Exception) -> str:
    """What to do about a table that cannot be opened. One of a newer release is sound, and must not be dropped."""
    if isinstance(problem, MergelakeError) and problem.name == "UNKNOWN_FORMAT_VERSION":
        return problem.hint or _RESTORE
    return "DROP TABLE takes its name away" if isinstance(problem, NotFoundError) else _RESTORE


def fsck_names(log: Log[CatalogState], on_progress: Progress | None = None) -> FsckReport:
    """Check the log of the catalog."""
    verified = log.verify(on_progress)
    return FsckReport(log.state.version, verified.entries, findings=_log_findings(verified))


def _log_findings(verified: LogReport) -> list[Finding]:
    return [Finding("log", p.place, p.what, p.way_out, harmless=p.kind == "hint") for p in verified.problems]


def part_set(state: State) -> Iterator[Finding]:
    """Violations of the invariants of a state."""
    seen: set[str] = set()
    for partition_id, parts in sorted(state.partitions.items()):
        floor = state.floor_of(partition_id)
        for part in parts:
            if part.manifest.id in seen:
                yield Finding("parts", part.name, f"the id {part.manifest.id} stands twice", _BUG)
            if part.info.min_block <= floor:
                yield Finding("parts", part.name, f"blocks up to {floor} have been dropped", _BUG)
            seen.add(part.manifest.id)
        for left, right in pairwise(parts):
            if right.info.min_block <= left.info.max_block:
                yield Finding("parts", right.name, f"it shares blocks with {left.name}", _BUG)
        live = state.volatile.get(partition_id, ())
        ids = {part.manifest.id for part in parts} | {volatile.id for volatile in live}
        for volatile in live:
            inner = leaves(parts, volatile.info)
            ends = (inner[0].info.min_block, inner[-1].info.max_block) if inner else None
            if ends != (volatile.info.min_block, volatile.info.max_block):
                yield Finding("parts", volatile.name, "the active parts do not tile this volatile part", _BUG)
            for source, info in volatile.sources:  # a published source is the active part of its blocks
                if source not in ids and len(leaves(parts, info)) != 1:
                    yield Finding("parts", volatile.name, f"its source {info} is gone", _BUG)


def parts_at_rest(state: State, sizes: ObjectSizes) -> Iterator[Finding]:
    """Impossible metadata of active and detached parts, and objects that are missing or too short.

    `sizes` has the keys of extents: relative to the table, or to the warehouse's root with a leading `/`.
    """
    active = ((part.info, part.manifest) for part in state.parts())
    for info, manifest in chain(active, ((part.info, part.manifest) for part in state.detached)):
        name = str(info)
        bad_files, ends = look_at_files(manifest)
        for text in (*absurd_part(manifest, state), *bad_files):
            yield Finding("parts", name, text, _RESTORE)
        for key, end in ends.items():
            size = sizes.get(key)
            if size is None:
                yield Finding("object", name, f"{key} is missing", _RESTORE)
            elif size < end or (size > end and key.startswith(f"{manifest.id}/") and manifest.storage == "full"):
                yield Finding("object", name, f"{key} has {size} bytes instead of {end}", _RESTORE)


def published(state: State, shown: Mapping[str, str], sizes: ObjectSizes) -> Iterator[Finding]:
    """Published names that do not match the parts: `shown` are the names by token (a directory)."""
    directories = sizes.directories
    mends = _NAME if not unfinished(state) else f"{_NAME} once all mutations are applied"
    named = {part_of(token) for token in shown}
    # Whether a retired part had a name over all blocks before, the log forgets when parts are dropped after it.
    retired = state.retired.find(named).items()
    infos: dict[str, tuple[PartInfo, ...]] = {
        i: (part.info, over_all_before(part.info, brought(part))) for i, part in retired
    }
    infos |= {
        part.manifest.id: (name_over(state, part.info, part.added),)
        for part in state.parts()
        if part.manifest.id in named
    }
    for token, name in sorted(shown.items()):
        empty = empty_info(token)
        wanted = infos.get(part_of(token), () if empty is None else (empty,))
        if token not in directories:
            yield Finding("name", token, f"{name} is shown to ClickHouse, and has no files", mends)
            continue
        whole, _, inside = name.partition("/")
        info = PartInfo.try_parse(whole)
        right = info is not None and (not wanted or any(shows(info, each) for each in wanted))
        if not right or inside != projection_of(token):
            instead = f" instead of {wanted[0]}" if wanted else ""
            yield Finding("name", token, f"ClickHouse is shown '{name}'{instead}", mends)
    if shown:
        for part in state.parts():
            if part.manifest.id not in named:
                text = f"{part.name} is not shown to ClickHouse yet"
                yield Finding("name", part.manifest.id, text, "mergelake publish shows it", harmless=True)


def orphans(sizes: ObjectSizes, keep: Collection[str]) -> Iterator[Finding]:
    """Unreferenced directories of parts."""
    for orphan in unused(pages(sizes.own()), [keep], {}):
        text = f"{len(orphan.files)} objects, {orphan.bytes} bytes: {orphan.why}"
        yield Finding("orphan", orphan.directory, text, _GC, harmless=True)


def _listing(handle: TableHandle, state: State) -> ObjectSizes:
    """Objects of the table, without its log, and those of other tables that it refers to."""
    sizes = ObjectSizes()
    cut = len(handle.directory) + 1
    for page in all_but_log(handle):
        sizes.add((meta.key[cut:], meta.size) for meta in page)
    for table, directory in foreign(state):
        sizes.add((f"/{meta.key}", meta.size) for meta in handle.store.list(f"{table}/{directory}"))
    return sizes


def _names(handle: TableHandle, tokens: Collection[str], *, sure: bool = False) -> dict[str, str]:
    """Token -> its published name. `sure`: read until two reads agree."""
    names = {}
    for token in sorted(tokens):
        try:
            key = f"{handle.directory}/__meta/{token}/prefix.path"
            text = agreed(handle.store, key) if sure else handle.store.get(key)
        except NotFoundError:
            continue  # removed since the listing
        names[token] = text.decode(errors="replace").rstrip("/")
    return names


def _part(name: str, state: State) -> bool:
    return state.find(name) is not None or any(str(part.info) == name for part in state.detached)


def _mend_names(handle: TableHandle, state: State, findings: list[Finding]) -> list[str]:
    """Remove wrong names, then publish, unless objects of active parts are missing.

    Nothing is done while some part lacks a mutation: such a version is not published, and rows would be missing.
    """
    if unfinished(state):
        return []
    bad_tokens = [f.where for f in findings if f.kind == "name" and not f.harmless]
    handle.store.delete([f"{handle.directory}/__meta/{token}/prefix.path" for token in bad_tokens])
    done = [f"took the name of {token} away" for token in bad_tokens]
    if any(finding.kind == "name" for finding in findings):
        broken = {part.name for part in state.parts()} & {f.where for f in findings if f.kind == "object"}
        shown = publish(handle) if not broken else None
        done += [f"showed {name} to ClickHouse" for name in (shown.added if shown else ())]
    return done
