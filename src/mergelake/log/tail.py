"""Reading a log: entries, checkpoints, the newest state.

::

    <prefix>/00000000000000000042.json               one entry, or a batch that begins with it (`batches`)
    <prefix>/checkpoints/00000000000000000064.arrow  a folded state, or its root,
    <prefix>/checkpoints/00000000000000000064-<id>.segment  and the segments that hold most of its parts
    <prefix>/_last_checkpoint                        {"version": 64}: only a hint; a stale one is slower, never wrong
    <prefix>/intake/00000000000000000043-<attempt>.json  what is to stand in entry 43, perhaps (`intake`)

Opening takes the hint, the checkpoint and one probe of the next position: three GETs on a quiet table, and those of the
segments of a large one, all at once.
Without a usable hint, one LIST shows a short log whole, and what it shows is read at once; of a long one the
checkpoints are listed. Without a checkpoint, the log is read from its start.

Old entries go at last, after the checkpoints before them (`truncate`). A checkpoint that went stays as an empty
object; whoever meets one looks for another. While a checkpoint stands, and for the grace period of collection after it
went, all entries behind it are there: so what was read in less time than that is the log as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Generic

import cachetools

from mergelake.core.errors import CorruptDataError, MergelakeError, NotFoundError, error
from mergelake.core.json_load import loads
from mergelake.core.manifest import FileTable
from mergelake.log.backend import CollectedError, LogBackend
from mergelake.log.batches import reach
from mergelake.log.encoding import decode_entry
from mergelake.log.intake import sweep_all
from mergelake.log.layout import Layout
from mergelake.log.machine import S, StateMachine
from mergelake.log.operations import AddParts, Entry, MoveLog, Publish
from mergelake.log.recent import Recent
from mergelake.log.segment import is_segment
from mergelake.log.segments import Segments
from mergelake.log.sequencer import Sequencer
from mergelake.log.state import State
from mergelake.store.protocol import ObjectMeta, Store

PREFETCH_MAX = 256
"""Most positions that are asked for at once."""

PAGE = 1000
"""Objects in one page of a listing."""

_logger = logging.getLogger("mergelake.log")


class LogReader(Generic[S]):
    """What can be learned of one log: entries from its backend, checkpoints and the hint from the bucket."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        machine: StateMachine[S],
        choose: Callable[[Sequencer], LogBackend],
        threads: int = 1,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._machine = machine
        self._choose = choose
        self._sequencer = Sequencer()
        self._bucket = self.backend = choose(self._sequencer)
        """Where the newest entries lie, and from where older ones are found."""
        self.segments = Segments(
            store,
            prefix,
            threads=threads,
            newest=self._newest_layout,
            elsewhere=self._files_elsewhere,
            without=self._state_without,
        )
        """What checkpoints do not hold themselves."""
        self.recent: Recent | None = None
        """What is told of every entry that the log goes on with, of a process that takes commits of others."""
        self._files: cachetools.LRUCache[int, dict[str, FileTable]] = cachetools.LRUCache(2)
        self._without: cachetools.LRUCache[tuple[int, frozenset[str]], S] = cachetools.LRUCache(1)

    def backend_of(self, state: S) -> LogBackend:
        """Where the entry behind `state` lies, or will; this is `backend` from now on."""
        if state.sequencer != self._sequencer:
            self.backend = self._choose(state.sequencer)
            self._sequencer = state.sequencer
        return self.backend

    @property
    def hint_key(self) -> str:
        """Key of the hint."""
        return f"{self._prefix}/_last_checkpoint"

    def checkpoint_key(self, version: int) -> str:
        """Key of a checkpoint."""
        return f"{self._prefix}/checkpoints/{version:020d}.arrow"

    def sealed_key(self, version: int) -> str:
        """Key of the object of the bucket that holds an entry."""
        return self.backend.sealed_key(version)

    def try_entry(self, version: int) -> Entry | None:
        """The entry at a position; None if nothing has been committed there, or if it has been collected."""
        return self.decode(version, self.backend.read(version))

    def entries(self, first: int, last: int) -> Iterator[Entry]:
        """Entries `first` to `last`, inclusive; CorruptDataError if one is missing."""
        while first <= last:
            versions = range(first, min(first + PREFETCH_MAX, last + 1))
            for data in self.read_many(versions):
                entry = self.decode(first, data)
                if entry is None:
                    raise CorruptDataError("A log entry is missing", object_key=self.backend.key(first))
                yield entry
                first += 1

    def read_many(self, versions: Sequence[int]) -> list[bytes | None]:
        """Entries as they lie, None for what is not there (any more), wherever the log lies."""
        try:
            return self.backend.read_many(versions)
        except CollectedError:
            return [self.backend.read(version) for version in versions]

    def follow(self, state: S, ahead: int = 1) -> S:
        """The state after all entries that follow `state`; anew from a checkpoint if those have been collected.

        `ahead`: so many are asked for at once to begin with.
        """
        try:
            return self._chase(state, ahead)
        except CollectedError:
            return self.newest()

    def _chase(self, state: S, ahead: int = 1) -> S:
        """The state after all that follows, wherever the log has moved to."""
        while True:
            after = self._follow(state, self.backend_of(state), ahead=ahead)
            if after.sequencer == state.sequencer:
                return after
            state = after

    def _follow(self, state: S, backend: LogBackend, *, across: bool = False, ahead: int = 1) -> S:
        """What a backend holds behind `state`, up to a `MoveLog` (or across it). Asks for 1, 1, 2, 4, … at a time.

        `ahead`: so many at first, where it is known how many there are.
        """
        news: list[Entry] = []
        ahead, more = min(max(ahead, 1), PREFETCH_MAX), True
        while more:
            start = state.version + len(news) + 1
            for version, data in enumerate(backend.read_on(start, ahead), start):
                entry = self.decode(version, data)
                more = entry is not None
                if entry is None or data is None:
                    break
                news.append(entry)
                if self.recent is not None:
                    self.recent.add(entry, data)
                if _moves(entry) and not across:
                    more = False
                    break
            ahead = min(max(len(news), 1), PREFETCH_MAX)
        return self._folded(state, news) if news else state

    def newest(self) -> S:
        """The newest state; the initial one for a log without entries.

        The bucket is asked first wherever the log lies: it may know that it was taken over.
        """
        if self.recent is not None:
            self.recent.clear()
        hinted = self.hint()
        state = self.checkpoint(hinted) if hinted else None
        if state is not None:
            state = self._follow(state, self._bucket_behind(state), across=True)
        else:
            # The hint leads nowhere, or there is none: an empty log, a young one, or one that was truncated.
            state = self._first(*self._listed())
        if state.sequencer.url:
            return self._chase(state)
        self.backend_of(state)  # which knows whether older entries may lie in batches
        return state

    def _first(self, found: list[tuple[int, int]], last: int) -> S:
        """The newest state, from the best of the checkpoints that were found, or from the beginning of the log."""
        while True:
            state = self._nearest([version for version, size in found if size])
            state = self._follow(state, self._bucket_behind(state), across=True, ahead=last - state.version + 1)
            if not found or state.version >= found[-1][0]:
                return state
            before = found
            found, last = self._listed()
            if found == before:  # else some were emptied meanwhile, for there is a newer one
                key = self.checkpoint_key(found[-1][0])
                raise CorruptDataError("No checkpoint can be read, and the log has no beginning", object_key=key)

    def _bucket_behind(self, state: S) -> LogBackend:
        """The bucket, for who goes on from a checkpoint: if the log is elsewhere, what follows may lie in a batch."""
        return self._choose(Sequencer(since=state.version + 1)) if state.sequencer.url else self._bucket

    def state_at(self, version: int) -> S:
        """The state right after entry `version`, which exists."""
        state = self._nearest([v for v, size in self.checkpoints() if size and v <= version])
        return self._folded(state, list(self.entries(state.version + 1, version)))

    def _folded(self, state: S, entries: Sequence[Entry]) -> S:
        """The state after entries; CorruptDataError, with the key of the first that is to blame, for what cannot be."""
        try:
            return self._machine.fold(state, entries)
        except Exception:  # noqa: BLE001  told below, by whatever it was
            for entry in entries:
                try:
                    state = self._machine.fold(state, [entry])
                except CorruptDataError as cause:
                    cause.object_key = cause.object_key or self.backend.key(entry.version)
                    raise
                except MergelakeError:  # a partition of the state could not be read
                    raise
                except Exception as cause:
                    told, key = "A log entry says what cannot be", self.backend.key(entry.version)
                    raise CorruptDataError(told, object_key=key, found=str(cause)) from cause
            return state

    def version_at(self, newest: S, timestamp_ms: int) -> int:
        """The last version not after a time; by bisection, for timestamps never go back."""
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
        """When a version was made: by the newest entry up to it whose time can be true, not before that of `low`."""
        for each in range(version, low, -1):  # what history keeps has not been collected
            stated_ms = next(self.entries(each, each)).timestamp_ms
            if stated_ms >= max(low_ms, 1):
                return stated_ms
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
        """Version of a checkpoint; 0 without a hint, -1 for one that is not readable."""
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
        """The checkpoints, and the names of the segments that there are."""
        items = list(self._store.list(f"{self._prefix}/checkpoints"))
        names = (item.key.rpartition("/")[2] for item in items)
        return self._checkpoints_among(items), [name for name in names if is_segment(name)]

    def _checkpoints_among(self, items: Iterable[ObjectMeta]) -> list[tuple[int, int]]:
        found = []
        for item in items:
            folder, _, name = item.key.rpartition("/")
            stem, _, ending = name.partition(".")
            if ending == "arrow" and stem.isdigit() and folder.endswith("/checkpoints"):
                found.append((int(stem), item.size))
        return sorted(found)

    def _listed(self) -> tuple[list[tuple[int, int]], int]:
        """The checkpoints, and the last entry as far as one page of a listing of the log tells (else 0)."""
        page = list(islice(self._store.list(self._prefix), PAGE))
        if len(page) == PAGE:  # entries come first, and there are many
            return self.checkpoints(), 0
        stems = (_stem(item.key) for item in page if item.key.endswith(".json"))
        return self._checkpoints_among(page), max((int(stem) for stem in stems if stem.isdigit()), default=0)

    def last_listed(self) -> int:
        """The last entry that a listing of the bucket shows: where no state can be read."""
        stems = map(_stem, (item.key for item in self._store.list(self._prefix)))
        last = max((int(stem) for stem in stems if stem.isdigit()), default=0)
        try:
            return reach(last, self._store.get(self._bucket.key(last))) if last else 0
        except NotFoundError:  # collected since
            return last

    def sweep_intake(self, before: int) -> None:
        """Delete what is left in the intake for positions before a version, all of which are taken."""
        sweep_all(self._store, self._prefix, before)

    def _nearest(self, versions: list[int]) -> S:
        """The last of these checkpoints that can be read; the initial state if none can."""
        for version in reversed(versions):
            state = self.checkpoint(version)
            if state is not None:
                return state
        return self._machine.initial()

    def checkpoint(self, version: int) -> S | None:
        """The state that a checkpoint holds; None if there is none to be read."""
        return self._checkpoint(version, whole=False)

    def layout(self, version: int) -> Layout | None:
        """Where the parts of a checkpoint lie; None if it is gone. CorruptDataError if it cannot be read."""
        key = self.checkpoint_key(version)
        try:
            data = self._store.get(key)
        except NotFoundError:
            return None
        return self._machine.layout(data, key) if data else None

    def sound(self, version: int) -> bool:
        """Whether a checkpoint can be relied on when the entries before it go: it and its segments are whole."""
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
        """The state that a checkpoint holds; None for an emptied one. With `whole`, its segments are read to the end.

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

    def _newest_layout(self, known: int) -> tuple[int, Layout | None, frozenset[str]]:
        """Of the newest checkpoint, not the hint's: that may have been set back. See `Segments`."""
        while True:
            checkpoints, segments = self.beside_entries()
            there = frozenset(segments)
            for newer in (v for v, size in reversed(checkpoints) if size and v > known):
                try:
                    found = self.layout(newer)
                except CorruptDataError as cause:
                    _logger.warning("a checkpoint cannot be used, an older one will do: %s", cause)
                    continue
                if found is None:  # emptied since the listing: there are newer ones
                    break
                return newer, found, there
            else:
                return known, None, there

    def _state_without(self, version: int, names: frozenset[str]) -> State | None:
        """The state of a version, from a checkpoint before it that names none of these segments, and the entries."""
        if (version, names) not in self._without:
            older = [v for v, size in reversed(self.checkpoints()) if size and v < version]
            usable = (self.checkpoint(v) for v in older if self._names_none(v, names))
            state = next(filter(None, usable), self._machine.initial())
            self._without[version, names] = self._folded(state, list(self.entries(state.version + 1, version)))
        found = self._without[version, names]
        return found if isinstance(found, State) else None

    def _names_none(self, version: int, names: frozenset[str]) -> bool:
        """Whether a checkpoint is there, and has none of these segments."""
        with suppress(CorruptDataError):
            layout = self.layout(version)
            return layout is not None and names.isdisjoint(layout.names)
        return False

    def _files_elsewhere(self, part_id: str, added: int) -> Iterator[FileTable]:
        """The file table of a part, from the newest checkpoint, from all others that may have it, and from its entry.

        The older ones first: they name other segments. Some may be damaged, or emptied by now.
        """
        standing = [version for version, size in self.checkpoints() if size and version >= added]
        for version in dict.fromkeys((*standing[-1:], *standing)):
            with suppress(NotFoundError, CorruptDataError):
                if version not in self._files and isinstance(state := self.checkpoint(version), State):
                    manifests = [part.manifest for part in state.parts()] + [part.manifest for part in state.detached]
                    self._files[version] = {manifest.id: manifest.files for manifest in manifests}
            if part_id in self._files.get(version, ()):
                yield self._files[version][part_id]
        entry = self.try_entry(added)
        for op in entry.ops if entry is not None else ():
            brought = op.parts if isinstance(op, AddParts) else (op.part,) if isinstance(op, Publish) else ()
            yield from (manifest.files for manifest in brought if manifest.id == part_id)


def _stem(key: str) -> str:
    return key.rpartition("/")[2].partition(".")[0]


def _moves(entry: Entry) -> bool:
    return any(isinstance(op, MoveLog) for op in entry.ops)
