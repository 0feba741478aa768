"""Is a log whole? Every entry is there and undamaged, was allowed where it stands, and adds up to the checkpoints.

The log is replayed from its beginning, or, where that was collected, from the oldest checkpoint. At each later
checkpoint the replayed state must be the stored one, and in the end the one that readers open. So every replay, from
wherever it starts, gives the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from mergelake.core.errors import CorruptDataError, MergelakeError, NotFoundError
from mergelake.core.json_load import loads
from mergelake.log.conflict import Reject
from mergelake.log.machine import StateMachine
from mergelake.log.operations import Entry
from mergelake.log.tail import PREFETCH_MAX, LogReader
from mergelake.store.protocol import Store

_REPAIR = "mergelake fsck --repair writes a new checkpoint and empties this one"
_BUG = "Tell the authors of mergelake, with the log"
_RESTORE = "Restore this object from a copy of the bucket"
Progress = Callable[[int, int], None]
"""Called with (entries read, entries to read)."""


@dataclass(frozen=True, slots=True)
class LogProblem:
    """Something in a log that is not as it should be."""

    kind: Literal["entry", "checkpoint", "hint"]
    version: int
    what: str
    way_out: str

    @property
    def place(self) -> str:
        """`entry 42`."""
        return f"{self.kind} {self.version}"


@dataclass(slots=True)
class LogReport:
    """What was found."""

    first: int = 1
    """The oldest entry that was replayed."""
    last: int = 0
    entries: int = 0
    checkpoints: list[int] = field(default_factory=list)
    """Versions of those that can be relied on."""
    problems: list[LogProblem] = field(default_factory=list)
    state: Any = None
    """What the log adds up to, as far as it could be read."""


def verify_log(
    store: Store, reader: LogReader[Any], machine: StateMachine[Any], newest: Any, on_progress: Progress | None = None
) -> LogReport:
    """Verify a log up to the state `newest` (None where readers find none), and what a listing shows behind it.

    One GET for each entry and checkpoint, and a LIST a thousand.
    """
    report = LogReport(last=max(reader.last_listed(), newest.version if newest is not None else 0))
    stored = _Checkpoints(reader, report)
    state = machine.initial()
    if (newest is None or newest.history > 0) and reader.backend.read(1) is None:
        state = stored.beginning(newest.history if newest is not None else 0, state)
        if state.version:
            report.checkpoints.append(state.version)
    report.first = state.version + 1
    for entry in _entries(reader, report, on_progress):
        if isinstance(entry, LogProblem):
            report.problems.append(entry)
            state = stored.first_from(entry.version, state)
            continue
        if entry.version != state.version + 1:
            continue  # behind a gap, or within one that a checkpoint bridges
        state = _replayed(machine, state, entry, report)
        kept = stored.read(entry.version)
        if kept is not None and kept == state:
            report.checkpoints.append(entry.version)
        elif kept is not None:
            told = "it is not what the entries before it add up to"
            report.problems.append(LogProblem("checkpoint", entry.version, told, _REPAIR))
    stored.read_rest()
    report.state = state
    wrong = any(problem.kind == "checkpoint" for problem in report.problems)
    if newest is not None and state.version == newest.version and state != newest and not wrong:
        told = "the replayed state is not the one that readers see"
        report.problems.append(LogProblem("entry", newest.version, told, _BUG))
    report.problems += _hint(store, reader, report)
    return report


class _Checkpoints:
    """The checkpoints of a log, read one at a time; what is wrong with one is reported once."""

    def __init__(self, reader: LogReader[Any], report: LogReport) -> None:
        self._reader, self._report = reader, report
        # Neither those that were collected, nor those written since.
        self._versions = {version for version, size in reader.checkpoints() if size and version <= report.last}
        self._unread = set(self._versions)
        self._kept: Any = None

    def read(self, version: int) -> Any:
        """The state at a version; None if there is no checkpoint that can be read."""
        if version not in self._versions:
            return None
        self._unread.discard(version)
        if self._kept is None or self._kept.version != version:
            try:
                self._kept = self._reader.load(version, whole=True)  # None: collected since it was listed
            except MergelakeError as problem:
                if not isinstance(problem, (CorruptDataError, NotFoundError)):
                    raise
                self._versions.remove(version)
                self._report.problems.append(LogProblem("checkpoint", version, problem.what, _REPAIR))
                return None
        return self._kept

    def read_rest(self) -> None:
        """Look at those that nobody has asked for: behind gaps."""
        for version in sorted(self._unread):
            self.read(version)

    def beginning(self, history: int, default: Any) -> Any:
        """The state from which a log that was cut is replayed: that of the first checkpoint.

        Not one that a writer which slept brought after the log had been cut further on: behind it entries are gone, and
        another one, not after `history`, stands in for it until collection empties it.
        """
        for version in sorted(v for v in self._versions if v <= history):
            if self._reader.backend.read(version + 1) is not None and (state := self.read(version)) is not None:
                return state
        return self.first_from(1, default)

    def first_from(self, version: int, default: Any) -> Any:
        """The state of the first checkpoint from a version on that can be read."""
        return next(filter(None, map(self.read, sorted(v for v in self._versions if v >= version))), default)


def _entries(reader: LogReader[Any], report: LogReport, on_progress: Progress | None) -> Iterator[Entry | LogProblem]:
    total = report.last - report.first + 1
    version = report.first
    while version <= report.last:
        for data in reader.read_many(range(version, min(version + PREFETCH_MAX, report.last + 1))):
            try:
                entry = reader.decode(version, data)
            except CorruptDataError as problem:
                yield LogProblem("entry", version, problem.what, _RESTORE)
            else:
                report.entries += entry is not None
                yield entry or LogProblem("entry", version, "it is missing", _RESTORE)
            version += 1
        if on_progress is not None:
            on_progress(version - report.first, total)


def _replayed(machine: StateMachine[Any], state: Any, entry: Entry, report: LogReport) -> Any:
    try:
        after = machine.step(state, entry)
    except Exception as cause:  # noqa: BLE001  an entry that says what cannot be
        report.problems.append(LogProblem("entry", entry.version, f"it says what cannot be: {cause}", _RESTORE))
        return state
    if not isinstance(after, Reject):
        return after
    told = f"it was not allowed there: {after.reason}"
    report.problems.append(LogProblem("entry", entry.version, told, _BUG))
    return machine.fold(state, [entry])


def _hint(store: Store, reader: LogReader[Any], report: LogReport) -> Iterator[LogProblem]:
    if not report.checkpoints:
        return
    try:
        version = int(loads(store.get(reader.hint_key))["version"])
    except NotFoundError:
        version = 0
    except (ValueError, KeyError, TypeError, ArithmeticError, CorruptDataError):
        version = -1
    if version not in report.checkpoints:
        told = "there is none" if version == 0 else "it leads to no good checkpoint"
        yield LogProblem("hint", max(version, 0), told, "It only makes opening slower; --repair writes a new one")


def repair_checkpoints(
    store: Store, reader: LogReader[Any], write_newest: Callable[[], None], report: LogReport, head: int
) -> list[str]:
    """See `Log.repair_checkpoints`; `write_newest` writes that of version `head`. Entries are never touched."""
    bad = sorted(problem.version for problem in report.problems if problem.kind == "checkpoint")
    if head in bad:
        store.delete([reader.checkpoint_key(head)])  # the new one has to stand there
    write_newest()
    if not reader.sound(head):
        return []
    done = [f"wrote a checkpoint of version {head}"]
    for version in bad:
        if version != head and (report.first == 1 or min(report.checkpoints, default=version) < version):
            store.put(reader.checkpoint_key(version), b"")
            done.append(f"emptied the checkpoint of version {version}")
    return done
