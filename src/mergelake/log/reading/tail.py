"""Reading a log: entries, checkpoints, the newest state.

::

    <prefix>/00000000000000000042.json               one entry, or a batch that begins with it (`batches`)
    <prefix>/checkpoints/00000000000000000064.arrow  a folded state, or its root,
    <prefix>/checkpoints/00000000000000000064-<id>.segment  and the segments that hold most of its parts
    <prefix>/_last_checkpoint                        {"version": 64}: only a hint; a stale one is slower, never wrong
    <prefix>/intake/00000000000000000043-<attempt>.json  what is to stand in entry 43, perhaps (`intake`)

Opening takes the hint, the checkpoint and one probe of the next position: three GETs on a quiet table, and those of the
segments of a large one, concurrently.
Without a usable hint, one LIST shows all of a short log, whose entries are then read concurrently; of a long one the
checkpoints are listed. Without a checkpoint, the log is read from its start.

Old entries are deleted after the checkpoints before them (`truncate`). A removed checkpoint stays as an empty object; a
reader that meets one looks for another. While a checkpoint exists, and for the grace period of collection after it was
removed, all entries after it exist: so what was read in less time than that is the log as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Generic

import cachetools

from mergelake.core.base.errors import CorruptDataError, MergelakeError, NotFoundError, error
from mergelake.core.base.json_load import loads
from mergelake.core.model.manifest import FileTable
from mergelake.log.backends.backend import CollectedError, LogBackend, version_of
from mergelake.log.backends.batches import reach
from mergelake.log.backends.intake import sweep_all
from mergelake.log.model.operations import AddParts, Entry, MarkMutated, MoveLog, Publish
from mergelake.log.model.sequencer import Sequencer
from mergelake.log.model.state import State
from mergelake.log.reading.recent import Recent
from mergelake.log.reading.transactions import Decisions
from mergelake.log.storage.encoding import decode_entry
from mergelake.log.storage.layout import SegmentLayout
from mergelake.log.storage.machine import S, StateMachine
from mergelake.log.storage.segment import is_segment
from mergelake.log.storage.segments import Segments
from mergelake.store.interface.protocol import ObjectMeta, Store

PREFETCH_MAX = 256
"""Positions that are read at once, at most."""

PAGE = 1000
"""Objects in one page of a listing."""

_logger = logging.getLogger("mergelake.log")


class LogReader(Generic[S]):
    """Reads one log: entries from its backend, checkpoints and the hint from the bucket."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        machine: StateMachine[S],
        choose: Callable[[Sequencer], LogBackend],
        threads: int = 1,
    ) -> None:
        self._store = store
        self.prefix = prefix
        self._machine = machine
        self._choose = choose
        self._sequencer = Sequencer()
        self._bucket = self.backend = choose(self._sequencer)
        """The backend of the newest entries, through which older ones are read, too."""
        self.segments = Segments(
            store,
            prefix,
            threads=threads,
            newest=self._newest_layout,
            elsewhere=self._files_elsewhere,
            without=self._state_without,
        )
        """The segments of its checkpoints."""
        self.decisions = Decisions(store, prefix.rpartition("/")[0])
        """What became of the transactions in its entries."""
        self.recent: Recent | None = None
        """Receives every new entry, in a process that takes commits of others."""
        self._files: cachetools.LRUCache[int, dict[str, FileTable]] = cachetools.LRUCache(2)
        self._without: cachetools.LRUCache[tuple[int, frozenset[str]], S] = cachetools.LRUCache(1)

    def backend_of(self, state: S) -> LogBackend:
        """The backend of the entry after `state`; it is `backend` from now on."""
        if state.sequencer != self._sequencer:
            self.backend = self._choose(state.sequencer)
            self._sequencer = state.sequencer
        return self.backend

    @property
    def hint_key(self) -> str:
        """Key of the hint."""
        return f"{self.prefix}/_last_checkpoint"

    def checkpoint_key(self, version: int) -> str:
        """Key of a checkpoint."""
        return f"{self.prefix}/checkpoints/{version:020d}.arrow"

    def sealed_key(self, version: int) -> str:
        """Key of the object of the bucket that holds an entry."""
        return self.backend.sealed_key(version)

    def try_entry(self, version: int) -> Entry | None:
        """The entry at a position; None if nothing has been committed there, or if it has been collected.

        That of a transaction is returned as it was stored, without the decision.
        """
        return self.decode(version, self.backend.read(version))

    def entries(self, first: int, last: int) -> Iterator[Entry]:
        """Entries `first` to `last`, inclusive; CorruptDataError if one, or its transaction's record, is missing."""
        while first <= last:
            versions = range(first, min(first + PREFETCH_MAX, last + 1))
            for data in self.read_many(versions):
                entry = self.decode(first, data)
                if entry is None:
                    raise CorruptDataError("A log entry is missing", object_key=self.backend.key(first))
                complete = self.decisions.complete(entry)
                if complete is None:
                    message = "The record of the transaction of a log entry is missing"
                    raise CorruptDataError(message, object_key=self.backend.key(first))
                yield complete
                first += 1

    def read_many(self, versions: Sequence[int]) -> list[bytes | None]:
        """The bytes of entries, None for those that do not exist or were collected."""
        try:
            return self.backend.read_many(versions)
        except CollectedError:
            return [self.backend.read(version) for version in versions]

    def follow(self, state: S, ahead: int = 1) -> S:
        """The state after all entries that follow `state`; from a newer checkpoint if those have been collected.

        `ahead` entries are read by the first request.
        """
        try:
            return self._chase(state, ahead)
        except CollectedError:
            return self.newest()

    def _chase(self, state: S, ahead: int = 1) -> S:
        """The state after all entries that follow, across moves of the log."""
        while True:
            after = self._follow(state, self.backend_of(state), ahead=ahead)
            if after.sequencer == state.sequencer:
                return after
            state = after

    def _follow(self, state: S, backend: LogBackend, *, across: bool = False, ahead: int = 1) -> S:
        """The state after the entries of a backend, up to a `MoveLog` unless `across`. Reads 1, 1, 2, 4, … at a time.

        It ends before an entry of a transaction that is not decided: what was not committed is not there yet.

        `ahead` entries are read first, if it is known how many there are.
        """
        entries: list[Entry] = []
        ahead, more = min(max(ahead, 1), PREFETCH_MAX), True
        while more:
            start = state.version + len(entries) + 1
            for version, data in enumerate(backend.read_on(start, ahead), start):
                entry = self.decode(version, data)
                entry = None if entry is None else self.decisions.complete(entry)
                more = entry is not None
                if entry is None or data is None:
                    break
                entries.append(entry)
                if self.recent is not None:
                    self.recent.add(entry, data)
                if _moves(entry) and not across:
                    more = False
                    break
            ahead = min(max(len(entries), 1), PREFETCH_MAX)
        return self._folded(state, entries) if entries else state

    def newest(self) -> S:
        """The newest state; the initial one for a log without entries.

        The bucket is read first even if the log is elsewhere: it may have taken over the log.
        """
        if self.recent is not None:
            self.recent.clear()
        hinted = self.hint()
        state = self.checkpoint(hinted) if hinted else None
        if state is not None:
            state = self._follow(state, self._bucket_behind(state), across=True)
        else:
            # There is no usable hint: the log is empty, or young, or was truncated.
            state = self._first(*self._listed())
        if state.sequencer.url:
            return self._chase(state)
        self.backend_of(state)  # this backend knows whether older entries may lie in batches
        return state

    def _first(self, checkpoints: list[tuple[int, int]], last: int) -> S:
        """The newest state, from the newest readable one of the `checkpoints`, or from the beginning of the log."""
        while True:
            state = self._nearest([version for version, size in checkpoints if size])
            state = self._follow(state, self._bucket_behind(state), across=True, ahead=last - state.version + 1)
            if not checkpoints or state.version >= checkpoints[-1][0]:
                return state
            before = checkpoints
            checkpoints, last = self._listed()
            if checkpoints == before:  # otherwise some were emptied meanwhile, as there is a newer one
                key = self.checkpoint_key(checkpoints[-1][0])
                raise CorruptDataError("No checkpoint can be read, and the log has no beginning", object_key=key)

    def _bucket_behind(self, state: S) -> LogBackend:
        """The bucket, to go on from a checkpoint: if the log is elsewhere, the next entry may lie in a batch."""
        return self._choose(Sequencer(since=state.version + 1)) if state.sequencer.url else self._bucket

    def state_at(self, version: int) -> S:
        """The state right after entry `version`, which exists."""
        state = self._nearest([v for v, size in self.checkpoints() if size and v <= version])
        return self._folded(state, list(self.entries(state.version + 1, version)))

    def _folded(self, state: S, entries: Sequence[Entry]) -> S:
        """The state after entries; CorruptDataError, with the key of the first bad entry, if one cannot be applied."""
        try:
            return self._machine.fold(state, entries)
        except Exception:  # noqa: BLE001  reported below, with the entry that caused it
            for entry in entries:
                try:
                    state = self._machine.fold(state, [entry])
                except CorruptDataError as cause:
                    cause.object_key = cause.object_key or self.backend.key(entry.version)
                    raise
                except MergelakeError:  # a partition of the state could not be read
                    raise
                except Exception as cause:
                    message, key = "A log entry says what cannot be", self.backend.key(entry.version)
                    raise CorruptDataError(message, object_key=key, found=str(cause)) from cause
            return state

    def version_at(self, newest: S, timestamp_ms: int) -> int:
        """The last version not after a time; by bisection, as timestamps never decrease."""
        if timestamp_ms >= newest.timestamp_ms:
            return newest.version
        low, high, low_ms = newest.history, newest.version, 0
        while high - low > 1:
            middle = (low + high) // 2
            at_ms = self._time_of(middle, low, low_ms)
            low, high, low_ms = (middle, high, at_ms) if at_ms <= timestamp_ms else (low, middle, low_ms)
        if low == 0:
            raise error("BAD_ARGUMENTS", "The table did not exist at that time")
        first = self.try_entry(low) if low == newest.history else None
        if first is not None and first.timestamp_ms > timestamp_ms:
            way_out = f"Versions from {low} on are kept"
            raise error("BAD_ARGUMENTS", "Versions of that time have been collected", way_out)
        return low

    def _time_of(self, version: int, low: int, low_ms: int) -> int:
        """The time of a version: that of the newest entry up to it with a plausible time, not before that of `low`."""
        for candidate in range(version, low, -1):  # entries within the history have not been collected
            timestamp_ms = next(self.entries(candidate, candidate)).timestamp_ms
            if timestamp_ms >= max(low_ms, 1):
                return timestamp_ms
        return low_ms

    def decode(self, version: int, data: bytes | None) -> Entry | None:
        """An entry from its bytes; None for None."""
        if data is None:
            return None
        key = self.backend.key(version)
        entry = decode_entry(data, key)
        if entry.version != version:
            raise CorruptDataError(
                "A log entry says another position than its key",
                object_key=key,
                expected=str(version),
                found=str(entry.version),
            )
        return entry

    def hint(self) -> int:
        """Version of the checkpoint that the hint names; 0 without a hint, -1 for an unreadable one."""
        try:
            return int(loads(self._store.get(self.hint_key))["version"])
        except NotFoundError:
            return 0
        except (ValueError, KeyError, TypeError, ArithmeticError, CorruptDataError) as cause:
            _logger.warning("the hint %s is not readable (%s); going on without it", self.hint_key, cause)
            return -1

    def checkpoints(self) -> list[tuple[int, int]]:
        """(version, size in bytes) of all checkpoints, ascending; a collected one has size 0."""
        return self.beside_entries()[0]

    def beside_entries(self) -> tuple[list[tuple[int, int]], list[str]]:
        """The checkpoints, and the names of all segments."""
        items = list(self._store.list(f"{self.prefix}/checkpoints"))
        names = (item.key.rpartition("/")[2] for item in items)
        return self._checkpoints_among(items), [name for name in names if is_segment(name)]

    def _checkpoints_among(self, items: Iterable[ObjectMeta]) -> list[tuple[int, int]]:
        checkpoints = []
        for item in items:
            folder, _, name = item.key.rpartition("/")
            stem, _, ending = name.partition(".")
            if ending == "arrow" and stem.isdigit() and folder.endswith("/checkpoints"):
                checkpoints.append((int(stem), item.size))
        return sorted(checkpoints)

    def _listed(self) -> tuple[list[tuple[int, int]], int]:
        """The checkpoints, and the last entry if one page of a listing shows the whole log (else 0)."""
        page = list(islice(self._store.list(self.prefix), PAGE))
        if len(page) == PAGE:  # entries come first, and there are many
            return self.checkpoints(), 0
        return self._checkpoints_among(page), _last(item.key for item in page if item.key.endswith(".json"))

    def last_listed(self) -> int:
        """The last entry that a listing of the bucket shows."""
        last = _last(item.key for item in self._store.list(self.prefix))
        try:
            return reach(last, self._store.get(self._bucket.key(last))) if last else 0
        except NotFoundError:  # collected since
            return last

    def sweep_intake(self, before: int) -> None:
        """Delete the members in the intake for positions before a version, which are all taken."""
        sweep_all(self._store, self.prefix, before)

    def _nearest(self, versions: list[int]) -> S:
        """The state of the last readable one of these checkpoints; the initial state if there is none."""
        for version in reversed(versions):
            state = self.checkpoint(version)
            if state is not None:
                return state
        return self._machine.initial()

    def oldest(self) -> S | None:
        """The state of the oldest checkpoint that is not emptied; None if there is none, or it cannot be read."""
        first = next((version for version, size in self.checkpoints() if size), 0)
        return self.checkpoint(first)

    def checkpoint(self, version: int) -> S | None:
        """The state of a checkpoint; None if it is missing, emptied or unreadable."""
        return self._checkpoint(version, whole=False)

    def layout(self, version: int) -> SegmentLayout | None:
        """The layout of a checkpoint; None if it is missing or emptied. CorruptDataError if it is unreadable."""
        key = self.checkpoint_key(version)
        try:
            data = self._store.get(key)
        except NotFoundError:
            return None
        return self._machine.layout(data, key) if data else None

    def sound(self, version: int) -> bool:
        """Whether a checkpoint and its segments are complete and undamaged, so that older entries may be deleted."""
        return self._checkpoint(version, whole=True) is not None

    def _checkpoint(self, version: int, *, whole: bool) -> S | None:
        if version < 1:
            return None
        try:
            return self.load(version, whole=whole)
        except (NotFoundError, CorruptDataError) as cause:
            _logger.warning("a checkpoint cannot be used, an older one will do: %s", cause)
            return None

    def load(self, version: int, *, whole: bool) -> S | None:
        """The state of a checkpoint; None for an emptied one. With `whole`, its segments are read and checked, too.

        Raises NotFoundError and CorruptDataError.
        """
        key = self.checkpoint_key(version)
        data = self._store.get(key)
        if not data:
            return None
        state = self._machine.decode(data, key, self.segments)
        if whole:
            layout = self._machine.layout(data, key)
            for ref in layout.refs:
                self.segments.check(ref)
            for run in layout.run_refs:
                self.segments.check(run)
            self._machine.verify(state, key)
        return state

    def _newest_layout(self, known: int) -> tuple[int, SegmentLayout | None, frozenset[str]]:
        """Version, layout and segments for `Segments`, of the newest checkpoint: the hint may have been set back."""
        while True:
            checkpoints, segments = self.beside_entries()
            names = frozenset(segments)
            for newer in (v for v, size in reversed(checkpoints) if size and v > known):
                try:
                    layout = self.layout(newer)
                except CorruptDataError as cause:
                    _logger.warning("a checkpoint cannot be used, an older one will do: %s", cause)
                    continue
                if layout is None:  # emptied since the listing, so there are newer ones
                    break
                return newer, layout, names
            else:
                return known, None, names

    def _state_without(self, version: int, names: frozenset[str]) -> State | None:
        """The state of a version, from an older checkpoint that names none of these segments, and the entries."""
        if (version, names) not in self._without:
            older = [v for v, size in reversed(self.checkpoints()) if size and v < version]
            usable = (self.checkpoint(v) for v in older if self._names_none(v, names))
            state = next(filter(None, usable), self._machine.initial())
            self._without[version, names] = self._folded(state, list(self.entries(state.version + 1, version)))
        cached = self._without[version, names]
        return cached if isinstance(cached, State) else None

    def _names_none(self, version: int, names: frozenset[str]) -> bool:
        """Whether a checkpoint is readable and names none of these segments."""
        with suppress(CorruptDataError):
            layout = self.layout(version)
            return layout is not None and names.isdisjoint(layout.names)
        return False

    def _files_elsewhere(self, part_id: str, added: int) -> Iterator[FileTable]:
        """The file table of a part, from each source that has it: the newest checkpoint, all others, and its entry.

        After the newest checkpoint the oldest comes first: it names other segments. Unreadable ones are skipped. The
        part is older than the version that added it under its name if mutations marked it (`MarkMutated`).
        """
        versions = [version for version, size in self.checkpoints() if size]
        standing = [version for version in versions if version >= added]
        for version in dict.fromkeys((*standing[-1:], *standing)):
            yield from self._files_at(version, part_id)
        marked = False
        while entry := self.try_entry(added):
            for op in (entry.prepare or entry).ops:
                added_by_op = op.parts if isinstance(op, AddParts) else (op.part,) if isinstance(op, Publish) else ()
                yield from (manifest.files for manifest in added_by_op if manifest.id == part_id)
                marked = marked or (isinstance(op, MarkMutated) and part_id in op.ids)
            if not marked:
                break
            added -= 1
        for version in reversed(versions[: len(versions) - len(standing)]):
            yield from self._files_at(version, part_id)

    def _files_at(self, version: int, part_id: str) -> Iterator[FileTable]:
        """The file table of a part, if a checkpoint has it and can be read."""
        with suppress(NotFoundError, CorruptDataError):
            if version not in self._files and isinstance(state := self.checkpoint(version), State):
                manifests = [part.manifest for part in state.parts()] + [part.manifest for part in state.detached]
                self._files[version] = {manifest.id: manifest.files for manifest in manifests}
        if part_id in self._files.get(version, ()):
            yield self._files[version][part_id]


def _last(keys: Iterable[str]) -> int:
    """The highest version in the names of some objects; 0 if there is none."""
    return max((version_of(key) or 0 for key in keys), default=0)


def _moves(entry: Entry) -> bool:
    return any(isinstance(op, MoveLog) for op in entry.ops)
