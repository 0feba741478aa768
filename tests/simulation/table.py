"""The observer of one table: it sees every change of the bucket at once, and without faults.

Each new log entry is judged and folded by the real pure code and executed by the model; then the invariants are
checked. Each checkpoint is compared with the state that it claims to be, each deletion with what is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mergelake.core.base.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from mergelake.core.model.manifest import PartManifest
from mergelake.jobs.gc.plan import is_gone
from mergelake.log.commit.commit import Log
from mergelake.log.commit.group import Committed
from mergelake.log.model import conflict, fold
from mergelake.log.model.conflict import Reject
from mergelake.log.model.operations import AddParts, DropParts, DropRange, DropTable, Entry, LogOp, Publish, RenewLease
from mergelake.log.model.retention import reachable
from mergelake.log.model.state import State
from mergelake.log.reading.transactions import Record, decode_record, record_key
from mergelake.log.storage import checkpoint
from mergelake.log.storage.encoding import decode_entry
from mergelake.log.storage.segments import Segments
from mergelake.store.interface.protocol import Buffer
from mergelake.store.objects.memory import MemoryStore
from tests.simulation.bucket import Bucket
from tests.simulation.invariants import after_entry
from tests.simulation.kernel import EPOCH_MS
from tests.simulation.model import Model, RowKind
from tests.simulation.periods import Periods
from tests.simulation.shown import Shown
from tests.simulation.tiny import Bodies, Row, Rows, decode, keys_of, manifest_of, places_of

_TOLD = ("rows", "marks", "bytes_on_disk", "columns")


class Peek(MemoryStore):
    """The objects of a bucket as they lie, without faults and uncounted."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__()
        self._bucket = bucket

    def get(self, key: str) -> bytes:
        if key not in self._bucket.objects:
            raise NotFoundError(key)
        return self._bucket.objects[key][0]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[start : start + length]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        return [self.get_range(key, start, length) for start, length in ranges]


def _segments_of(data: bytes) -> frozenset[str]:
    layout = checkpoint.decode_root(data).layout
    return frozenset((*layout.members, *(run.name for run in layout.run_refs)))


