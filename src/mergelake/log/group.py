"""Several callers' commits in one entry: who is in it, and what each of them hears.

While an append is under way, the threads of a process that want to commit queue up. Then the first of them leads: it
takes them all (up to `CALLERS_MAX`, and `BYTES_MAX` of operations), in their order, and asks each what it wants to say
**on the state that those before it leave**. What is refused, or raises, is left out; the others go into one entry. A
lost race is lost by all: everybody is asked anew on the winner's state, also those who had been refused, for what stood
in their way may be gone.

Members that other processes left in the intake (`intake`) come behind the group in the same way (`taken_along`), judged
by their preconditions, for whoever built them is elsewhere; and a group that another process appended finds its states
there (`within`).

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

from mergelake.log.conflict import Reject
from mergelake.log.encoding import encode_ops
from mergelake.log.intake import Left
from mergelake.log.machine import S, StateMachine
from mergelake.log.operations import Entry, LogOp, Member

CALLERS_MAX = 256
"""Callers that share an entry."""
BYTES_MAX = 256 << 10
"""Bytes of operations after which nobody more is let in; a single caller may say more."""

_logger = logging.getLogger("mergelake.log")


@dataclass(frozen=True, slots=True)
class Committed(Generic[S]):
    """A commit that is in the log, or that had nothing to say."""

    state: S
    """The state right after it."""
    entry: Entry | None
    """The entry that it stands in, perhaps with what others said; None if `build` gave no operations."""
    races_lost: int = 0
    """How often another process was faster."""

    @property
    def version(self) -> int:
        """The position that was taken, or the version at which nothing had to be done."""
        return self.entry.version if self.entry else self.state.version


@dataclass(eq=False, slots=True)
class Request(Generic[S]):
    """One caller's wish, and in the end its answer."""

    build: Callable[[S], Sequence[LogOp]]
    committed: Committed[S] | None = None
    failure: Exception | None = None
    woken: threading.Event | None = None
    """Set for a thread that waits, when it has its answer or has to lead."""
    passes_on: Callable[[], bool] = lambda: True
    """Asked after `build`: whether another process may append what it said."""
    attempt: str = ""
    """Set where another process knows of it: by this name it is in the log at most once, whoever appends it."""
    author: str = ""
    """Of one that comes from another process: its author."""
    size: int = 0
    """Bytes of its operations, if they are known beforehand."""
    doubt: S | None = None
    """Set where another process may yet append it: a state up to which the log does not hold it."""
    put_back: bool = False
    """Whether there was no room for it once."""
    rejected: bool = False
    """Whether the failure is that of its precondition."""

    @property
    def done(self) -> bool:
        """Whether it has an answer."""
        return self.committed is not None or self.failure is not None

    def settle(self, answer: Committed[S] | Exception) -> None:
        """Give the answer, the first one, and wake whoever waits for it."""
        if self.done:
            return
        if isinstance(answer, Exception):
            self.failure = answer
        else:
            self.committed = answer
        if self.woken is not None:
            self.woken.set()

    def answer(self) -> Committed[S]:
        """What the caller gets; raises what it was refused with."""
        if self.failure is not None:
            raise self.failure
        assert self.committed is not None
        return self.committed


