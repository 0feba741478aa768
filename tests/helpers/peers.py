"""A network in one process: what asks a service calls it, and a test says what befalls the call."""

from __future__ import annotations

from mergelake.log.backends.backends import Backends
from mergelake.log.commit.passing import SERVICE
from mergelake.log.model.operations import RenewLease
from mergelake.log.relay.leader import CommitService
from mergelake.store.peer.client import NotSent, UnknownOutcome
from tests.helpers.manifests import open_log

ADDRESS, TOKEN = "lake-1:9440", "a token"


class Network:
    """Services by address and token, and what becomes of the next calls."""

    def __init__(self):
        self.services = {}
        self.calls = 0
        self.held = []
        """Requests that were kept back: to be delivered late, or again."""
        self.fate = []
        """Of the next calls, in order: "lose" (it does not arrive), "hold" (it arrives later: `deliver`), "mute" (the
        answer is lost), "twice"; else it goes well."""

    def call(self, address, token, service, payload, timeout_s):
        self.calls += 1
        fate = self.fate.pop(0) if self.fate else ""
        serve = self.services.get((address, token, service))
        if serve is None or fate == "lose":
            raise NotSent("nobody listens")
        if fate == "hold":
            self.held.append((serve, payload))
            raise UnknownOutcome("no answer in time")
        answer = serve(payload)
        if fate == "twice":
            answer = serve(payload)
        if fate == "mute":
            self.held.append((serve, payload))
            raise UnknownOutcome("the answer was lost")
        return answer

    def deliver(self):
        """What was held arrives; its answers."""
        held, self.held = self.held, []
        return [serve(payload) for serve, payload in held]


def listening(network, log, node="leader", address=ADDRESS, token=TOKEN, until_ms=1 << 42):
    """Make the process of `log` a leader that is known: its service and the log there."""
    service = CommitService()
    served = service.add(log)
    network.services[address, token, SERVICE] = service
    log.commit(lambda state: [RenewLease(node, state.version, until_ms, address, token)])
    return served


def sender(network, store, seed, **options):
    """One more process, which passes commits on."""
    return open_log(store, seed=seed, backends=Backends(peers=network), **options)
