"""Does all that belongs to a table fit together? `fsck` looks, and can mend what is safe to mend.

==============  ==========================================================================================
the log         dense, undamaged, allowed, and what the checkpoints say (`log.verify`)
the part set    parts of a partition share no block and stand above its floor; ids are unique; the parts
                within a Live volatile part tile its blocks, and its sources are there; counts, extents and
                versions are possible ones (`fsck_numbers`)
objects         every object that a part refers to is there and has its size
names           what ClickHouse is shown is there, has its right name, and is all there is
orphans         objects that nothing refers to: no damage, `gc` deletes them in its time
==============  ==========================================================================================

Sizes come from listings, so nothing is read but the log: `check` verifies the bytes. What is held is some hundred bytes
a part (`object_sizes`) and one checkpoint. `repair` writes checkpoints and the hint anew, takes away names of what is
not there, and publishes again. It never deletes an object of a part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise

from mergelake.core.errors import NotFoundError
from mergelake.core.names import PartInfo
from mergelake.gc.fsck_numbers import absurd_part, absurd_state, look_at_files
from mergelake.gc.object_sizes import ObjectSizes
from mergelake.gc.plan import unused
from mergelake.log.catalog import CatalogState
from mergelake.log.commit import Log
from mergelake.log.retention import foreign, reachable
from mergelake.log.state import State
from mergelake.log.verify import Progress
from mergelake.log.volatile import leaves
from mergelake.publish.plan import empty_info, part_of
from mergelake.publish.publish import agreed, publish
from mergelake.table.handle import TableHandle
from mergelake.table.listing import all_but_log, pages

_GC = "mergelake gc deletes it in its time"
_RESTORE = "Restore it from a copy of the bucket, or drop the partition"
_BUG = "Tell the authors of mergelake, with the table's log"
_NAME = "--repair mends it"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not fit."""

    kind: str
    """`log`, `parts`, `object`, `name` or `orphan`."""
    where: str
    """A part, or a key below the table's directory."""
    what: str
    way_out: str
    harmless: bool = False
    """No reader ever notices."""


@dataclass(slots=True)
class FsckReport:
    """What a look at a table found."""

    version: int
    entries: int = 0
    parts: int = 0
    objects: int = 0
    findings: list[Finding] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    """What was done; the findings are those before."""

    @property
    def clean(self) -> bool:
        """Whether nothing was found that a reader could notice."""
        return all(finding.harmless for finding in self.findings)


def fsck(handle: TableHandle, *, repair: bool = False, on_progress: Progress | None = None) -> FsckReport:
    """Look at a table, and mend what can be mended if `repair`. Writers may go on meanwhile.

    One LIST a thousand objects, one GET for each log entry, checkpoint and published name.
    """
    verified = handle.log.verify(on_progress)
    state = handle.log.state
    report = FsckReport(state.version, verified.entries, state.part_count)
    report.findings += [
        Finding("log", p.place, p.what, p.way_out, harmless=p.kind == "hint") for p in verified.problems
    ]
    report.findings += part_set(state)
    report.findings += [Finding("parts", "", told, _BUG) for told in absurd_state(state)]
    sizes = _listing(handle, state)
    names = {name.partition("/")[0] for name in sizes.names("__meta")}
    shown = _names(handle, names)
    report.objects = len(sizes)
    # Collected while we looked is not missing, committed while we looked no orphan.
    newest = handle.refresh()
    report.findings += [f for f in parts_at_rest(state, sizes) if f.kind == "parts" or _part(f.where, newest)]
    # One look may have been at a reply that was cut, or at a directory before a publisher laid its files out and at its
    # name afterwards: what is taken away, or told, was seen twice, and a name was read the same twice.
    wrong = {finding.where for finding in published(newest, shown, sizes) if not finding.harmless}
    for token in wrong:
        listed = handle.store.list(f"{handle.directory}/{token}")
        sizes.add((meta.key[len(handle.directory) + 1 :], meta.size) for meta in listed)
    shown = {token: name for token, name in shown.items() if token not in wrong} | _names(handle, wrong, sure=True)
    report.findings += published(newest, shown, sizes)
    report.findings += orphans(sizes, reachable(newest) | names)
    if repair:
        report.repaired += handle.log.repair_checkpoints(verified)
        report.repaired += _mend_names(handle, newest, report.findings)
    return report


def unopened(log: Log[State], problem: Exception, on_progress: Progress | None = None) -> FsckReport:
    """The report on a table that cannot be opened, or not looked at: what its log says, if it says anything."""
    report = FsckReport(0)
    try:
        verified = log.verify(on_progress)
        report.entries = verified.entries
        report.findings += [Finding("log", p.place, p.what, p.way_out) for p in verified.problems]
    except Exception as cause:  # noqa: BLE001  of the log of this one table; the others have their turn
        report.findings.append(Finding("log", "", f"it cannot be verified: {cause}", _RESTORE))
    if not report.findings:
        way_out = "DROP TABLE takes its name away" if isinstance(problem, NotFoundError) else _RESTORE
        report.findings.append(Finding("log", "", str(problem), way_out))
    return report