class CommitQueue(Generic[S]):
    """The threads that want to commit to one log. One of them leads at any time, or nobody waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Request[S]] = deque()
        self._led = False
        self._next: threading.Event | None = None  # of who has been told to lead

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, *requests: Request[S]) -> bool:
        """Wait with these. True: lead now, with `take`, and `leave` in any case. False: there are answers.

        Who has led, and has not all answers yet, joins again with what is left.
        """
        woken = requests[0].woken or threading.Event()  # who joins again may have been told to lead meanwhile
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
        except BaseException:  # a signal: nobody is there any more to lead, should it be its turn
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
        """The group: those who waited longest. Callers of this process stand together, for they are one member of the
        entry: before the others, unless there was no room for one of these before.
        """
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), CALLERS_MAX))]
        turned = any(request.attempt and request.put_back for request in group)
        return sorted(group, key=lambda request: bool(request.attempt) is not turned)

    def put_back(self, requests: Sequence[Request[S]]) -> None:
        """For those there was no room: they are the next ones."""
        for request in requests:
            request.put_back = True
        with self._lock:
            self._waiting.extendleft(reversed(requests))

    def leave(self, *gone: Request[S]) -> None:
        """Let the next one lead; those who are `gone` wait for nothing any more."""
        with self._lock:
            for request in gone:
                if request in self._waiting:
                    self._waiting.remove(request)  # interrupted before it took anybody
            self._led = bool(self._waiting)
            self._next = self._waiting[0].woken if self._waiting else None
            if self._next is not None:
                self._next.set()


@dataclass(slots=True)
class Proposal(Generic[S]):
    """What a group says, judged on one state."""

    state: S
    """After all of it."""
    ops: list[LogOp] = field(default_factory=list)
    said: list[tuple[Request[S], S, int]] = field(default_factory=list)
    """Who has been heard: the state after it, and how many operations it said."""
    refused: list[tuple[Request[S], Exception]] = field(default_factory=list)
    waiting: list[Request[S]] = field(default_factory=list)
    """Those for whom there was no room, in order: they are not in the group."""

    @property
    def given_up(self) -> list[Request[S]]:
        """Those in doubt that say nothing now: the entry makes it impossible that another process appends them."""
        silent = [request for request, _, count in self.said if not count]
        return [r for r in (*silent, *(request for request, _ in self.refused)) if r.doubt is not None]

    def entry(self, head: Entry) -> Entry:
        """The entry to append. Attempts that another process knows are members of their own."""
        members: list[Member] = []
        for request, _, count in self.said:
            attempt, before = request.attempt or head.attempt, members[-1:]
            if count and before and before[0].attempt == attempt:
                members[-1] = Member(attempt, head.author, before[0].ops + count)
            elif count:
                members.append(Member(attempt, request.author or head.author, count))
        if not any(member.attempt == head.attempt for member in members):
            members.insert(0, Member(head.attempt, head.author, 0))  # by which it is known again
        members += [Member(request.attempt, head.author, 0) for request in self.given_up]
        return dataclasses.replace(head, ops=tuple(self.ops), members=tuple(members) if len(members) > 1 else ())

    def settle(self, entry: Entry | None, races_lost: int) -> None:
        """Give everybody in the group the answer: the entry is in the log, or there was nothing to append."""
        for request, state, spoke in self.said:
            request.settle(Committed(state, entry if spoke else None, races_lost))
        self.settle_refused()

    def settle_refused(self, *, landed: bool = True) -> None:
        """Tell those who are not in the entry; only if it `landed` is it sure that who was in doubt never will be."""
        for request, failure in self.refused:
            if landed or request.doubt is None:
                request.settle(failure)


def propose(machine: StateMachine[S], state: S, requests: Sequence[Request[S]], head: Entry) -> Proposal[S]:
    """Ask each of `requests` in turn. `head` is the entry to be, without operations."""
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
            out.said.append((request, out.state, 0))
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
        out.said.append((request, after, len(ops)))
    return out


def taken_along(machine: StateMachine[S], state: S, own: Entry, after: S, left: Iterable[Left]) -> tuple[Entry, S]:
    """An entry with members that others left for its position behind its own, and the state after all of it.

    `state` is the one before the entry, `after` the one after its own operations. Each member is judged at its own
    place; what is refused there, or cannot be, is left out: its sender finds the position taken without it, and asks
    anew.
    """
    members, ops = list(own.parties), list(own.ops)
    for each in left:
        if any(each.attempt == member.attempt for member in members):
            continue
        try:
            judged = machine.step(_without_version(after, state.version), dataclasses.replace(own, ops=each.ops))
        except Exception as cause:  # noqa: BLE001  whatever another process made up
            _logger.warning("a member that %s left says what cannot be: %s", each.author, cause)
            continue
        if not isinstance(judged, Reject):
            after = judged
            ops += each.ops
            members.append(Member(each.attempt, each.author, len(each.ops)))
    return dataclasses.replace(own, ops=tuple(ops), members=tuple(members)), after


def within(machine: StateMachine[S], state: S, proposal: Proposal[S], entry: Entry, attempt: str) -> Proposal[S]:
    """What a group has said, as it stands in an entry that another writer appended: behind others, perhaps.

    `state` is the one before the entry, on which the group was judged. Its preconditions were judged by who appended.
    """
    own = sum(count for _, _, count in proposal.said)
    at = len(entry.until(attempt).ops) - own
    held = machine.fold(state, [dataclasses.replace(entry, ops=entry.ops[:at], members=())]) if at else state
    out = Proposal(state, proposal.ops, refused=proposal.refused)
    for request, _, count in proposal.said:
        if count:
            before = _without_version(held, state.version)
            held = machine.fold(before, [dataclasses.replace(entry, ops=entry.ops[at : at + count], members=())])
            out.state, at = held, at + count
        out.said.append((request, out.state, count))
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
    """A state within an entry, as the next operation of that entry is judged: the version is still the one before."""
    return cast(S, dataclasses.replace(cast(Any, state), version=version))
