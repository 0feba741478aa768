"""A network between processes: messages arrive late, twice, or never, and so do answers.

Who sends and who answers is the real code (`log.commit.sending`, `log.relay.leader`); only what carries messages is
ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from mergelake.core.base.errors import MergelakeError
from mergelake.log.commit.passing import decode_answer, decode_request
from mergelake.log.storage.encoding import decode_entry
from mergelake.store.peer.client import NotSent, UnknownOutcome
from mergelake.table.volatile.volatile_wire import SERVICE, BytesRequest, decode_request as decode_volatile
from mergelake.testing.faulty_store import SimulatedCrash
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
        self.served: dict[tuple[str, str], tuple[Process, Callable[[bytes], bytes]]] = {}
        """Who serves volatile parts, by address and token."""
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

    def serve(self, process: Process, address: str, token: str, handler: Callable[[bytes], bytes]) -> None:
        """Requests for volatile parts at an address are answered by this process from now on, and by no other."""
        self.served = {key: held for key, held in self.served.items() if key[0] != address}
        self.served[address, token] = process, handler

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
    """What one process has of the network: `store.peer.client.Peers`."""

    def __init__(self, network: Network, process: Process) -> None:
        self.network = network
        self._owner = process

    def call(self, address: str, token: str, service: str, payload: bytes, timeout_s: float) -> bytes:
        network, process = self.network, self._owner.thread
        kernel, key = network.kernel, (address, token)
        if service == SERVICE:
            return self._served(process, key, payload)
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

    def _served(self, process: Process, key: tuple[str, str], payload: bytes) -> bytes:
        """The answer of who serves volatile parts; what it reads of its disk may fail, or kill it."""
        network, kernel = self.network, self.network.kernel
        kernel.point(process, f"a request to {key[0]}")
        owner, handler = network.served.get(key, (None, None))
        # Who is told that nothing is ready loses nothing afterwards.
        trouble = network.trouble if isinstance(decode_volatile(payload), BytesRequest) else network.trouble / 4
        if owner is None or handler is None or owner.dead or process.chance.random() < trouble:
            raise NotSent("nobody listens there")
        try:
            answer = handler(payload)
        except (MergelakeError, SimulatedCrash) as failure:
            raise UnknownOutcome(str(failure)) from failure
        kernel.point(process, f"the answer of {key[0]}")
        if process.chance.random() < trouble:
            raise UnknownOutcome("no answer in time")
        network.passed += 1
        return answer
