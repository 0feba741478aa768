"""Group commit: the requests of several callers in one entry, and the result of each.

While an append is under way, the threads of a process that want to commit queue up. Then the first of them leads: it
takes them all (up to `CALLERS_MAX`, and `BYTES_MAX` of operations), in their order, and builds the operations of each
**on the state after those before it**. Requests that are refused or raise are left out; the others go into one entry.
After a lost race all of them are built anew on the winner's state, including the refused ones, which may be valid
there.

Members that other processes left in the intake (`intake`) follow the group (`taken_along`), checked by their
preconditions only, as they were built elsewhere. For a group that another process appended, `within` computes the
states.

A caller cannot tell whether it was alone: it gets the state right after its own operations, with the version of the
entry.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, cast

from mergelake.log.backends.intake import Left
from mergelake.log.model.conflict import Reject
from mergelake.log.model.operations import Entry, LogOp, Member
from mergelake.log.storage.encoding import encode_ops
from mergelake.log.storage.machine import S, StateMachine

CALLERS_MAX = 256
"""Callers that share an entry."""
BYTES_MAX = 256 << 10
"""Bytes of operations of a group; a single request may be larger."""

_logger = logging.getLogger("mergelake.log")


@dataclass(frozen=True, slots=True)
class Committed(Generic[S]):
    """A commit that is in the log, or that had no operations."""

    state: S
    """The state right after it."""
    entry: Entry | None
    """The entry that holds it, perhaps with operations of others; None if `build` returned no operations."""
    races_lost: int = 0
    """Positions lost to other processes."""

    @property
    def version(self) -> int:
        """The version of the entry, or that of the state if there is none."""
        return self.entry.version if self.entry else self.state.version


@dataclass(eq=False, slots=True)
class Request(Generic[S]):
    """The commit of one caller, and its result once it is settled."""

    build: Callable[[S], Sequence[LogOp]]
    committed: Committed[S] | None = None
    failure: Exception | None = None
    woken: threading.Event | None = None
    """Set for a waiting thread when the request is settled, or when the thread has to lead."""
    passes_on: Callable[[], bool] = lambda: True
    """Called after `build`: whether another process may append its operations."""
    attempt: str = ""
    """Set if another process knows it: under this id it is in the log at most once, whichever process appends it."""
    author: str = ""
    """The author, for a request of another process."""
    size: int = 0
    """Bytes of its operations, if known in advance."""
    doubt: S | None = None
    """Set if another process may still append it: a state up to which the log does not hold it."""
    put_back: bool = False
    """Whether an earlier group had no room for it."""
    rejected: bool = False
    """Whether it failed by its precondition."""

    @property
    def done(self) -> bool:
        """Whether it is settled."""
        return self.committed is not None or self.failure is not None

    def settle(self, answer: Committed[S] | Exception) -> None:
        """Set the result, unless there is one, and wake the waiting thread."""
        if self.done:
            return
        if isinstance(answer, Exception):
            self.failure = answer
        else:
            self.committed = answer
        if self.woken is not None:
            self.woken.set()

    def answer(self) -> Committed[S]:
        """The result; raises its failure."""
        if self.failure is not None:
            raise self.failure
        assert self.committed is not None
        return self.committed


class CommitQueue(Generic[S]):
    """The threads that want to commit to one log. One of them leads, unless none waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Request[S]] = deque()
        self._led = False
        self._next: threading.Event | None = None  # of the thread that leads next

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, *requests: Request[S]) -> bool:
        """Wait with these requests. True: lead now, with `take`, and `leave` in any case. False: all are settled.

        A thread that has led, and whose requests are not all settled, joins again with the others.
        """
        woken = requests[0].woken or threading.Event()  # a thread that joins again may have been chosen to lead
        with self._lock:
            for request in requests:
                if request.woken is None:
                    self._waiting.append(request)
                    request.woken = woken
            if not self._led:
                self._led = True
                return True
        try:
            while not all(request.done for request in requests):
                woken.wait()
                woken.clear()
                with self._lock:
                    if self._next is woken:
                        self._next = None
                        return True
        except BaseException:  # a signal: this thread cannot lead any more
            with self._lock:
                leads = self._next is woken
                for request in requests:
                    if request in self._waiting:
                        self._waiting.remove(request)
            if leads:
                self.leave()
            raise
        return False

    def take(self) -> list[Request[S]]:
        """The group: the oldest requests. Those of this process stand together, as they are one member of the entry:
        before the others, unless one of those had no room before.
        """
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), CALLERS_MAX))]
        turned = any(request.attempt and request.put_back for request in group)
        return sorted(group, key=lambda request: bool(request.attempt) is not turned)

    def put_back(self, requests: Sequence[Request[S]]) -> None:
        """Return requests for which there was no room to the front of the queue."""
        for request in requests:
            request.put_back = True
        with self._lock:
            self._waiting.extendleft(reversed(requests))

    def leave(self, *gone: Request[S]) -> None:
        """Let the next thread lead; requests that are `gone` leave the queue."""
        with self._lock:
            for request in gone:
                if request in self._waiting:
                    self._waiting.remove(request)  # interrupted before `take`
            self._led = bool(self._waiting)
            self._next = self._waiting[0].woken if self._waiting else None
            if self._next is not None:
                self._next.set()


