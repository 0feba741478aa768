"""Sends requests to another process, with a definite meaning of failures.

`call` has three outcomes: an answer; `NotSent`, the request cannot have been received; `UnknownOutcome`, it may have
been received, or may still be. A message counts as received once its last byte may have been sent, as the listener
ignores an incomplete one.

Connections are kept by address and token, and used by one request at a time: as many are open as requests are under
way, and `KEPT_MAX` of them stay. One that the other end has closed meanwhile is detected before anything is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Protocol

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.ids import IdSource
from mergelake.store.peer.address import parse_address
from mergelake.store.peer.auth import Stranger, introduce
from mergelake.store.peer.frames import FAILED, OK, UNKNOWN_SERVICE, Closed, Garbled, Stream, request

CONNECT_S = 1.0
"""Seconds to establish a connection: within one network it takes milliseconds."""
KEPT_MAX = 4
"""Idle connections that are kept per address and token."""


class NotSent(Exception):
    """The other process has not received the request, and will not."""


class UnknownOutcome(Exception):
    """The other process may have received the request, or may still receive it."""


class Peers(Protocol):
    """Sends requests to other processes: `PeerClient`, or the network of a simulation."""

    def call(self, address: str, token: str, service: str, payload: bytes, timeout_s: float) -> bytes:
        """The answer. Raises NotSent, UnknownOutcome; nothing else."""
        ...


class _Connection:
    def __init__(self, address: str, token: str, clock: Clock, ids: IdSource, end_s: float) -> None:
        self._clock = clock
        left_s = max(end_s - clock.monotonic_s(), 0.001)
        self._sock = socket.create_connection(parse_address(address), min(left_s, CONNECT_S))
        try:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream = Stream(self._sock, clock)
            introduce(self._stream, token, ids, min(end_s, clock.monotonic_s() + CONNECT_S))
        except BaseException:
            self._sock.close()
            raise

    @property
    def stale(self) -> bool:
        """Whether the other end has closed it, or sent unexpected data."""
        self._sock.settimeout(0)
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def request(self, message: bytes, end_s: float) -> bytes:
        """The body of the answer."""
        try:
            self._stream.send(message, end_s)
        except OSError as cause:
            raise NotSent(str(cause)) from cause
        try:
            left_s = end_s - self._clock.monotonic_s()
            return self._stream.receive_frame(max(left_s, 0.001), max(left_s, 0.001))
        except (OSError, Closed, Garbled) as cause:
            raise UnknownOutcome(str(cause) or "the connection was closed") from cause

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.close()


class PeerClient:
    """The connections of this process to others. Threads may share it."""

    def __init__(self, *, clock: Clock, ids: IdSource) -> None:
        self._clock = clock
        self._ids = ids
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, str], list[_Connection]] = {}
        self._pid = os.getpid()

    def call(self, address: str, token: str, service: str, payload: bytes, timeout_s: float) -> bytes:
        """The answer of a service. Raises NotSent, UnknownOutcome; nothing else."""
        end_s = self._clock.monotonic_s() + timeout_s
        try:
            message = request(service, payload)
            connection = self._take((address, token)) or _Connection(address, token, self._clock, self._ids, end_s)
        except (OSError, ValueError, Closed, Garbled, Stranger, MergelakeError) as cause:
            raise NotSent(f"{address}: {cause or 'the connection was closed'}") from cause
        try:
            answer = connection.request(message, end_s)
        except BaseException:
            connection.close()
            raise
        self._keep((address, token), connection)
        status, body = answer[0], answer[1:]
        if status == OK:
            return body
        text = f"{address}: {body[:1000].decode(errors='replace')}"
        if status == UNKNOWN_SERVICE:
            raise NotSent(f"{text} is not served there")
        raise UnknownOutcome(text if status == FAILED else f"{address}: an answer of status {status}")

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            kept, self._idle = self._idle, {}
        for connections in kept.values():
            for connection in connections:
                connection.close()

    def _take(self, key: tuple[str, str]) -> _Connection | None:
        while True:
            with self._lock:
                if self._pid != os.getpid():  # a fork: these are the parent's
                    self._idle, self._pid = {}, os.getpid()
                kept = self._idle.get(key)
                if not kept:
                    self._idle.pop(key, None)
                    return None
                connection = kept.pop()
            if not connection.stale:
                return connection
            connection.close()

    def _keep(self, key: tuple[str, str], connection: _Connection) -> None:
        with self._lock:
            kept = self._idle.setdefault(key, [])
            if len(kept) < KEPT_MAX:
                kept.append(connection)
                return
        connection.close()
