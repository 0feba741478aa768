"""Requests between processes: a listener and its client; services are registered by what stands above.

`auth` proves that both ends know the same token, `frames` cuts the stream into messages of bounded size, `listener`
answers them by registered services (`listener.serve("commit", handler)`), and `client` sends requests, and
distinguishes a request that was *not sent* from one whose outcome is *unknown*. The payload is opaque here.

It is used for commits of other processes (`log.relay.leader`). It is not encrypted: both ends prove that they know the
token without sending it, but an attacker who can change packets can change messages. It is for private networks.
"""

from mergelake.store.peer.client import NotSent, PeerClient, Peers, UnknownOutcome
from mergelake.store.peer.listener import Listener

__all__ = ["Listener", "NotSent", "PeerClient", "Peers", "UnknownOutcome"]
