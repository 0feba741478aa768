"""A network between processes: messages arrive late, twice, or never, and so do answers.

Who sends and who answers is the real code (`log.sending`, `log.leader`); only what carries messages is ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from mergelake.log.encoding import decode_entry
from mergelake.log.passing import decode_answer, decode_request
from mergelake.peer.client import NotSent, UnknownOutcome
from tests.simulation.bucket import Bucket
from tests.simulation.kernel import Kernel, Process

_ENTRY = re.compile(r"/_log/[0-9]{20}\.json$")
_CLOSED = ("refused", "not taken")
LATE_MAX_S = 20_000.0
"""How long after it was sent a message may arrive: several grace periods."""


@dataclass(eq=False)
class Message:
    """A request under way."""

    payload: bytes
    answer: bytes | None = None


class Network:
    """Inboxes by address and token, and what befalls messages."""

    def __init__(self, kernel: Kernel, bucket: Bucket) -> None:
        self.kernel = kernel
        self.bucket = bucket
        bucket.watchers.append(self.on_change)
        chance = Random(f"{kernel.seed} network")
        self.trouble = chance.choice([0.0, 0.05, 0.2, 0.4])
        """How often something befalls a message, or an answer."""
        self.patience_s = chance.choice([6.0, 20.0, 60.0])
        self.inboxes: dict[tuple[str, str], list[Message]] = {}
        self.passed = 0
        """Answers that arrived."""
        self.refused: set[str] = set()
        """Attempts of which a sender was told that they are not in the log, and never will be."""
        self.landed: set[str] = set()
        """Those that are in the log of some table."""

    def listen(self, address: str, token: str) -> None:
        """Who listens at an address now; nobody hears what was meant for the one before."""
        if (address, token) not in self.inboxes:
            self.inboxes = {key: inbox for key, inbox in self.inboxes.items() if key[0] != address}
            self.inboxes[address, token] = []

    def told(self, request: bytes, answer: bytes) -> None:
        """An answer has arrived."""
        self.passed += 1
        members = decode_request(request).members
        outcomes = decode_answer(answer, len(members)).outcomes
        closed = [m.attempt for m, outcome in zip(members, outcomes, strict=True) if outcome.kind in _CLOSED]
        self.refused.update(closed)
        lies = self.landed.intersection(closed)
        if lies:  # the sender takes any exception as it comes
            self.bucket.violation = self.bucket.violation or AssertionError("what landed was said to be refused")

    def on_change(self, key: str, data: bytes | None) -> None:
        """7: what was said to be refused is not in the log."""
        if data is None or not _ENTRY.search(key):
            return
        landed = {member.attempt for member in decode_entry(data).parties if member.ops}
        assert not landed & self.refused, f"{key} holds what was said to be refused"
        self.landed |= landed

    def arrive(self, key: tuple[str, str], message: Message) -> None:
        if key in self.inboxes:
            self.inboxes[key].append(message)


class SimPeers:
    """What one process has of the network: `peer.client.Peers`."""

    def __init__(self, network: Network, process: Process) -> None:
        self.network = network
        self._owner = process

    def call(self, address: str, token: str, service: str, payload: bytes, timeout_s: float) -> bytes:
        network, process = self.network, self._owner.thread
        kernel, key = network.kernel, (address, token)
        kernel.point(process, f"a message to {address}")
        if key not in network.inboxes:
            raise NotSent("nobody listens there")
        message = Message(payload)
        drawn = process.chance.random()
        befell = "" if drawn >= network.trouble else process.chance.choice(["lost", "late", "twice", "unheard"])
        kernel.trace.add(f"{process.name}: a message to {address}" + (f" ({befell})" if befell else ""))
        if befell == "unheard":
            raise NotSent("the connection was refused")
        if befell in ("", "twice"):
            network.arrive(key, message)
        if befell in ("late", "twice"):
            late = message if befell == "late" else Message(payload)
            within_s = process.chance.choice([5 * network.patience_s, LATE_MAX_S])
            kernel.later(process.chance.random() ** 2 * within_s, lambda: network.arrive(key, late))
        end_s = kernel.now_s + network.patience_s
        while message.answer is None and kernel.now_s < end_s:
            process.sleep(process.chance.random() * network.patience_s / 8)
        if message.answer is None:
            raise UnknownOutcome("no answer in time")
        network.told(payload, message.answer)
        return message.answer