class Table:
    """What one table is in truth."""

    def __init__(
        self,
        bucket: Bucket,
        directory: str,
        bodies: Bodies,
        tables: Mapping[str, Table],
        kind: RowKind,
        **windows: int,
    ) -> None:
        self.bucket = bucket
        self.directory = directory
        self.bodies = bodies
        """Key of the bucket -> rows that were written there: what the object must hold as long as it is there."""
        self.tables = tables
        """All tables, by directory."""
        self.trace = bucket.kernel.trace
        self._named: dict[str, tuple[bytes, frozenset[str]]] = {}
        """Key of a checkpoint -> its bytes, and the segments that it names."""
        self.windows = windows
        self.kind = kind
        self.names: dict[str, str] = {}
        self.published: set[str] = set()
        self.deleted = 0
        self.landed: Counter[str] = Counter()
        """Operations in the log, by kind."""
        self.former: list[dict[int, State]] = []
        """The histories of tables in this directory that were removed whole."""
        self.shown = Shown(self)
        self._begin()
        bucket.watchers.append(self.on_change)

    def _begin(self) -> None:
        """An empty log."""
        self.model = Model(self._content, **self.windows, kind=self.kind)
        self.state = State()
        self.history: dict[int, State] = {0: self.state}
        self.views: dict[int, dict[str, Rows]] = {0: {}}
        """Version -> partition -> the rows that a reader must see there."""
        self.physical: dict[int, dict[str, Rows]] = {0: {}}
        """The same without FINAL."""
        self.entries: dict[int, Entry] = {}
        self.prepared: Entry | None = None
        """The last entry, if it is of a transaction that is not decided."""
        self.attempts: set[str] = set()
        """Of all members of the log."""
        self.left: dict[str, int] = {}
        """Attempts of members in the intake, now or before, and the positions that they were left for."""
        self.emptied: set[int] = set()
        """Versions of checkpoints that are empty objects."""
        self.spans: dict[str, dict[str, tuple[int, int | None]]] = {}
        self.partition_of: dict[str, str] = {}
        """Key -> part id -> the versions that refer to it: from, to (not including; None: the newest still does)."""
        self.periods = Periods(self)

    def _content(self, part: PartManifest) -> Rows:
        rows: list[Row] = []
        for key, offset, length in places_of(self.directory, part):
            if (key, offset) not in self.bodies:  # copied from a disk
                assert key in self.bucket.objects, f"part {part.id} was committed without object {key}"
                held = decode(self.bucket.objects[key][0][offset : offset + length])
                told = manifest_of(part.id, part.partition_id, held, part.base_version, key.partition("/")[2], offset)
                same = [getattr(part, name) == getattr(told, name) for name in _TOLD]
                same.append(part.file_table() == told.file_table())
                assert all(same), f"part {part.id} is not what the log says of it"
                self.bodies[key, offset] = held
            rows += self.bodies[key, offset]
        return tuple(rows)

    def on_change(self, key: str, data: bytes | None) -> None:
        if data is None:
            self.on_delete(key)
        if not key.startswith(f"{self.directory}/"):
            return
        if not key.startswith(f"{self.directory}/_log/"):
            self.shown.on_change(key, data)
            return
        name = key[len(self.directory) + len("/_log/") :]
        if name.endswith(".segment"):
            if data is None:
                self._still_readable(f"segment {name[12:]} was deleted")
        elif name.startswith("checkpoints/"):
            self.on_checkpoint(int(name[12:32]), data)
        elif name.startswith("intake/"):
            self.left.setdefault(name[28:60], int(name[7:27]))
        elif name.startswith("tags/") and data is not None:
            version = int(name[5:25])
            self._holds(f"tag {version}", version, data)
        elif name.endswith(".json") and name[:20].isdigit():
            if data is None:
                self._still_readable(f"entry {int(name[:20])} was deleted")
            else:
                self.on_entry(int(name[:20]), data)

    def was_dropped(self, since: int) -> bool:
        """Whether it was, at some version from this one on: it may have come back."""
        return any(self.history[v].dropped for v in range(since, self.state.version + 1) if v in self.history)

    def catch_up(self) -> None:
        """Take in what the log holds already."""
        while found := self.bucket.objects.get(f"{self.directory}/_log/{self.state.version + 1:020d}.json"):
            self.on_entry(self.state.version + 1, found[0])
            if self.prepared is not None:
                break

    def on_entry(self, version: int, data: bytes) -> None:
        if version == 1 and self.state.dropped and isinstance(decode_entry(data).ops[-1], DropTable):
            # All of a dropped table was removed; a collector of what it held takes its first position, to be sure.
            self.former.append(self.history)
            self._begin()
        if version <= self.state.version:
            assert version not in self.entries or decode_entry(data).version == version
            return  # a late request for a position that was collected: whoever believes in it will be found out
        assert self.prepared is None, f"entry {version} follows one that is not decided"
        assert version == self.state.version + 1, f"entry {version} leaves a gap after {self.state.version}"
        entry = decode_entry(data)
        if (prepare := entry.prepare) is not None:
            self.prepared = entry
            record = self.bucket.objects.get(record_key(prepare.transaction))
            if record is not None:
                self.on_record(prepare.transaction, decode_record(record[0]))
            return
        self._take(entry)

    def on_record(self, transaction: str, record: Record) -> None:
        """A transaction is decided: its entry, if it is the last one, is there from now on, or is nothing."""
        prepared = self.prepared
        if prepared is not None and prepared.prepare is not None and prepared.prepare.transaction == transaction:
            self.prepared = None
            self._take(prepared.decided(record.seen_from(self.directory, prepared.version)))

    def _take(self, entry: Entry) -> None:
        """What an entry says is true from now on."""
        version = entry.version
        for member in entry.parties:
            assert member.attempt not in self.attempts, f"entry {version}: an attempt of {member.author} landed twice"
            meant = self.left.get(member.attempt, version)
            assert meant == version, f"entry {version} has a member that was left for {meant}"
            self.attempts.add(member.attempt)
        self.landed["Member"] += len(entry.parties) - 1
        self.landed["given up"] += sum(not m.ops and m.attempt != entry.attempt for m in entry.members)
        before = self.state
        self.trace.add(f"  ({self.directory} {version}: {entry.author}: {' '.join(map(_brief, entry.ops))})")
        after = conflict.step(before, entry)
        assert not isinstance(after, Reject), f"entry {version} of {entry.author} is not valid: {after}"
        assert after == fold.fold(before, [entry]), f"entry {version}: checking and folding do not agree"
        self.state = self.history[version] = after
        self.entries[version] = entry
        if entry.prepare is not None:
            self.landed["committed" if entry.effective else "aborted"] += 1
            entry = replace(entry, ops=entry.effective)
        self.landed.update(_kind(op) for op in entry.ops)
        self._refer(before, after)
        self.objects_exist(entry)
        self.model.execute(entry)
        self.views[version], self.physical[version] = self.model.views, self.model.physical
        after_entry(self, before, entry, after)
        landed_ms = self.bucket.objects[f"{self.directory}/_log/{version:020d}.json"][1]
        self.periods.on_entry(before, entry, after, landed_ms)
        if len(after.retired) < len(before.retired) or len(after.detached) < len(before.detached):
            self.remembers_what_is_kept(after)

    def remembers_what_is_kept(self, state: State) -> None:
        """5: of every kept version the state still tells where its files lie; what it does not tell may be deleted."""
        kept, live = sorted(self.kept_by(state)), reachable(state)
        for key, spans in self.spans.items():
            table, directory, _ = key.split("/", 2)
            name = directory if table == self.directory else f"/{table}/{directory}"
            for first, end in spans.values():
                at = bisect_left(kept, first)
                needed = at < len(kept) and (end is None or kept[at] < end)
                assert not needed or name in live, f"version {kept[at]} needs {key}, and nothing remembers it"

    def _refer(self, before: State, after: State) -> None:
        old, new = _manifests(before), _manifests(after)
        for part_id in old.keys() - new.keys():
            for key in keys_of(self.directory, old[part_id]):
                self.spans[key][part_id] = (self.spans[key][part_id][0], after.version)
        for part_id in new.keys() - old.keys():
            self.partition_of[part_id] = new[part_id].partition_id
            for key in keys_of(self.directory, new[part_id]):
                self.spans.setdefault(key, {})[part_id] = (after.version, None)

    def objects_exist(self, entry: Entry) -> None:
        """5: what an entry brings is there."""
        for op in entry.ops:
            parts = op.parts if isinstance(op, AddParts) else (op.part,) if isinstance(op, Publish) else ()
            for part in parts:
                for key in keys_of(self.directory, part):
                    assert key in self.bucket.objects, f"{entry.author} committed part {part.id} without object {key}"

    def readable(self) -> set[int]:
        """The versions that anybody may read."""
        if self.state.dropped:
            return _way_back(self.state)
        return {*range(max(self.state.history, 1), self.state.version + 1), *self.state.whole_tags.values()}

    def kept(self) -> set[int]:
        """Those, and the ones whose state some node still holds: all whose objects must stay."""
        return self.kept_by(self.state)

    def kept_by(self, state: State) -> set[int]:
        if state.dropped:
            return _way_back(state)
        leased = {lease.version for lease in state.leases.values()}
        return {*range(max(state.history, 1), state.version + 1), *state.whole_tags.values(), *leased}

    def time_of(self, version: int) -> int:
        """From when on a version counts for reads as of a time: with a transaction, from when on all its tables do."""
        entry = self.entries[version]
        prepare = entry.prepare
        decided_ms = prepare.decision.timestamp_ms if prepare is not None and prepare.decision is not None else 0
        return max(entry.timestamp_ms, decided_ms)

    def on_delete(self, key: str) -> None:
        """5: nothing is deleted that a kept version refers to."""
        self.deleted += 1
        if key not in self.spans:
            return
        self.periods.on_delete(key, EPOCH_MS + round(self.bucket.kernel.now_s * 1000))
        kept = self.kept()
        for part_id, (first, end) in self.spans[key].items():
            needed = [version for version in kept if first <= version and (end is None or version < end)]
            assert not needed, f"{key} was deleted, but version {needed[0]} needs it for part {part_id}"
            frozen = [] if self.state.dropped else self.state.tagged_partitions.items()
            for tag, partition_ids in frozen:
                shown = first <= self.state.tags[tag] and (end is None or self.state.tags[tag] < end)
                assert not shown or self.partition_of[part_id] not in partition_ids, (
                    f"{key} was deleted, {tag} needs it"
                )
        for part in self.state.detached:
            assert key not in keys_of(self.directory, part.manifest), f"{key} was deleted, but it is detached"
        directory = key.removeprefix(f"{self.directory}/").split("/")[0]
        held = [holder for holder, directories in self.state.holds.items() if directory in directories]
        assert not held, f"{key} was deleted, but {held[0]} refers to it"

    def on_checkpoint(self, version: int, data: bytes | None) -> None:
        """4: a checkpoint is the state at its version, byte for byte. One that was emptied stays so while it is there.

        Entries behind that one may be gone: whom a late hint leads there would take its version for the newest.
        """
        if data:
            assert version not in self.emptied, f"checkpoint {version} was emptied, and is there again"
        elif data is None:
            self.emptied.discard(version)
        else:
            self.emptied.add(version)
        if not data:
            self._still_readable(f"checkpoint {version} was deleted")
            return
        if self.sound(f"{self.directory}/_log/checkpoints/{version:020d}.arrow"):
            self._holds(f"checkpoint {version}", version, data)

    def sound(self, key: str) -> bool:
        """Whether an object holds what was sent."""
        return key not in self.bucket.damaged

    def _holds(self, what: str, version: int, data: bytes) -> None:
        lives = [self.history, *self.former]
        assert any(version in life for life in lives), f"{what} is of a version that does not exist"
        segments = Segments(
            Peek(self.bucket),
            f"{self.directory}/_log",
            threads=1,
            newest=lambda known: (known, None, frozenset()),
            elsewhere=lambda *_: iter(()),
            without=lambda *_: None,
        )
        try:
            found = checkpoint.decode_checkpoint(data, what, segments)
            checkpoint.verify_parts(found, what)
        except (CorruptDataError, NotFoundError):
            keys = [segments.key(name) for name in _segments_of(data)]
            damaged = not all(map(self.sound, keys))
            late = version < self.state.history  # what it names was swept: nobody begins there
            assert damaged or late, f"{what} names segments that are not there"
            return
        same = any(life.get(version) == found for life in lives)
        assert same or self._being_removed(), f"{what} holds another state"

    def _still_readable(self, why: str) -> None:
        """Each kept version can be made from a checkpoint and the entries after it, or was written down as tagged."""
        prefix = f"{self.directory}/_log"
        for version in self.readable():
            at = version
            if self.bucket.objects.get(f"{prefix}/tags/{version:020d}.arrow"):
                continue
            while at > 0 and not self.stands(f"{prefix}/checkpoints/{at:020d}.arrow"):
                assert f"{prefix}/{at:020d}.json" in self.bucket.objects, (
                    f"{why}: version {version} is kept, {at} is gone"
                )
                at -= 1

    def stands(self, key: str) -> bool:
        """Whether a checkpoint is there, and what it names, and nothing of it is damaged."""
        data = self.bucket.objects.get(key, (b"",))[0]
        if not data or not self.sound(key):
            return False
        if self._named.get(key, (b"",))[0] is not data:
            self._named[key] = data, _segments_of(data)
        keys = [f"{self.directory}/_log/checkpoints/{name}" for name in self._named[key][1]]
        return all(key in self.bucket.objects and self.sound(key) for key in keys)

    def compare(self, state: State, least: int, *, by_hash: bool = False) -> None:
        """4, 8: what a process believes is what was true at that version, and it does not go back."""
        if self.state.dropped:
            return  # all of it may have been removed, and its first position taken, so that it never begins again
        assert state.version >= least, f"a process went back from version {least} to {state.version}"
        truth = self.history.get(state.version)
        assert truth is not None, f"a process believes in version {state.version}, which does not exist"
        same = checkpoint.state_hash(state) == checkpoint.state_hash(truth) if by_hash else state == truth
        assert same, f"a process believes in another version {state.version}"

    def watch(self, log: Log[State]) -> None:
        """7: whatever a commit tells its caller is true."""
        real, unsure = log.commit, list[bool]()

        def commit(build: Callable[[State], Sequence[LogOp]], **options: Callable[[], bool]) -> Committed[State]:
            said: list[LogOp] = []

            def asked(state: State) -> Sequence[LogOp]:
                said[:] = build(state)
                return tuple(said)

            since = self.state.version
            try:
                committed = real(asked, **options)
            except UnavailableError:
                unsure.append(True)  # what was said may land late, also while it is said again
                raise
            except (ConflictError, InvalidInputError):
                if said and isinstance(said[0], AddParts) and not unsure:
                    assert not self.landings(log, since, said[0]), "a commit was refused, and is in the log"
                raise
            if committed.entry is not None:
                self.acknowledge(committed, tuple(said))
                if isinstance(said[0], (AddParts, RenewLease)) and not unsure and not self.former:
                    assert self.landings(log, since, said[0]) == 1, "a commit is in the log more than once"
            return committed

        log.commit = commit  # type: ignore[method-assign]

    def _being_removed(self) -> bool:
        """Whether all of the table may go: two who remove it may both take a position, which says the same."""
        return is_gone(self.state)

    def landings(self, log: Log[State], since: int, op: LogOp) -> int:
        """How often an operation of a process stands in the log behind a version."""
        if self.former:
            return 0
        count = 0
        for version in range(since + 1, self.state.version + 1):
            entry, at = self.entries[version], 0
            for member in entry.parties:
                own = entry.ops[at : at + member.ops] if member.attempt.startswith(log._writer) else ()
                count, at = count + own.count(op), at + member.ops
        return count

    def acknowledge(self, committed: Committed[State], said: tuple[LogOp, ...]) -> None:
        """7: what a writer was told to be stored is, with its operations, and these led to the state that it got."""
        entry = committed.entry
        if self.former or entry is None or self._being_removed():
            return  # all of the table was removed since
        there = self.entries.get(entry.version)
        assert there is not None, f"entry {entry.version} was acknowledged, and is not in the log"
        assert there.attempt == entry.attempt, f"entry {entry.version} was acknowledged, and is another's"
        ends = range(len(said), len(there.ops) + 1)
        end = next((end for end in ends if there.ops[end - len(said) : end] == said), None)
        assert end is not None, f"entry {entry.version} was acknowledged, and does not say what was to be committed"
        before = self.history.get(entry.version - 1)
        if before is not None and there.members and (there.ops.count(said[0]) == 1):
            state = fold.fold(before, [replace(there, ops=there.ops[:end])])
            assert committed.state == state, f"entry {entry.version}: the state is not the one after what was committed"

    def finish(self) -> None:
        """At the end, in full: every kept version can be read and its objects exist and hold what was written."""
        self._still_readable("at the end")
        kept = self.kept()
        for key, spans in self.spans.items():
            for first, end in spans.values():
                if any(first <= version and (end is None or version < end) for version in kept):
                    assert key in self.bucket.objects, f"{key} is missing"


def _way_back(state: State) -> set[int]:
    """Of a dropped table the versions before the drop are kept as long as history shows one: the drop may be undone."""
    return set(range(max(state.history, 1), state.dropped_version)) if state.history < state.dropped_version else set()


def _manifests(state: State) -> dict[str, PartManifest]:
    return {part.manifest.id: part.manifest for held in state.partitions.values() for part in held}


def _kind(op: object) -> str:
    return f"{type(op).__name__} {op.kind}" if isinstance(op, (Publish, DropRange, DropParts)) else type(op).__name__


def _brief(op: object) -> str:
    """An operation in a few words, for traces."""
    match op:
        case AddParts(parts, token):
            return f"AddParts({', '.join(f'{p.partition_id}:{p.id[:6]}' for p in parts)}{' ' + token if token else ''})"
        case Publish(part, replaced, kind, volatile):
            new, old = f"{part.partition_id}:{part.id[:6]}", " ".join(part_id[:6] for part_id in replaced)
            return f"Publish({kind} {new} for {old}{' ' + volatile[:6] if volatile else ''})"
    text = repr(op)
    return text if len(text) < 200 else f"{type(op).__name__}(…)"
