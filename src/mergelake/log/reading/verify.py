"""Verifies a log: every entry exists, is undamaged and was valid at its position, and the checkpoints match the replay.

The log is replayed from its beginning or, if that was collected, from the oldest checkpoint. At each later checkpoint
the replayed state must equal the stored one, and at the end the one that readers open. So a replay gives the same
state, wherever it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from mergelake.core.base.errors import CorruptDataError, MergelakeError, NotFoundError
from mergelake.log.model.conflict import Reject
from mergelake.log.model.operations import Entry
from mergelake.log.reading.tail import PREFETCH_MAX, LogReader
from mergelake.log.storage.machine import StateMachine
from mergelake.store.interface.protocol import Store

_REPAIR = "mergelake fsck --repair writes a new checkpoint and empties this one"
_BUG = "Tell the authors of mergelake, with the log"
_RESTORE = "Restore this object from a copy of the bucket"
Progress = Callable[[int, int], None]
"""Called with (entries read, entries to read)."""


@dataclass(frozen=True, slots=True)
class LogProblem:
    """A defect of a log."""

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
    """The result of verifying a log."""

    first: int = 1
    """The oldest entry that was replayed."""
    last: int = 0
    entries: int = 0
    checkpoints: list[int] = field(default_factory=list)
    """Versions of the sound ones."""
    problems: list[LogProblem] = field(default_factory=list)
    state: Any = None
    """The replayed state, as far as the log could be read."""


def verify_log(
    reader: LogReader[Any], machine: StateMachine[Any], newest: Any, on_progress: Progress | None = None
) -> LogReport:
    """Verify a log up to the state `newest` (None if readers cannot open it), and further entries that a listing shows.

    One GET for each entry and checkpoint, and one LIST per thousand.
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
            continue  # after a gap, or within one that a checkpoint bridges
        state = _replayed(machine, state, entry, report)
        checkpoint = stored.read(entry.version)
        if checkpoint is not None and checkpoint == state:
            report.checkpoints.append(entry.version)
        elif checkpoint is not None:
            description = "it is not what the entries before it add up to"
            report.problems.append(LogProblem("checkpoint", entry.version, description, _REPAIR))
    stored.read_rest()
    report.state = state
    bad_checkpoint = any(problem.kind == "checkpoint" for problem in report.problems)
    if newest is not None and state.version == newest.version and state != newest and not bad_checkpoint:
        description = "the replayed state is not the one that readers see"
        report.problems.append(LogProblem("entry", newest.version, description, _BUG))
    report.problems += _hint(reader, report)
    return report


class _Checkpoints:
    """The checkpoints of a log, read one at a time; a defect of one is reported once."""

    def __init__(self, reader: LogReader[Any], report: LogReport) -> None:
        self._reader, self._report = reader, report
        # Without those that were emptied, and those written since.
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
        """Read the checkpoints that the replay did not reach, because of gaps."""
        for version in sorted(self._unread):
            self.read(version)

    def beginning(self, history: int, default: Any) -> Any:
        """The state from which a log that was cut is replayed: that of the first checkpoint.

        A checkpoint that a writer wrote after sleeping through a cut is skipped: the entry after it is gone, and there
        is another one, not after `history`.
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
                complete = None if entry is None else reader.decisions.complete(entry)
                if entry is not None and complete is None and version == report.last:
                    report.last -= 1  # of a transaction that is not decided: it is not there yet
                    return
                report.entries += complete is not None
                what = "it is missing" if entry is None else "the record of its transaction is missing"
                yield complete or LogProblem("entry", version, what, _RESTORE)
            version += 1
        if on_progress is not None:
            on_progress(version - report.first, total)


def _replayed(machine: StateMachine[Any], state: Any, entry: Entry, report: LogReport) -> Any:
    try:
        after = machine.step(state, entry)
    except Exception as cause:  # noqa: BLE001  a malformed entry may fail in any way
        report.problems.append(LogProblem("entry", entry.version, f"it says what cannot be: {cause}", _RESTORE))
        return state
    if not isinstance(after, Reject):
        return after
    description = f"it was not allowed there: {after.reason}"
    report.problems.append(LogProblem("entry", entry.version, description, _BUG))
    return machine.fold(state, [entry])


def _hint(reader: LogReader[Any], report: LogReport) -> Iterator[LogProblem]:
    version = reader.hint() if report.checkpoints else 0
    if report.checkpoints and version not in report.checkpoints:
        what = "there is none" if version == 0 else "it leads to no good checkpoint"
        yield LogProblem("hint", max(version, 0), what, "It only makes opening slower; --repair writes a new one")


def repair_checkpoints(
    store: Store, reader: LogReader[Any], write_newest: Callable[[], None], report: LogReport, head: int
) -> list[str]:
    """See `Log.repair_checkpoints`; `write_newest` writes the checkpoint of version `head`. No entry is changed."""
    bad = sorted(problem.version for problem in report.problems if problem.kind == "checkpoint")
    if head in bad:
        store.delete([reader.checkpoint_key(head)])  # a checkpoint is created only where there is none
    write_newest()
    if not reader.sound(head):
        return []
    done = [f"wrote a checkpoint of version {head}"]
    for version in bad:
        if version != head and (report.first == 1 or min(report.checkpoints, default=version) < version):
            store.put(reader.checkpoint_key(version), b"")
            done.append(f"emptied the checkpoint of version {version}")
    return done
