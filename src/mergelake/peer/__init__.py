"""Between processes: one listener, its client, and what is served there registered from above.

`auth` proves that both ends know the same token, `frames` cuts the stream into messages of bounded size, `listener`
answers them by services that rooms above registered (`listener.serve("commit", handler)`), and `client` asks, and tells
a request that was *not sent* from one whose outcome is *unknown*. Nothing here knows what is asked.

What it is for: commits of others (`log.leader`). What it is not: encrypted. Both ends prove that they know the token
without showing it, but whoever can change packets on the way can change what is said: for private networks.
"""

from mergelake.peer.client import NotSent, PeerClient, Peers, UnknownOutcome
from mergelake.peer.listener import Listener

__all__ = ["Listener", "NotSent", "PeerClient", "Peers", "UnknownOutcome"]