def fsck_names(log: Log[CatalogState], on_progress: Progress | None = None) -> FsckReport:
    """The same for the names of databases and tables: their log."""
    verified = log.verify(on_progress)
    report = FsckReport(log.state.version, verified.entries)
    report.findings += [
        Finding("log", p.place, p.what, p.way_out, harmless=p.kind == "hint") for p in verified.problems
    ]
    return report


def part_set(state: State) -> Iterator[Finding]:
    """What must hold in every state, and does not."""
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
        there = {part.manifest.id for part in parts} | {volatile.id for volatile in live}
        for volatile in live:
            inner = leaves(parts, volatile.info)
            ends = (inner[0].info.min_block, inner[-1].info.max_block) if inner else None
            if ends != (volatile.info.min_block, volatile.info.max_block):
                yield Finding("parts", volatile.name, "the active parts do not tile this volatile part", _BUG)
            for source, info in volatile.sources:  # one that was published is the active part of its blocks
                if source not in there and len(leaves(parts, info)) != 1:
                    yield Finding("parts", volatile.name, f"its source {info} is gone", _BUG)


def parts_at_rest(state: State, sizes: ObjectSizes) -> Iterator[Finding]:
    """What the log says of active and detached parts and cannot be, and objects that are missing or too short.

    `sizes` has the keys as extents have them: below the table, or from the warehouse's root with a `/`.
    """
    active = ((part.info, part.manifest) for part in state.parts())
    for info, manifest in chain(active, ((part.info, part.manifest) for part in state.detached)):
        name = str(info)
        wrong, ends = look_at_files(manifest)
        for told in (*absurd_part(manifest, state), *wrong):
            yield Finding("parts", name, told, _RESTORE)
        for key, end in ends.items():
            size = sizes.get(key)
            if size is None:
                yield Finding("object", name, f"{key} is missing", _RESTORE)
            elif size < end or (size > end and key.startswith(f"{manifest.id}/") and manifest.storage == "full"):
                yield Finding("object", name, f"{key} has {size} bytes instead of {end}", _RESTORE)


def published(state: State, shown: Mapping[str, str], sizes: ObjectSizes) -> Iterator[Finding]:
    """What ClickHouse sees against what is there: `shown` are the names by token (a directory)."""
    there = sizes.directories
    named = {part_of(token) for token in shown}
    infos = {part.manifest.id: part.info for part in state.parts() if part.manifest.id in named}
    infos |= {part_id: gone.info for part_id, gone in state.retired.find(named).items()}
    for token, name in sorted(shown.items()):
        wanted = infos.get(part_of(token)) or empty_info(token)
        if token not in there:
            yield Finding("name", token, f"{name} is shown to ClickHouse, and has no files", _NAME)
        elif PartInfo.try_parse(name) is None or (wanted is not None and name != str(wanted)):
            yield Finding("name", token, f"ClickHouse is shown '{name}' instead of {wanted}", _NAME)
    if shown:
        for part in state.parts():
            if part.manifest.id not in named:
                told = f"{part.name} is not shown to ClickHouse yet"
                yield Finding("name", part.manifest.id, told, "mergelake publish shows it", harmless=True)


def orphans(sizes: ObjectSizes, keep: Collection[str]) -> Iterator[Finding]:
    """Directories of parts that nothing refers to."""
    for found in unused(pages(sizes.own()), [keep], {}):
        told = f"{len(found.files)} objects, {found.bytes} bytes: {found.why}"
        yield Finding("orphan", found.directory, told, _GC, harmless=True)


def _listing(handle: TableHandle, state: State) -> ObjectSizes:
    """Objects of the table, but for its log, and of what it has from other tables."""
    sizes = ObjectSizes()
    cut = len(handle.directory) + 1
    for page in all_but_log(handle):
        sizes.add((meta.key[cut:], meta.size) for meta in page)
    for table, directory in foreign(state):
        sizes.add((f"/{meta.key}", meta.size) for meta in handle.store.list(f"{table}/{directory}"))
    return sizes


def _names(handle: TableHandle, tokens: Collection[str], *, sure: bool = False) -> dict[str, str]:
    """Token -> the name that ClickHouse is shown for it."""
    names = {}
    for token in sorted(tokens):
        try:
            key = f"{handle.directory}/__meta/{token}/prefix.path"
            text = agreed(handle.store, key) if sure else handle.store.get(key)
        except NotFoundError:
            continue  # taken away since the listing
        names[token] = text.decode(errors="replace").rstrip("/")
    return names


def _part(name: str, state: State) -> bool:
    return state.find(name) is not None or any(str(part.info) == name for part in state.detached)


def _mend_names(handle: TableHandle, state: State, findings: list[Finding]) -> list[str]:
    """Take names away that are wrong, then show what is there."""
    wrong = [f.where for f in findings if f.kind == "name" and not f.harmless]
    handle.store.delete([f"{handle.directory}/__meta/{token}/prefix.path" for token in wrong])
    done = [f"took the name of {token} away" for token in wrong]
    if any(finding.kind == "name" for finding in findings):
        broken = {part.manifest.id for part in state.parts()} & {f.where for f in findings if f.kind == "object"}
        shown = publish(handle) if not broken else None
        done += [f"showed {name} to ClickHouse" for name in (shown.added if shown else ())]
    return done
