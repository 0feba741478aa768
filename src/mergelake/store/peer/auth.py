"""Mutual authentication: both ends of a connection prove that they know a token, without sending it.

1. The listener sends a greeting: the protocol, and 16 random bytes.
2. The client sends 16 random bytes, and an HMAC of both under the token.
3. The listener compares that in constant time, and only then reads on; it sends an HMAC of its own.

A process that listens at the address of a dead one without knowing the token learns nothing that helps it elsewhere,
and cannot answer in its place.
"""

from __future__ import annotations

import hmac

from mergelake.core.base.ids import IdSource
from mergelake.store.peer.frames import Garbled, Stream

GREETING = b"mergelake peer 1"
_DRAWN, _PROOF = 16, 32


class Stranger(Exception):
    """The other end does not know the token."""


def _proof(token: str, role: bytes, theirs: bytes, ours: bytes) -> bytes:
    return hmac.digest(token.encode(), role + theirs + ours, "sha256")


def _drawn(ids: IdSource) -> bytes:
    return bytes.fromhex(ids.new_id())


def admit(stream: Stream, token: str, ids: IdSource, end_s: float) -> None:
    """The listener's side. Raises Stranger, TimeoutError, OSError and what `Stream` raises."""
    drawn = _drawn(ids)
    stream.send(GREETING + drawn, end_s)
    answer = stream.receive(_DRAWN + _PROOF, end_s)
    theirs, proof = answer[:_DRAWN], answer[_DRAWN:]
    if not hmac.compare_digest(proof, _proof(token, b"client", drawn, theirs)):
        raise Stranger("a client does not know the token")
    stream.send(_proof(token, b"server", drawn, theirs), end_s)


def introduce(stream: Stream, token: str, ids: IdSource, end_s: float) -> None:
    """The client's side. Raises Stranger, Garbled, TimeoutError, OSError and what `Stream` raises."""
    greeting = stream.receive(len(GREETING) + _DRAWN, end_s)
    if not greeting.startswith(GREETING):
        raise Garbled("something else listens there")
    theirs, drawn = greeting[len(GREETING) :], _drawn(ids)
    stream.send(drawn + _proof(token, b"client", theirs, drawn), end_s)
    if not hmac.compare_digest(stream.receive(_PROOF, end_s), _proof(token, b"server", theirs, drawn)):
        raise Stranger("who listens there does not know the token")
