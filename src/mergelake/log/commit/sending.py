"""The sender: passes commits of this process on to the leader of a log, if there is one.

1. **The leader** follows from the state: of the valid leases with an address, the first by name. So all processes
   choose the same one. One that did not answer is avoided for a while, longer each time (`AVOID_FIRST_S` to
   `AVOID_MAX_S`), and the next one, if any, is used.
2. The operations of each caller are built on the state known here, and get an attempt. All of a group go in one
   request, up to `group.BYTES_MAX`, if they are in `passing.PASSED_ON`.
3. The answer holds the entries since that state. They are checked and folded as if they had been read from the log, and
   each caller whose attempt is in one of them gets the state right after its own operations.
4. A *refused* request is built anew on the state after these entries, under a new attempt; after `ROUNDS_MAX` such
   rounds, or if it has no operations any more, it is committed directly, where a free position proves that the state is
   the newest.
5. Without an answer, or with outcome `unknown`, a request is **in doubt**: the leader may still append it. It is then
   committed directly, under the same attempt (`commit.Log`).

The caller of `pass_on` holds the log's lock meanwhile, at most `PATIENCE_S` seconds a round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import CorruptDataError
from mergelake.log.commit.group import BYTES_MAX, Committed, Request, states_within
from mergelake.log.commit.passing import (
    MEMBERS_MAX,
    SERVICE,
    Answer,
    decode_answer,
    decode_entries,
    encode_request,
    encoded_ops,
)
from mergelake.log.model.operations import Entry
from mergelake.log.model.state import Lease
from mergelake.log.storage.machine import S, StateMachine
from mergelake.store.peer.client import NotSent, Peers

PATIENCE_S = 3.0
"""Seconds to wait for an answer."""
ROUNDS_MAX = 5
AVOID_FIRST_S, AVOID_MAX_S = 1.0, 60.0

_logger = logging.getLogger("mergelake.log")
_Member: TypeAlias = tuple[Request[S], dict[str, Any]]


@dataclass(slots=True)
class PassedOn(Generic[S]):
    """The result of passing on a group."""

    state: S
    """The newest state known after it."""
    landed: list[tuple[Request[S], Committed[S]]] = field(default_factory=list)
    waiting: list[Request[S]] = field(default_factory=list)
    """Requests for which there was no room: they may be passed on with the next group."""


def leader_of(leases: Mapping[str, Lease], now_ms: int, avoided: Sequence[tuple[str, str]] = ()) -> Lease | None:
    """The leader: the first by name of the nodes that listen, whose lease is valid, and that are not `avoided`."""
    listening = sorted(
        (name, lease.address, lease.token)
        for name, lease in leases.items()
        if lease.address and lease.until_ms > now_ms and (lease.address, lease.token) not in avoided
    )
    return leases[listening[0][0]] if listening else None


class Sending(Generic[S]):
    """Passes commits to one log on to its leader. Used under the log's lock."""

    def __init__(
        self, peers: Peers, prefix: str, machine: StateMachine[S], *, clock: Clock, draw: Callable[[], str], author: str
    ) -> None:
        """`draw` returns a new attempt."""
        self._peers = peers
        self._prefix = prefix
        self._machine = machine
        self._clock = clock
        self._draw = draw
        self._author = author
        self._avoided: dict[tuple[str, str], tuple[float, float]] = {}
        """Address and token of a leader -> until when, and for how long, it is avoided."""
        self.complete: Callable[[Entry], Entry | None] = lambda entry: entry
        """Adds the decision of a transaction to its entry; None if it is not decided."""

    def leader(self, state: S) -> Lease | None:
        """The lease of the current leader; None if there is none."""
        leases: Mapping[str, Lease] = getattr(state, "leases", {})
        if not any(lease.address for lease in leases.values()):
            return None
        now_s = self._clock.monotonic_s()
        avoided = [key for key, (until_s, _) in self._avoided.items() if until_s > now_s]
        return leader_of(leases, self._clock.now_ms(), avoided)

    def pass_on(self, state: S, requests: Sequence[Request[S]]) -> PassedOn[S]:
        """Ask the leader to append these requests. Those that neither landed nor wait are to be committed directly."""
        out = PassedOn(state)
        left = [request for request in requests if not request.attempt]
        for _ in range(ROUNDS_MAX):
            lease = self.leader(out.state) if left else None
            if lease is None:
                break
            members = self._members(out, left)
            if not members:
                break
            if not self._request(lease, members, out):
                break
            landed = {id(request) for request, _ in out.landed}
            left = [r for r in left if id(r) not in landed and r.doubt is None and r not in out.waiting]
        return out

    def _members(self, out: PassedOn[S], requests: Sequence[Request[S]]) -> list[_Member[S]]:
        """The operations of these requests on the state, as members, as far as they may be passed on."""
        members: list[_Member[S]] = []
        size = 0
        for request in requests:
            if len(members) == MEMBERS_MAX or size > BYTES_MAX:
                out.waiting.append(request)
                continue
            try:
                ops = encoded_ops(tuple(request.build(out.state)))
            except Exception:  # noqa: BLE001  it is built again, and fails, when it is committed directly
                continue
            if ops is None or not request.passes_on():
                continue
            size += (length := len(ops))
            if length > BYTES_MAX:
                continue
            members.append((request, {"attempt": self._draw(), "author": self._author, "ops": ops}))
        return members

    def _request(self, lease: Lease, members: Sequence[_Member[S]], out: PassedOn[S]) -> bool:
        """Send one request; returns whether another round makes sense."""
        message = encode_request(self._prefix, out.state.version, [member for _, member in members])
        leader = lease.address, lease.token
        try:
            answer = decode_answer(self._peers.call(*leader, SERVICE, message, PATIENCE_S), len(members))
            committed = self._follow(out, answer, {member["attempt"] for _, member in members})
        except NotSent as cause:
            self._avoid(leader, str(cause))
            return False
        except Exception as cause:  # noqa: BLE001  no answer, or a malformed one: the leader may have the request
            self._avoid(leader, str(cause))
            _doubt(members, out.state)
            return False
        for (request, member), outcome in zip(members, answer.outcomes, strict=True):
            attempt = member["attempt"]
            if attempt in committed:
                out.landed.append((request, committed[attempt]))
            elif outcome.kind in ("landed", "unknown"):  # it is not in the entries of the answer
                _doubt([(request, member)], out.state)
        failed = next((outcome.text for outcome in answer.outcomes if outcome.kind == "not taken"), None)
        if failed is not None:
            self._avoid(leader, failed)
            return False
        self._avoided.pop(leader, None)
        return True

    def _follow(self, out: PassedOn[S], answer: Answer, attempts: set[str]) -> dict[str, Committed[S]]:
        """Fold the entries of an answer; returns the results of these attempts."""
        committed: dict[str, Committed[S]] = {}
        state = out.state
        for sent in decode_entries(answer, state.version):
            entry = self.complete(sent)
            if entry is None:
                raise CorruptDataError("A leader sent an entry of a transaction that is not decided")
            state, after = states_within(self._machine, state, entry, attempts)
            committed.update({attempt: Committed(own, entry) for attempt, own in after.items()})
        out.state = state
        return committed

    def _avoid(self, leader: tuple[str, str], reason: str) -> None:
        _, before_s = self._avoided.get(leader, (0.0, 0.0))
        for_s = min(max(2 * before_s, AVOID_FIRST_S), AVOID_MAX_S)
        self._avoided[leader] = self._clock.monotonic_s() + for_s, for_s
        level = logging.INFO if before_s else logging.WARNING
        _logger.log(
            level, "commits to %s are not passed on to %s for %.0f s: %s", self._prefix, leader[0], for_s, reason
        )


def _doubt(members: Sequence[_Member[S]], state: S) -> None:
    """Mark requests as in doubt: the leader may still append them; up to `state` the log does not hold them."""
    for request, member in members:
        request.attempt, request.doubt = member["attempt"], state