@dataclass(slots=True)
class Proposal(Generic[S]):
    """The operations of a group, checked on one state."""

    state: S
    """The state after all of them."""
    ops: list[LogOp] = field(default_factory=list)
    heard: list[tuple[Request[S], S, int]] = field(default_factory=list)
    """Accepted requests, each with the state after it and its number of operations."""
    refused: list[tuple[Request[S], Exception]] = field(default_factory=list)
    waiting: list[Request[S]] = field(default_factory=list)
    """Requests for which there was no room, in order: they are not in the group."""

    @property
    def given_up(self) -> list[Request[S]]:
        """Requests in doubt that are not appended: the entry lists them, so that no other process can append them."""
        silent = [request for request, _, count in self.heard if not count]
        return [r for r in (*silent, *(request for request, _ in self.refused)) if r.doubt is not None]

    def passes_on(self) -> bool:
        """Whether another process may append these operations."""
        return all(request.passes_on() for request, _, count in self.heard if count)

    def entry(self, head: Entry) -> Entry:
        """The entry to append. Attempts that another process knows are members of their own."""
        members: list[Member] = []
        for request, _, count in self.heard:
            attempt, before = request.attempt or head.attempt, members[-1:]
            if count and before and before[0].attempt == attempt:
                members[-1] = Member(attempt, head.author, before[0].ops + count)
            elif count:
                members.append(Member(attempt, request.author or head.author, count))
        if not any(member.attempt == head.attempt for member in members):
            members.insert(0, Member(head.attempt, head.author, 0))  # identifies the entry after a lost reply
        members += [Member(request.attempt, head.author, 0) for request in self.given_up]
        return dataclasses.replace(head, ops=tuple(self.ops), members=tuple(members) if len(members) > 1 else ())

    def settle(self, entry: Entry | None, races_lost: int) -> None:
        """Settle the whole group: the entry is in the log, or there was nothing to append."""
        for request, state, count in self.heard:
            request.settle(Committed(state, entry if count else None, races_lost))
        self.settle_refused()

    def settle_refused(self, *, landed: bool = True) -> None:
        """Settle the refused requests; those in doubt only if the entry `landed`, which excludes them for good."""
        for request, failure in self.refused:
            if landed or request.doubt is None:
                request.settle(failure)


def propose(machine: StateMachine[S], state: S, requests: Sequence[Request[S]], head: Entry) -> Proposal[S]:
    """Build and check the operations of each request in turn. `head` is the next entry, without operations."""
    out = Proposal(state)
    size = 0
    for at, request in enumerate(requests):
        before = _without_version(out.state, state.version) if out.ops else state
        request.rejected = False
        try:
            ops = tuple(request.build(before))
        except Exception as failure:  # noqa: BLE001  it is raised again, in the caller's thread
            out.refused.append((request, failure))
            continue
        if not ops:
            out.heard.append((request, out.state, 0))
            continue
        if len(requests) > 1:
            size += request.size or len(encode_ops(ops))
            if out.ops and size > BYTES_MAX:
                out.waiting = list(requests[at:])
                break
        after = machine.step(before, dataclasses.replace(head, ops=ops))
        if isinstance(after, Reject):
            request.rejected = True
            out.refused.append((request, after.as_error()))
            continue
        out.state = after
        out.ops += ops
        out.heard.append((request, after, len(ops)))
    return out


def taken_along(machine: StateMachine[S], state: S, own: Entry, after: S, left: Iterable[Left]) -> tuple[Entry, S]:
    """An entry with the members that others left for its position after its own, and the state after all of it.

    `state` is the one before the entry, `after` the one after its own operations. Each member is checked at its own
    place; invalid and malformed ones are left out: their senders find the position taken without them, and try again.
    """
    members, ops = list(own.parties), list(own.ops)
    for each in left:
        if any(each.attempt == member.attempt for member in members):
            continue
        try:
            result = machine.step(_without_version(after, state.version), dataclasses.replace(own, ops=each.ops))
        except Exception as cause:  # noqa: BLE001  a malformed member may fail in any way
            _logger.warning("a member that %s left says what cannot be: %s", each.author, cause)
            continue
        if not isinstance(result, Reject):
            after = result
            ops += each.ops
            members.append(Member(each.attempt, each.author, len(each.ops)))
    return dataclasses.replace(own, ops=tuple(ops), members=tuple(members)), after


def within(machine: StateMachine[S], state: S, proposal: Proposal[S], entry: Entry, attempt: str) -> Proposal[S]:
    """The proposal of a group, with its states in an entry that another writer appended, perhaps after other members.

    `state` is the one before the entry, on which the group was checked. The writer of the entry has checked it again.
    """
    own = sum(count for _, _, count in proposal.heard)
    at = len(entry.until(attempt).ops) - own
    held = machine.fold(state, [dataclasses.replace(entry, ops=entry.ops[:at], members=())]) if at else state
    out = Proposal(state, proposal.ops, refused=proposal.refused)
    for request, _, count in proposal.heard:
        if count:
            before = _without_version(held, state.version)
            held = machine.fold(before, [dataclasses.replace(entry, ops=entry.ops[at : at + count], members=())])
            out.state, at = held, at + count
        out.heard.append((request, out.state, count))
    return out


def states_within(
    machine: StateMachine[S], state: S, entry: Entry, attempts: Collection[str]
) -> tuple[S, dict[str, S]]:
    """The state after an entry, and the state right after the operations of each of these members."""
    after: dict[str, S] = {}
    begun, start, end = False, 0, 0
    now = state

    def fold_to(until: int) -> None:
        nonlocal now, begun, start
        before = _without_version(now, state.version) if begun else state
        now = machine.fold(before, [dataclasses.replace(entry, ops=entry.ops[start:until], members=())])
        begun, start = True, until

    for member in entry.parties:
        end += member.ops
        if member.attempt in attempts:
            fold_to(end)
            after[member.attempt] = now
    if not begun or start < len(entry.ops):
        fold_to(len(entry.ops))
    return now, after


def _without_version(state: S, version: int) -> S:
    """A state within an entry, for checking the next operation of that entry: its version is the one before it."""
    return cast(S, dataclasses.replace(cast(Any, state), version=version))
