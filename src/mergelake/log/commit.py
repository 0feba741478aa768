"""`Log`: append by create-if-absent, follow the tail, open from a checkpoint, look back.

To append at position p a writer has applied everything before p, so it judges its operations on the exact
state. The append has three outcomes:

1. *Stored*: the entry is ours, the state moves on. One PUT, nothing else.
2. *Lost*: p is taken. Read it, apply the winner, wait a random moment (`turns`), apply whatever
   followed, build the operations anew on the new state, try again.
3. *Unknown*: the reply was lost. Read p: our attempt id means stored, another means lost; nothing there
   means still unknown, and the same bytes are sent again. Only when the store stays silent does the caller
   get `UnavailableError`; until then nobody may delete what the entry refers to.

Positions are dense: a missing object means "not committed yet", and nobody ever skips one. Listings decide
nothing; they only find checkpoints faster.

Old entries are deleted at last, and then a missing object means nothing: knowledge of the head that is older than
`trust.TRUST_S` is not believed. The log is opened anew before it is read on or appended to, and a writer whose
append took that long looks whether the position had been collected before it says that the entry is stored.

One `Log` may be shared by threads: commits that come while one is under way share the next entry (`group`).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic

from mergelake.core.clock import Clock
from mergelake.core.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    error,
)
from mergelake.core.ids import IdSource
from mergelake.log import truncate
from mergelake.log.backend import LogBackend
from mergelake.log.backends import Backends
from mergelake.log.encoding import TIME_END_MS, encode_entry
from mergelake.log.group import Committed, Request, WaitingLine, propose
from mergelake.log.machine import S, StateMachine
from mergelake.log.operations import Entry, LogOp, gives_space_back
from mergelake.log.tail import LogReader
from mergelake.log.trust import TRUST_S, Instant
from mergelake.log.turns import Turns
from mergelake.log.verify import LogReport, Progress, repair_checkpoints, verify_log
from mergelake.store.protocol import PutOutcome, Store, Stored, Unknown
from mergelake.store.reserve import freeing

RETRIES_MAX = 100
"""Lost races after which a commit gives up."""
UNKNOWN_MAX = 12
"""Questions to a silent store after which the outcome of a commit is reported as not known."""
_BACKOFF_FIRST_S = 0.002
_BACKOFF_MAX_S = 0.5
_OPEN_MAX = 3
"""Times that a log is opened before it is told that the store is too slow to be believed."""

_logger = logging.getLogger("mergelake.log")


class Log(Generic[S]):
    """One log under `prefix` of a store, and its newest state that this process knows."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        machine: StateMachine[S],
        *,
        clock: Clock,
        ids: IdSource,
        author: str = "",
        threads: int = 16,
        trust_s: float = TRUST_S,
        backends: Backends | None = None,
    ) -> None:
        """`threads` read long tails; `trust_s` is how long knowledge of the head is believed (see `trust`);
        `backends` say how logs that are not in the bucket are reached.
        """
        self._store = store
        self.prefix = prefix
        self.backends = backends or Backends()
        choose = partial(self.backends.of, store=store, prefix=prefix, clock=clock, threads=threads)
        self._reader = LogReader(store, prefix, machine, choose)
        self._machine = machine
        self._clock = clock
        self._ids = ids
        self.author = author
        """Who commits, for people."""
        self._trust_s = trust_s
        self._lock = threading.RLock()
        self._line: WaitingLine[S] = WaitingLine()
        self._writing = threading.Lock()
        self._due: tuple[S, Instant, LogBackend] | None = None  # what is to be written as a checkpoint
        self.checkpoint_failure = ""
        """Why the last checkpoint that was due could not be written; empty if it was."""
        self._turns = Turns(clock, ids)
        self._looks = self._seen = 0  # how many were begun, and the last one that saw the head
        self._state = machine.initial()
        self._known = Instant.now(clock)  # when the position after the state was free

    @classmethod
    def open(cls, store: Store, prefix: str, machine: StateMachine[S], **arguments: Any) -> Log[S]:
        """The log with its newest state: hint, checkpoint, tail. A log without entries opens at version 0.

        `arguments` are those of the constructor.
        """
        log = cls(store, prefix, machine, **arguments)
        log._open()
        return log

    @property
    def state(self) -> S:
        """The newest state known here, without asking the store."""
        return self._state

    @property
    def backend(self) -> LogBackend:
        """Where the entry behind the state lies, or will."""
        return self._reader.backend_of(self._state)

    def refresh(self) -> S:
        """Follow the tail: one GET if nothing is new, concurrent ones if much is.

        Threads that ask while another one looks share the next look.
        """
        seen = self._looks
        with self._lock:
            if self._seen <= seen:
                self._look()
            return self._state

    def fresh(self, within_s: float = float("inf")) -> S:
        """The newest state known here, looked up anew if it is too old to be believed, or older than `within_s`."""
        known = self._trusted() and self._known.age_s(self._clock) <= within_s
        return self._state if known else self.refresh()

    def version_at(self, timestamp_ms: int) -> int:
        """The last version not after a time, as far as history is kept; BAD_ARGUMENTS for a time before the first."""
        while True:
            state = self._state
            try:
                return self._reader.version_at(state, timestamp_ms)
            except CorruptDataError:  # what is missing may have been collected since: then history has gone on
                if self.refresh().history == state.history:
                    raise

    def stored_ms(self, version: int) -> int | None:
        """Since when an entry lies in the bucket, by the store's clock; None if it is gone. One HEAD.

        An entry that has not reached the bucket yet is copied there first.
        """
        try:
            self.backend.seal(version)
            return self._store.head(self._reader.sealed_key(version)).modified_ms
        except NotFoundError:
            return None

    def wait(self, timeout_s: float, poll_s: float | None = None) -> S:
        """The newest state as soon as there is a newer one than is known here; after `timeout_s` the one known.

        `poll_s` is the pause between two looks (one GET each) where the store has to be asked; None is short pauses
        first, then longer ones, up to a second. A log in ZooKeeper tells by itself.
        """
        state = self._state
        news = self.backend.wait(state.version + 1, timeout_s, poll_s)
        return self.refresh() if news or not self._trusted() else self._state

    def when_changed(self, wake: Callable[[], None]) -> None:
        """Call `wake` once when there is something new, where the log can tell (ZooKeeper); else never."""
        self.backend.when_changed(wake)

    def state_at(self, version: int | None = None, timestamp_ms: int | None = None) -> S:
        """The state as of a version, or as of the last entry not after a time. Neither: the newest.

        Raises BAD_ARGUMENTS for a version that does not exist (yet) or a time before the first entry.
        """
        if version is None and timestamp_ms is None:
            return self._state
        state = self._state
        if version is not None and timestamp_ms is not None:
            raise error("BAD_ARGUMENTS", "Give a version or a timestamp, not both")
        if (version is not None and version > state.version) or timestamp_ms is not None:
            state = self.refresh()
        if timestamp_ms is not None:
            version = self.version_at(timestamp_ms)
            state = self._state
        assert version is not None
        if not 1 <= version <= state.version:
            raise error("BAD_ARGUMENTS", f"There is no version {version}", f"Versions go from 1 to {state.version}")
        try:
            return state if version == state.version else self._reader.state_at(version)
        except CorruptDataError:
            if version >= state.history:
                raise
            way_out = f"Versions from {state.history} on are kept, and those with a tag"
            raise error("BAD_ARGUMENTS", f"Version {version} has been collected", way_out) from None

    def retire_checkpoints(self, before: int) -> int:
        """First step of shortening the log to what versions from `before` on need, and thinning; see `truncate`.

        The version of the checkpoint at which it may be cut once `trust.GRACE_MIN_S` have passed, 0 for none yet.
        """
        state = self._state
        return truncate.retire_checkpoints(self._store, self._reader, before, state.version, state.history)

    def truncate(self, base: int) -> int:
        """Second step: delete the entries before checkpoint `base`, the answer of the first; how many went.

        The newest state known here must keep nothing older (`Collect`).
        """
        return truncate.truncate(self._store, self._reader, base, self._state.history)

    def verify(self, on_progress: Progress | None = None) -> LogReport:
        """Read and replay the whole log, and compare what it adds up to with the checkpoints and the newest state."""
        first = 0
        with self._lock:
            for _ in range(_OPEN_MAX):
                began = Instant.now(self._clock)
                try:
                    self._open()
                    newest = self._state
                except CorruptDataError:
                    newest = None
                report = verify_log(self._store, self._reader, self._machine, newest, on_progress)
                # Where the log was cut while it was read, what is missing was collected: its beginning is gone too.
                missing = any(problem.kind == "entry" for problem in report.problems)
                # What two looks say alike, the second one of them quick, is damage.
                same = report.first == first and began.age_s(self._clock) <= self._trust_s
                if not missing or same or self._reader.backend.read(report.first) is not None:
                    return report
                first = report.first
            raise UnavailableError("The log was cut while it was looked at, each time", hint="Try again")

    def repair_checkpoints(self, report: LogReport) -> list[str]:
        """Make good what `verify` found wrong with checkpoints and the hint; says what was done.

        A new checkpoint of the newest state is written and read back, then the bad ones are emptied. One that nothing
        older could replace is left alone.
        """
        if not report.problems or any(problem.kind == "entry" for problem in report.problems):
            return []  # of a log with a gap no checkpoint may go: it may be all that is left
        with self._lock:
            # Not what is known here: that may come from a checkpoint that is wrong.
            self._state, self._known = self._behind(report.state)
            head = self._state.version
            return repair_checkpoints(self._store, self._reader, self.write_checkpoint, report, head)

    def _behind(self, state: S) -> tuple[S, Instant]:
        """The newest state, from a verified one however old; UnavailableError where entries in between are gone.

        The position after an old state may be free again, so a listing has to show nothing newer.
        """
        for _ in range(_OPEN_MAX):
            began = Instant.now(self._clock)
            state = self._reader.follow(state)
            if self._reader.last_listed() <= state.version:
                return state, began
        raise UnavailableError("The log went on, and was cut, while it was looked at", hint="Try again")

    def entries(self, first: int = 1, last: int | None = None) -> Iterator[Entry]:
        """Committed entries, `first` to `last` (inclusive; None: the newest known here), in order."""
        return self._reader.entries(first, self._state.version if last is None else last)

    def commit(self, build: Callable[[S], Sequence[LogOp]]) -> Committed[S]:
        """Append what `build` makes of the newest state; called anew after each lost race.

        No operations means that there is nothing (left) to do. `build` may raise to give up; where several threads
        commit, it may run in another one's.
        Raises the error of a rejected operation, ConflictError if the race is lost too often,
        UnavailableError if the outcome cannot be learned: the entry may yet be in the log.
        """
        request = Request(build)
        if self._line.join(request):
            try:
                with self._lock:
                    self._commit(self._line.take())
            finally:
                self._line.leave(request)
            self._write_due()
        return request.answer()

    def _commit(self, group: list[Request[S]]) -> None:
        """Give everybody in the group an answer."""
        try:
            self._commit_or_raise(group)
        except Exception as failure:  # noqa: BLE001  everybody who waits has to hear it
            for request in group:
                request.settle(failure)
        except BaseException:
            for request in group:
                request.settle(_not_known(self._state.version + 1, "the thread that committed it was stopped"))
            raise

    def _commit_or_raise(self, group: list[Request[S]]) -> None:
        self._turns.step_aside()
        looked = not self._trusted()
        if looked:
            self._look()
        for races_lost in range(RETRIES_MAX):
            if races_lost:
                self._turns.after_loss()
                self._look()
            head = self._head()
            proposal = propose(self._machine, self._state, group, head)
            if not proposal.ops and not (looked or races_lost):
                # Only a position that was free proves that a state is the newest. Without one, look: an insert that
                # was known as done may have been dropped since, by another process.
                self._look()
                head = self._head()
                proposal = propose(self._machine, self._state, group, head)
            if proposal.waiting:
                self._line.put_back(proposal.waiting)
                del group[len(group) - len(proposal.waiting) :]
            if not proposal.ops:
                proposal.settle(None, races_lost)
                return
            entry = Entry(head.version, head.attempt, head.timestamp_ms, head.author, tuple(proposal.ops))
            try:
                stored = self._stored(entry, proposal.state)
            except Exception:
                proposal.settle_refused()
                raise
            if stored:
                proposal.settle(entry, races_lost)
                if self._state.version % self._machine.checkpoint_interval(self._state) == 0:
                    self._due = self._knowledge()
                return
        raise ConflictError(
            f"Lost {RETRIES_MAX} races for the next position of the log",
            hint="Fewer writers, or larger and fewer commits",
        )

    def _stored(self, entry: Entry, after: S) -> bool:
        """Append the entry and move on: to `after` if the position is ours, else to what the winner made."""
        sent = Instant.now(self._clock)
        winner = self._append(entry)
        self._turns.appended(sent.monotonic_s, winner is None)
        if self._trusted():
            if winner is None:
                self._state, self._known = after, sent
            else:
                self._state = self._machine.fold(self._state, [winner])
            return winner is None
        # The position may have been taken, and collected, before the entry was created there.
        try:
            self._open()
        except Exception as cause:
            if winner is None:
                raise _not_known(entry.version, str(cause)) from cause
            raise
        if winner is None and self._state.history > entry.version:
            raise _not_known(entry.version, "this process stood still while the log went on, and was cut")
        return winner is None

    def _head(self) -> Entry:
        """The next entry, without operations."""
        own_ms = self._clock.now_ms()  # a clock that shows no possible time is not asked
        now_ms = max(own_ms if own_ms < TIME_END_MS else 0, self._state.timestamp_ms)
        return Entry(self._state.version + 1, self._ids.new_id(), now_ms, self.author, ())

    def _trusted(self) -> bool:
        return self._known.age_s(self._clock) <= self._trust_s

    def _look(self) -> None:
        """Learn the head: from the state on, or anew if that is too old."""
        self._looks += 1
        began = Instant.now(self._clock)
        if self._trusted():
            state = self._reader.follow(self._state)
            if self._trusted():
                self._state, self._known, self._seen = state, began, self._looks
                return
        self._open()

    def _open(self) -> None:
        """Learn the head from nothing."""
        for _ in range(_OPEN_MAX):
            self._looks += 1
            began = Instant.now(self._clock)
            try:
                state = self._reader.newest()
            except CorruptDataError:
                if began.age_s(self._clock) <= self._trust_s:
                    raise
                continue  # what was listed, or hinted at, may be gone: nothing need be damaged
            if began.age_s(self._clock) > self._trust_s:
                continue  # what lay behind the checkpoint may be gone
            if state.version == 0 < self._state.version:
                raise error("UNKNOWN_TABLE", "The log is gone: its table was dropped, and has been collected since")
            if state.version < self._state.version:
                raise CorruptDataError(
                    "The log ends before a version that was in it",
                    object_key=self._reader.backend.key(state.version + 1),
                    expected=str(self._state.version),
                    found=str(state.version),
                )
            self._state, self._known, self._seen = state, began, self._looks
            return
        raise UnavailableError(f"The log could not be read within {self._trust_s:.0f} s", hint="Try again")

    def _append(self, entry: Entry) -> Entry | None:
        """None if the entry got its position, else the entry that holds it."""
        data = encode_entry(entry)
        sent, why = False, ""
        for question in range(UNKNOWN_MAX):
            if question:
                self._pause(question)
            # Also "exists already" may be our own entry, whose reply was lost on the way: look whose it is.
            try:
                with freeing(gives_space_back(entry.ops)):
                    outcome = self._create(entry.version, data)
                if isinstance(outcome, Stored):
                    return None
                sent, why = True, outcome.reason if isinstance(outcome, Unknown) else why
                holder = self._reader.try_entry(entry.version)
            except (UnavailableError, CorruptDataError) as problem:
                why = why or str(problem)
                continue  # also bytes that were cut off on the way
            except InvalidInputError as refusal:
                # Refused at once, the entry is not there. A refusal (of credentials that ran out) after it was
                # sent says nothing, and must not be taken for a commit that failed.
                if not sent or refusal.name == "UNKNOWN_FORMAT_VERSION":
                    raise
                raise _not_known(entry.version, str(refusal)) from refusal
            if holder is not None:
                return None if holder.attempt == entry.attempt else holder
        raise _not_known(entry.version, why or "the store does not answer")

    def _create(self, version: int, data: bytes) -> PutOutcome:
        try:
            return self.backend.create(version, data)
        except UnavailableError as cause:
            return Unknown(str(cause))

    def _pause(self, attempt: int) -> None:
        """Between two questions to a silent store."""
        ceiling = min(_BACKOFF_FIRST_S * 2 ** min(attempt, 16), _BACKOFF_MAX_S)
        self._clock.sleep_s(ceiling * self._ids.jitter())

    def _knowledge(self) -> tuple[S, Instant, LogBackend]:
        """The newest state, since when it was known to be that, and where its log lies."""
        return self._state, self._known, self.backend

    def _write_due(self) -> None:
        """Write the checkpoint that is due, if one is, while others commit; by one thread at a time."""
        while self._due is not None and self._writing.acquire(blocking=False):
            try:
                due, self._due = self._due, None
                if due is not None:
                    self._write(*due)
                    self.checkpoint_failure = ""
            except Exception as cause:
                self.checkpoint_failure = f"no checkpoint of {self.prefix} at version {due[0].version}: {cause!r}"
                _logger.exception("%s", self.checkpoint_failure)
            finally:
                self._writing.release()

    def write_checkpoint(self) -> None:
        """Write the newest state as a checkpoint, and the hint that finds it.

        Only where there is none: one that was collected must not come back. One that was written too late is not made
        known, and so never read.
        """
        self._write(*self._knowledge())

    def has_checkpoint(self, version: int) -> bool:
        """Whether there is a checkpoint of that version, and it can be read: one GET."""
        return self._reader.checkpoint(version) is not None

    def _write(self, state: S, known: Instant, backend: LogBackend) -> None:
        backend.seal(state.version)
        data = self._machine.encode(state)
        outcome = self._store.create(self._reader.checkpoint_key(state.version), data)
        if isinstance(outcome, Unknown):
            raise UnavailableError(f"It is not known whether the checkpoint was written: {outcome.reason}")
        if known.age_s(self._clock) <= self._trust_s:
            self._store.put(self._reader.hint_key, json.dumps({"version": state.version}).encode())
        backend.trim(state.version)


def _not_known(version: int, why: str) -> UnavailableError:
    return UnavailableError(
        f"It is not known whether version {version} was committed: {why}",
        hint="Look at the table's history before trying again, or use a dedup_token and just try again",
    )
