"""`Log`: append by create-if-absent, follow the tail, open from a checkpoint, read older states.

A writer that appends at position p has applied all entries before p, so it checks its operations on the exact state.
The append has three outcomes:

1. *Stored*: the entry is ours, the state moves on. One PUT, nothing else.
2. *Lost*: p is taken. Read it, apply the winner, build the operations anew on the new state, try again, taking turns
   with other writers (`contention`).
3. *Unknown*: the reply was lost. Read p: our attempt id means stored, another means lost; no entry means still unknown,
   and the same bytes are sent again. Only if the store stays silent the caller gets `UnavailableError`; then the
   objects that the entry refers to must not be deleted.

A writer that has met others may leave its operations for position p in the intake (`intake`), as a *member* of the
entry at p. The writer that appends entry p checks each member at its place in the entry and includes the valid ones:

- **A member is valid for its position only**, so it is in the log at most once: only entry p may hold it, and p is
  assigned once. Its sender may append at p itself, under the same attempt id: one of the two gets p.
- **The entry at p is decisive.** With the attempt among its members the commit is done, and its state is the one right
  after its own operations; without it the member is void, and is built anew on the new state. From leaving the member
  until p is decided, every failure is an unknown outcome. Lost and late replies of the intake change nothing.
- **A paused sender** reads p when it wakes, as after a lost reply; **a writer paused** after its listing finds p taken.
  An entry at a position that was collected and created again by a late writer proves nothing: once knowledge of the
  head is too old, what was read at p counts only if p is still kept.
- **A sender that died** may be in the log, like one that died after its append.
- **The intake is not trusted**: preconditions are checked again, and unreadable members are left out.
- **What depends on the state beyond its preconditions** is not left, as operations of others would stand before it.
- Waiting is bounded: if no writer appends p in time, the senders do.

Positions are dense: a missing object means "not committed yet", and no writer skips one. Listings decide nothing; they
only find checkpoints faster.

Old entries are deleted eventually, and then a missing object means nothing: knowledge of the head older than
`head_freshness.HEAD_FRESHNESS_S` is not believed. The log is opened anew before it is followed or appended to, and a
writer whose append took that long checks that the position had not been collected before it reports success.

One `Log` may be shared by threads: commits that arrive while one is under way share the next entry (`group`). If a
process listens, commits of other processes do too (`sending`, `leader`). A commit that was passed on and has no answer
keeps its attempt here: every entry is searched for it before it is appended, and it is given up in an entry before it
is reported as failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    MergelakeError,
    NotFoundError,
    UnavailableError,
    error,
)
from mergelake.core.base.ids import IdSource
from mergelake.log.backends.backend import LogBackend
from mergelake.log.backends.backends import Backends
from mergelake.log.backends.intake import TAKEN_BYTES_MAX, Intake, Left, encode_left
from mergelake.log.commit.contention import ContentionBackoff, Way
from mergelake.log.commit.group import (
    CommitQueue,
    Committed,
    Proposal,
    Request,
    propose,
    states_within,
    taken_along,
    within,
)
from mergelake.log.commit.preparing import Preparing
from mergelake.log.commit.sending import Sending
from mergelake.log.model.operations import WRITER_DIGITS, Entry, LogOp, gives_space_back, writer_of
from mergelake.log.reading import truncate
from mergelake.log.reading.checkpointing import Checkpointing, Knowledge
from mergelake.log.reading.head_freshness import HEAD_FRESHNESS_S, Instant
from mergelake.log.reading.recent import Recent
from mergelake.log.reading.tail import LogReader
from mergelake.log.reading.verify import LogReport, Progress, repair_checkpoints, verify_log
from mergelake.log.storage.at_once import apart
from mergelake.log.storage.encoding import TIME_END_MS, encode_entry
from mergelake.log.storage.layout import SegmentLayout
from mergelake.log.storage.machine import S, StateMachine
from mergelake.store.interface.protocol import OutcomeUnknown, PutOutcome, Store, Stored
from mergelake.store.objects.reserve import freeing

RETRIES_MAX = 100
"""Lost races after which a commit gives up."""
AHEAD = 4
"""Positions read at once after two lost races: to catch up with a writer without pauses, in one round trip."""
KNOCKS_SINCE = 128
"""Versions before the head for which a member in the intake counts as a sign of another writer."""
LOOK_EVERY = 4
"""Lost races after which a commit reads the head, even if each race seemed to be for the newest position."""
UNKNOWN_MAX = 12
"""Requests to a silent store after which the outcome of a commit is reported as unknown."""
_BACKOFF_FIRST_S = 0.002
_BACKOFF_MAX_S = 0.5
_OPEN_MAX = 3
"""Times that a log is opened before the store is reported as too slow."""

_logger = logging.getLogger("mergelake.log")


class Log(Preparing[S]):
    """One log under `prefix` of a store, and the newest state known to this process."""

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
        head_freshness_s: float = HEAD_FRESHNESS_S,
        backends: Backends | None = None,
    ) -> None:
        """`threads` read long tails; `head_freshness_s` is how long knowledge of the head is believed, in seconds;
        `backends` tells how logs that are not in the bucket are reached.
        """
        self._store = store
        self.prefix = prefix
        self.backends = backends or Backends()
        choose = partial(self.backends.of, store=store, prefix=prefix, clock=clock, threads=threads)
        self._reader = LogReader(store, prefix, machine, choose, threads)
        self._machine = machine
        self._clock = clock
        self._ids = ids
        self.author = author
        """Name of this writer, for people."""
        self._head_freshness_s = head_freshness_s
        self._lock = threading.RLock()
        self._line: CommitQueue[S] = CommitQueue()
        self._intake_check_due = False  # whether others may have left members in the intake
        self._writer = writer_of(ids.new_id())
        self._contention = ContentionBackoff(clock, ids, self._writer)
        self._lagging = True  # whether a lost race may be one of many
        self._refreshes_begun = self._refresh_known = 0  # number of the last one begun, and of the last successful one
        self._state = machine.initial()
        self._known = Instant.now(clock)  # when the position after the state was free
        self._opened = self._known  # when the state was read from a checkpoint
        self._checkpoints = Checkpointing(
            store, self._reader, machine, clock=clock, ids=ids, head_freshness_s=head_freshness_s, adopt=self._adopt
        )
        peers = self.backends.peers
        self._sending: Sending[S] | None = None
        if peers is not None:
            self._sending = Sending(peers, prefix, machine, clock=clock, draw=self._attempt, author=author)
            self._sending.complete = self._reader.decisions.complete

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
        """The backend of the entry after the state."""
        return self._reader.backend_of(self._state)

    def refresh(self) -> S:
        """Follow the tail: one GET if there is no new entry, concurrent ones if there are many.

        Threads that call it while another one refreshes share the next refresh.
        """
        begun = self._refreshes_begun
        with self._lock:
            if self._refresh_known <= begun:
                self._refresh_head()
            return self._state

    def fresh(self, within_s: float = float("inf")) -> S:
        """The newest state known here, refreshed if it is too old to be believed, or older than `within_s`."""
        known = self._usable() and self._known.age_s(self._clock) <= within_s
        return self._state if known else self.refresh()

    def version_at(self, timestamp_ms: int) -> int:
        """The last version not after a time, as far as history is kept; BAD_ARGUMENTS for a time before the first."""
        while True:
            state = self._state
            try:
                return self._reader.version_at(state, timestamp_ms)
            except CorruptDataError:  # a missing entry may have been collected since: then the history has moved on
                if self.refresh().history == state.history:
                    raise

    def stored_ms(self, version: int) -> int | None:
        """When an entry was written to the bucket, by the store's clock; None if it is gone. One HEAD.

        An entry that has not reached the bucket yet is copied there first.
        """
        try:
            self.backend.seal(version)
            return self._store.head(self._reader.sealed_key(version)).modified_ms
        except NotFoundError:
            return None

    def wait(self, timeout_s: float, poll_s: float | None = None) -> S:
        """The newest state as soon as there is a newer one than is known here; after `timeout_s` the one known.

        `poll_s` is the pause between two polls (one GET each) of a log in the bucket; None is short pauses first, then
        longer ones, up to a second. A log in ZooKeeper notifies.
        """
        state = self._state
        arrived = self.backend.wait(state.version + 1, timeout_s, poll_s)
        newest = self.refresh() if arrived or not self._is_head_fresh() else self._state
        return self._past_undecided(newest, timeout_s) if arrived and newest.version == state.version else newest

    def when_changed(self, wake: Callable[[], None]) -> None:
        """Call `wake` once when there is a new entry, if the log can notify (ZooKeeper); otherwise never."""
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
            if version >= state.history:  # kept, as far as is known here; it may have been collected since
                state = self.refresh()
            if version >= state.history:
                raise
            way_out = f"Versions from {state.history} on are kept, and those with a tag"
            raise error("BAD_ARGUMENTS", f"Version {version} has been collected", way_out) from None

    def retire_checkpoints(self, before: int) -> int:
        """First step of cutting the log to what versions from `before` on need, and thinning; see `truncate`.

        Returns the version of the checkpoint at which it may be cut after `head_freshness.GRACE_MIN_S`, 0 for none yet.
        """
        state = self._state
        return truncate.retire_checkpoints(self._store, self._reader, before, state.version, state.history)

    def truncate(self, base: int, *, sweep: bool = True) -> int:
        """Second step: delete the entries before checkpoint `base`, the result of the first; returns how many.

        With `sweep`, also the segments that no later checkpoint names. The newest state known here must keep nothing
        older (`AdvanceGcHorizon`).
        """
        return truncate.truncate(self._reader, base, self._state.history, sweep)

    def verify(self, on_progress: Progress | None = None) -> LogReport:
        """Read and replay the whole log, and compare the result with the checkpoints and the newest state."""
        first = 0
        with self._lock:
            for _ in range(_OPEN_MAX):
                began = Instant.now(self._clock)
                try:
                    self._open()
                    newest = self._state
                except CorruptDataError:
                    newest = None
                report = verify_log(self._reader, self._machine, newest, on_progress)
                # If the log was cut while it was read, missing entries were collected: its beginning is gone too.
                missing = any(problem.kind == "entry" for problem in report.problems)
                # If two replays give the same result, and the second one was quick, it is damage.
                confirmed = report.first == first and began.age_s(self._clock) <= self._head_freshness_s
                if not missing or confirmed or self._reader.backend.read(report.first) is not None:
                    return report
                first = report.first
            raise UnavailableError("The log was cut while it was looked at, each time", hint="Try again")

    def repair_checkpoints(self, report: LogReport) -> list[str]:
        """Repair the checkpoints and the hint that `verify` reported; returns what was done, one line per action.

        A new checkpoint of the newest state is written and read back, then the bad ones are emptied. One without an
        older replacement is left unchanged.
        """
        if not report.problems or any(problem.kind == "entry" for problem in report.problems):
            return []  # in a log with a gap a checkpoint may be the only remaining data
        with self._lock:
            # Not the state known here, which may come from a bad checkpoint.
            self._state, self._known = self._behind(report.state)
            head = self._state.version
            return repair_checkpoints(self._store, self._reader, self.write_checkpoint, report, head)

    def _behind(self, state: S) -> tuple[S, Instant]:
        """The newest state, from a verified one of any age; UnavailableError if entries in between are gone.

        The position after an old state may be free again, so a listing must show no newer entry.
        """
        for _ in range(_OPEN_MAX):
            began = Instant.now(self._clock)
            state = self._reader.follow(state)
            if self._settle_after(state):
                continue
            if self._reader.last_listed() <= state.version:
                return state, began
        raise UnavailableError("The log went on, and was cut, while it was looked at", hint="Try again")

    def entries(self, first: int = 1, last: int | None = None) -> Iterator[Entry]:
        """Committed entries, `first` to `last` (inclusive; None: the newest known here), in order."""
        return self._reader.entries(first, self._state.version if last is None else last)

    def commit(
        self, build: Callable[[S], Sequence[LogOp]], *, passes_on: Callable[[], bool] = lambda: True
    ) -> Committed[S]:
        """Append the operations that `build` returns for the newest state; it is called again after each lost race.

        No operations means that there is nothing (left) to do. `build` may raise to give up; if several threads commit,
        it may run in another thread. `passes_on`, called after each `build`, tells whether another process may append
        its operations, on a newer state or behind operations of others in the same entry: not if they depend on the
        state beyond their preconditions.
        Raises the error of a rejected operation, ConflictError if the race is lost too often, UnavailableError if the
        outcome is unknown: the entry may be in the log.
        """
        request = Request(build, passes_on=passes_on)
        self.commit_all([request])
        return request.answer()

    def commit_all(self, requests: Sequence[Request[S]]) -> None:
        """Settle each of these requests: they may share an entry with each other, and with others.

        A checkpoint that is due then is written by a background thread.
        """
        while left := [request for request in requests if not request.done]:
            if not self._line.join(*left):
                return
            try:
                with self._lock:
                    self._commit(self._line.take())
            except BaseException:
                self._line.leave(*left)
                raise
            self._line.leave()
            self._start_writing()
            if self._intake_check_due:
                self._intake_check_due = False
                apart(self._check_intake, "mergelake-intake")

    def serve(self, recent: Recent | None) -> None:
        """Take commits of other processes from now on, adding each entry to `recent`; None: stop.

        Meanwhile none is passed on: two processes that pass commits to each other would wait for each other.
        """
        with self._lock:
            self._reader.recent = recent

    def _commit(self, group: list[Request[S]]) -> None:
        """Settle every request of the group."""
        try:
            self._commit_or_raise(group)
        except Exception as failure:  # noqa: BLE001  every waiting caller gets it
            for request in group:
                request.settle(self._reported(request, failure))
        except BaseException:
            for request in group:
                request.settle(_not_known(self._state.version + 1, "the thread that committed it was stopped"))
            raise

    def _commit_or_raise(self, group: list[Request[S]]) -> None:
        refreshed = not self._usable()
        if refreshed:
            self._refresh_head()
        if self._sending is not None and self._reader.recent is None:
            self._pass_on(self._sending, group)
            if group and not self._is_head_fresh():
                self._refresh_head()
                refreshed = True
        if not group:
            return
        for races_lost in range(RETRIES_MAX):
            if races_lost and (self._lagging or races_lost % LOOK_EVERY == 0):
                self._refresh_head(AHEAD if races_lost > 1 else 1)
                refreshed = True
            self._resolve(group)
            before, head = self._state, self._head()
            proposal = self._proposed(group, head)
            if proposal is None:
                refreshed = True
                continue
            if not proposal.ops and not refreshed:
                # Only an append proves that the state is the newest. Without one, refresh: a remembered insert may have
                # been dropped since, by another process.
                self._refresh_head()
                self._resolve(group)
                before, head = self._state, self._head()
                proposal = propose(self._machine, before, group, head)
            if proposal.waiting:
                self._line.put_back(proposal.waiting)
                del group[len(group) - len(proposal.waiting) :]
            if not (proposal.ops or proposal.given_up):  # also if all are in the log already
                proposal.settle(None, races_lost)
                return
            own = proposal.entry(head)
            after = proposal.state if own.ops else self._machine.fold(before, [own])
            try:
                entry = self._land(own, after, may_leave=proposal.passes_on())
            except Exception:
                proposal.settle_refused(landed=False)
                raise
            if entry is not None:
                if entry.attempt != own.attempt:
                    try:
                        proposal = within(self._machine, before, proposal, entry, own.attempt)
                    except Exception as cause:  # it is in the log, but the states after it could not be computed
                        raise _not_known(entry.version, str(cause)) from cause
                proposal.settle(entry, races_lost)
                self._checkpoints.note(self._knowledge())
                self._intake_check_due |= self._contention.intake_check_due()
                return
        raise ConflictError(
            f"Lost {RETRIES_MAX} races for the next position of the log",
            hint="Fewer writers, or larger and fewer commits",
        )

    def _pass_on(self, sending: Sending[S], group: list[Request[S]]) -> None:
        """Pass the group on to the leader, if there is one; requests without an outcome stay in the group."""
        began = Instant.now(self._clock)
        passed = sending.pass_on(self._state, group)
        self._state = passed.state
        if passed.landed:  # each entry was created after the request was sent: until then its position was free
            self._known = began
        for request, committed in passed.landed:
            request.settle(committed)
        self._line.put_back(passed.waiting)
        group[:] = [request for request in group if not request.done and request not in passed.waiting]

    def _resolve(self, group: list[Request[S]]) -> None:
        """Search the new entries for each request in doubt; those that are settled leave the group.

        So an attempt is appended here only after all entries since it was built have been read.
        """
        doubts: dict[int, list[Request[S]]] = {}
        for request in group:
            if request.doubt is not None:
                doubts.setdefault(request.doubt.version, []).append(request)
        for requests in doubts.values():
            try:
                self._find(requests)
            except (CorruptDataError, NotFoundError) as cause:
                for request in requests:
                    request.settle(_not_known(self._state.version, str(cause)))
        group[:] = [request for request in group if not request.done]

    def _find(self, requests: Sequence[Request[S]]) -> None:
        """Search for requests in the entries after the state up to which they are known not to be in the log."""
        state = requests[0].doubt
        assert state is not None
        if state.version < self._state.history - 1:
            raise CorruptDataError("Entries in which it may stand are no longer kept")
        left = {request.attempt: request for request in requests}
        for entry in self._reader.entries(state.version + 1, self._state.version):
            before, (state, after) = state, states_within(self._machine, state, entry, left.keys())
            for attempt, own in after.items():
                request = left.pop(attempt)
                with contextlib.suppress(Exception):
                    request.build(before)  # so that what it remembers of its last call matches the log
                request.settle(Committed(own, entry))
        for request in left.values():
            request.doubt = self._state

    def _reported(self, request: Request[S], failure: Exception) -> Exception:
        """The failure to report: the outcome is unknown while another process may still append the request."""
        if request.doubt is None or isinstance(failure, UnavailableError):
            return failure
        return _not_known(self._state.version + 1, f"it was passed on, and: {failure}")

    def _land(self, own: Entry, after: S, *, may_leave: bool) -> Entry | None:
        """Append operations, or (if they may be) leave them in the intake; returns the entry that holds them, or None.

        `own` is an entry of these operations alone, `after` the state after it.
        """
        intake = self.backend.intake
        way = self._contention.way() if intake is not None else Way.APPEND
        # Members of other processes must keep their own attempts. Appending at once wins against a gatherer, who waits.
        if way is Way.LEAVE and (own.members or not may_leave):
            way = Way.APPEND
        if intake is not None and not self._contention.alone:
            own = dataclasses.replace(own, members=own.parties)  # shows losers of this race that its writer gathers
        if intake is not None and way is Way.LEAVE and (left := self._to_leave(own)) is not None:
            return self._left(intake, own, after, left)
        if way is Way.WAIT:
            began = Instant.now(self._clock)
            holder = self._awaited(own.version, self._contention.pauses_for_other(self.backend.tells))
            if holder is not None:
                self._contention.lost(holder, included=False, paced=False)
                self._lagging = False
                return self._moved_on(own, after, holder, began, left=False)
        if intake is not None and way is Way.GATHER:
            intake.sweep(own.version)
            self._contention.gather()
            bundle = self._gathered(intake, own, after)
            self._contention.came_late(intake.late)
            return self._stored(*bundle, own=own)
        self._lagging = True  # the log may have gone on further than to the next entry
        return self._stored(own, after, own=own)

    def _to_leave(self, own: Entry) -> bytes | None:
        """The bytes of a member for the intake; None if it is too long."""
        data = encode_left(Left(own.version, own.attempt, own.author, own.ops))
        return data if len(data) <= TAKEN_BYTES_MAX else None

    def _left(self, intake: Intake, own: Entry, after: S, data: bytes) -> Entry | None:
        """Leave a member in the intake, and await the entry at its position; returns as `_land`.

        From here on only that entry decides whether the member is in the log: until it is read, the outcome is unknown.
        """
        began = Instant.now(self._clock)
        try:
            try:
                with freeing(gives_space_back(own.ops)):
                    intake.leave(own.version, own.attempt, data)
                self._contention.took(began.age_s(self._clock))
            except MergelakeError as problem:  # it may have been written, or arrive late
                _logger.warning("a member may not have reached the intake: %s", problem)
            holder = self._awaited(own.version, self._contention.pauses(self.backend.tells))
            if holder is None and (rank := intake.rank(own.version, own.attempt)):
                holder = self._awaited(own.version, self._contention.pauses_behind(rank, self.backend.tells))
            if holder is None:
                return self._stored(*self._gathered(intake, own, after), own=own, left=True)
            self._contention.lost(holder, holder.holds(own.attempt), paced=True)
            self._lagging = not holder.members
            return self._moved_on(own, after, holder, began, left=True)
        except UnavailableError:
            raise
        except Exception as cause:
            raise _not_known(own.version, str(cause)) from cause

    def _awaited(self, version: int, pauses: Iterable[float]) -> Entry | None:
        """The entry at a position as soon as it exists; None if it does not after the last of `pauses`, in seconds."""
        for pause_s in pauses:
            self.backend.pause(version, pause_s)
            began = Instant.now(self._clock)
            try:
                holder = self._reader.try_entry(version)
            except (UnavailableError, CorruptDataError):
                continue
            if holder is not None:
                return holder
            if self._is_head_fresh():
                self._known = began
        return None

    def _gathered(self, intake: Intake, own: Entry, after: S) -> tuple[Entry, S]:
        """The entry with the members that others left for its position, and the state after it.

        Operations that free space must succeed on a full disk, where others fail: they are appended alone.
        """
        self._lagging = False
        if gives_space_back(own.ops):
            return own, after
        left = intake.take(own.version, own.attempt, self._contention.near)
        return taken_along(self._machine, self._state, own, after, left)

    def _stored(self, entry: Entry, after: S, *, own: Entry, left: bool = False) -> Entry | None:
        """Append the entry; the new state is `after` if it is stored, otherwise that after the winner's entry.

        Returns the entry at the position if it holds our attempt, else None. `own` is the entry without members from
        the intake; `left`: its operations are in the intake, too.
        """
        sent = Instant.now(self._clock)
        holder = self._append(entry)
        self._contention.took(sent.age_s(self._clock) / (1 if holder is None else 2))  # a loser has also read an entry
        if holder is None:
            self._contention.won(entry, [writer_of(member.attempt) for member in own.parties])
        else:
            self._contention.lost(holder, holder.holds(entry.attempt), paced=False)
        return self._moved_on(entry, after, holder, sent, left=left)

    def _moved_on(self, entry: Entry, after: S, holder: Entry | None, since: Instant, *, left: bool) -> Entry | None:
        """Apply the entry at the position: `holder` or, if that is None, `entry`; returns as `_stored`."""
        landed = entry if holder is None else holder if holder.holds(entry.attempt) else None
        if holder is not None:
            holder = self._settled(holder)
            self._remember(holder)
        if self._is_head_fresh():
            if holder is None:
                self._state, self._known = after, since
            else:
                self._state = self._machine.fold(self._state, [holder])
            return landed
        # The position may have been taken, and collected, before it was created again.
        try:
            self._open()
        except Exception as cause:
            if landed is not None or left:
                raise _not_known(entry.version, str(cause)) from cause
            raise
        # The entry there may have been created since, in place of one that held the member that was left.
        if (landed is not None or left) and self._state.history > entry.version:
            raise _not_known(entry.version, "this process stood still while the log went on, and was cut")
        return landed

    def _head(self) -> Entry:
        """The next entry, without operations."""
        own_ms = self._clock.now_ms()  # ignored if it is not a valid time
        now_ms = max(own_ms if own_ms < TIME_END_MS else 0, self._state.timestamp_ms)
        attempt = self._attempt()
        return Entry(self._state.version + 1, attempt, now_ms, self.author, ())

    def _attempt(self) -> str:
        """A new attempt; its first `WRITER_DIGITS` digits identify the writer."""
        return self._writer + self._ids.new_id()[WRITER_DIGITS:]

    def _is_head_fresh(self) -> bool:
        return self._known.age_s(self._clock) <= self._head_freshness_s

    def _usable(self) -> bool:
        """Whether the state can be used: its head is believed, and the segments that it has yet to read still exist.

        Segments that no newer checkpoint names are deleted after a grace period at the earliest (`truncate`).
        """
        young = self._opened.age_s(self._clock) <= self._head_freshness_s / 2
        return self._is_head_fresh() and (young or self._machine.complete(self._state, self._reader.segments))

    def _proposed(self, group: list[Request[S]], head: Entry) -> Proposal[S] | None:
        """The proposal of the group on the state; None if the state became too old meanwhile, and was refreshed.

        Segments of an old state may have been deleted while this thread was suspended; that is no damage.
        """
        try:
            proposal = propose(self._machine, self._state, group, head)
        except (NotFoundError, CorruptDataError):
            if self._usable():
                raise
        else:
            gone = any(isinstance(failure, NotFoundError | CorruptDataError) for _, failure in proposal.refused)
            if not gone or self._usable():
                return proposal
        self._refresh_head()
        return None

    def _refresh_head(self, ahead: int = 1) -> None:
        """Follow the log from the state, or open it anew if that is too old. `ahead`: see `LogReader.follow`."""
        self._refreshes_begun += 1
        began = Instant.now(self._clock)
        if self._usable():
            state = self._reader.follow(self._state, ahead)
            if self._is_head_fresh():
                self._state, self._known, self._refresh_known = state, began, self._refreshes_begun
                return
        self._open()

    def _open(self) -> None:
        """Open the log: read the head from a checkpoint."""
        for _ in range(_OPEN_MAX):
            self._refreshes_begun += 1
            began = Instant.now(self._clock)
            try:
                state = self._reader.newest()
            except CorruptDataError:
                if began.age_s(self._clock) <= self._head_freshness_s:
                    raise
                continue  # a listed or hinted checkpoint may have been removed meanwhile, which is no damage
            if began.age_s(self._clock) > self._head_freshness_s:
                continue  # entries after the checkpoint may have been removed meanwhile
            if state.version == 0 < self._state.version:
                raise error("UNKNOWN_TABLE", "The log is gone: its table was dropped, and has been collected since")
            if state.version < self._state.version:
                raise CorruptDataError(
                    "The log ends before a version that was in it",
                    object_key=self._reader.backend.key(state.version + 1),
                    expected=str(self._state.version),
                    found=str(state.version),
                )
            self._state, self._known, self._refresh_known = state, began, self._refreshes_begun
            self._opened = began
            return
        raise UnavailableError(f"The log could not be read within {self._head_freshness_s:.0f} s", hint="Try again")

    def _append(self, entry: Entry) -> Entry | None:
        """None if the entry got its position, else the entry that holds it."""
        data = encode_entry(entry)
        sent, reason = False, ""
        for question in range(UNKNOWN_MAX):
            if question:
                self._pause(question)
            # After "exists already", too, it may be our own entry, of a request whose reply was lost: read it.
            try:
                with freeing(gives_space_back(entry.ops)):
                    outcome = self._create(entry.version, data)
                if isinstance(outcome, Stored):
                    self._remember(entry, data)
                    return None
                sent, reason = True, outcome.reason if isinstance(outcome, OutcomeUnknown) else reason
                holder = self._reader.try_entry(entry.version)
            except (UnavailableError, CorruptDataError) as problem:
                reason = reason or str(problem)
                continue  # also for an entry that was truncated in transit
            except InvalidInputError as refusal:
                # If the first request is refused, the entry is not there. A refusal after one was sent (of expired
                # credentials, say) does not tell, and must not be taken for a failed commit.
                if not sent or refusal.name == "UNKNOWN_FORMAT_VERSION":
                    raise
                raise _not_known(entry.version, str(refusal)) from refusal
            if holder is not None:
                if holder.attempt != entry.attempt:
                    return holder
                self._remember(entry, data)
                return None
        raise _not_known(entry.version, reason or "the store does not answer")

    def _remember(self, entry: Entry, data: bytes | None = None) -> None:
        """Add an entry to `recent`; `data` are its bytes if it was appended here."""
        prepare = entry.prepare
        if self._reader.recent is not None and (prepare is None or prepare.decision is not None):
            self._reader.recent.add(entry, data or encode_entry(entry), own=data is not None)

    def _create(self, version: int, data: bytes) -> PutOutcome:
        try:
            return self.backend.create(version, data)
        except UnavailableError as cause:
            return OutcomeUnknown(str(cause))

    def _pause(self, attempt: int) -> None:
        """Pause between two requests to a silent store."""
        ceiling = min(_BACKOFF_FIRST_S * 2 ** min(attempt, 16), _BACKOFF_MAX_S)
        self._clock.sleep_s(ceiling * self._ids.jitter())

    def _knowledge(self) -> Knowledge[S]:
        return Knowledge(self._state, self._known, self.backend)

    def _start_writing(self) -> None:
        if self._checkpoints.waits:
            apart(self._checkpoints.write_due, "mergelake-checkpoint")

    def _adopt(self, version: int, layout: SegmentLayout) -> None:
        """Hold parts in the segments of a checkpoint that was stored."""
        with self._lock:
            self._state = self._machine.adopt(self._state, version, layout, self._reader.segments)

    def _check_intake(self) -> None:
        if (intake := self.backend.intake) is not None:
            self._contention.knocked = intake.knocked(self._state.version - KNOCKS_SINCE)

    def write_checkpoint(self) -> None:
        """Write the newest state as a checkpoint, and the hint that finds it.

        Only if there is none: one that was emptied must stay so. The hint does not name one that was written too late.
        """
        self._checkpoints.write(self._knowledge)

    @property
    def checkpoint_failure(self) -> str:
        """Why the last checkpoint that was due could not be written; empty if it was."""
        return self._checkpoints.failure

    def has_checkpoint(self, version: int) -> bool:
        """Whether there is a checkpoint of that version, complete and undamaged."""
        return self._reader.sound(version)


def _not_known(version: int, reason: str) -> UnavailableError:
    return UnavailableError(
        f"It is not known whether version {version} was committed: {reason}",
        hint="Look at the table's history before trying again, or use a dedup_token and just try again",
    )
