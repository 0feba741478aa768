"""Several callers' commits in one entry: who is in it, and what each of them hears.

While an append is under way, the threads of a process that want to commit queue up. Then the first of them leads: it
takes them all (up to `CALLERS_MAX`, and `BYTES_MAX` of operations), in their order, and asks each what it wants to say
**on the state that those before it leave**. What is refused, or raises, is left out; the others go into one entry. A
lost race is lost by all: everybody is asked anew on the winner's state, also those who had been refused, for what stood
in their way may be gone.

A caller cannot tell whether it was alone: it gets the state right after its own operations, with the version of the
entry.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, cast

from mergelake.log.conflict import Reject
from mergelake.log.encoding import encode_op
from mergelake.log.machine import S, StateMachine
from mergelake.log.operations import Entry, LogOp

CALLERS_MAX = 64
"""Callers that share an entry."""
BYTES_MAX = 256 << 10
"""Bytes of operations after which nobody more is let in; a single caller may say more."""


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


class WaitingLine(Generic[S]):
    """The threads that want to commit to one log. One of them leads at any time, or nobody waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Request[S]] = deque()
        self._led = False

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, request: Request[S]) -> bool:
        """Wait. True: lead now, with `take`, and `leave` in any case. False: there is an answer."""
        with self._lock:
            self._waiting.append(request)
            if not self._led:
                self._led = True
                return True
            request.woken = threading.Event()
        try:
            request.woken.wait()
        except BaseException:  # a signal: nobody is there any more to lead, should it be its turn
            with self._lock:
                leads = request.woken.is_set() and not request.done
                if not leads and request in self._waiting:
                    self._waiting.remove(request)
            if leads:
                self.leave(request)
            raise
        return not request.done

    def take(self) -> list[Request[S]]:
        """The group: the leader first."""
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), CALLERS_MAX))]

    def put_back(self, requests: Sequence[Request[S]]) -> None:
        """For those there was no room: they are the next ones."""
        with self._lock:
            self._waiting.extendleft(reversed(requests))

    def leave(self, leader: Request[S]) -> None:
        """Let the next one lead."""
        with self._lock:
            if leader in self._waiting:
                self._waiting.remove(leader)  # interrupted before it took anybody
            self._led = bool(self._waiting)
            if self._waiting:
                follower = self._waiting[0].woken
                assert follower is not None  # it came while another one led
                follower.set()


@dataclass(slots=True)
class Proposal(Generic[S]):
    """What a group says, judged on one state."""

    state: S
    """After all of it."""
    ops: list[LogOp] = field(default_factory=list)
    said: list[tuple[Request[S], S, bool]] = field(default_factory=list)
    """Who has been heard: the state after it, and whether it said anything."""
    refused: list[tuple[Request[S], Exception]] = field(default_factory=list)
    waiting: list[Request[S]] = field(default_factory=list)
    """Those for whom there was no room, in order: they are not in the group."""

    def settle(self, entry: Entry | None, races_lost: int) -> None:
        """Give everybody in the group the answer: the entry is in the log, or there was nothing to append."""
        for request, state, spoke in self.said:
            request.settle(Committed(state, entry if spoke else None, races_lost))
        self.settle_refused()

    def settle_refused(self) -> None:
        """Tell those who are not in the entry, whatever becomes of it."""
        for request, failure in self.refused:
            request.settle(failure)


def propose(machine: StateMachine[S], state: S, requests: Sequence[Request[S]], head: Entry) -> Proposal[S]:
    """Ask each of `requests` in turn. `head` is the entry to be, without operations."""
    out = Proposal(state)
    size = 0
    for at, request in enumerate(requests):
        before = _without_version(out.state, state.version) if out.ops else state
        try:
            ops = tuple(request.build(before))
        except Exception as failure:  # noqa: BLE001  it is raised again, in the caller's thread
            out.refused.append((request, failure))
            continue
        if not ops:
            out.said.append((request, out.state, False))
            continue
        if len(requests) > 1:
            size += sum(len(repr(encode_op(op))) for op in ops)
            if out.ops and size > BYTES_MAX:
                out.waiting = list(requests[at:])
                break
        after = machine.step(before, dataclasses.replace(head, ops=ops))
        if isinstance(after, Reject):
            out.refused.append((request, after.as_error()))
            continue
        out.state = after
        out.ops += ops
        out.said.append((request, after, True))
    return out


def _without_version(state: S, version: int) -> S:
    """A state within an entry, as the next operation of that entry is judged: the version is still the one before."""
    return cast(S, dataclasses.replace(cast(Any, state), version=version))
