"""Answers requests of other processes: a socket, a thread for each connection, and services by name.

1. One thread accepts. Above `connections_max` connections, or `HANDSHAKES_MAX` that are not authenticated yet, a new
   one is closed at once, so that clients without the token cannot take the place of others.
2. A connection has `HANDSHAKE_S` in all for authentication (`auth`); nothing else is read before.
3. Then it sends one request after another, each complete within `FRAME_S`, and each is answered before the next is
   read. An exception of a service is reported to the client. A connection without a request for `IDLE_S` is closed.
4. `close` accepts no new connections, lets requests under way be answered for a while, and closes the rest.

A client can lose its own connection by what it sends, but not affect others.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import error
from mergelake.core.base.ids import IdSource
from mergelake.store.peer.address import address_of
from mergelake.store.peer.auth import Stranger, admit
from mergelake.store.peer.frames import FAILED, OK, UNKNOWN_SERVICE, Closed, Garbled, Stream, frame, parse_request

Handler = Callable[[bytes], bytes]
"""Answers one request; runs in the thread of its connection, several at a time."""

CONNECTIONS_MAX = 1024
HANDSHAKES_MAX = 64
HANDSHAKE_S, FRAME_S, IDLE_S, ANSWER_S = 5.0, 30.0, 600.0, 30.0
CLOSE_S = 2.0
"""Seconds that requests under way have at the end."""
_REST_S = 0.05
"""Pause after a failed accept: without free descriptors the next one would fail at once."""

_logger = logging.getLogger("mergelake.peer")


class Listener:
    """One listening socket of this process."""

    def __init__(
        self, host: str, port: int, token: str, *, clock: Clock, ids: IdSource, connections_max: int = CONNECTIONS_MAX
    ) -> None:
        """Binds at once (port 0: a free one), accepts from `start` on. BAD_ARGUMENTS if the address is unavailable."""
        self._token = token
        self._clock = clock
        self._ids = ids
        self._connections_max = connections_max
        self._services: dict[str, Handler] = {}
        self._lock = threading.Lock()
        self._all: set[socket.socket] = set()
        self._strangers = self._busy = 0
        self._quiet = threading.Condition(self._lock)
        self._closing = False
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=256)
        except (OSError, OverflowError, UnicodeError) as cause:
            hint = "Choose an address of this machine and a free port, or port 0 for any"
            raise error("BAD_ARGUMENTS", f"Cannot listen on {address_of(host, port)}: {cause}", hint) from None
        self.port: int = self._socket.getsockname()[1]
        """The port that it listens on."""
        self._thread = threading.Thread(target=self._accept, name="mergelake-listener", daemon=True)

    def serve(self, name: str, handler: Handler) -> None:
        """Answer requests to `name` by `handler` from now on."""
        self._services[name] = handler

    def start(self) -> None:
        """Accept connections, in a thread."""
        self._thread.start()

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._all)

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Stop listening; requests under way have `wait_s` seconds to be answered."""
        with self._lock:
            self._closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()
        with self._lock:
            self._quiet.wait_for(lambda: not self._busy, wait_s)
            left = list(self._all)
        for sock in left:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError as failure:
                if self._closing or self._socket.fileno() < 0:
                    return
                _logger.warning("a connection could not be accepted: %s", failure)
                self._clock.sleep_s(_REST_S)
                continue
            with self._lock:
                full = len(self._all) >= self._connections_max or self._strangers >= HANDSHAKES_MAX
                if not (full or self._closing):
                    self._all.add(sock)
                    self._strangers += 1
            if full or self._closing:
                sock.close()
                continue
            thread = threading.Thread(target=self._attend, args=(sock,), name="mergelake-peer", daemon=True)
            try:
                thread.start()
            except RuntimeError as failure:  # no more threads to be had
                _logger.warning("a connection could not be attended to: %s", failure)
                self._leave(sock, stranger=True)

    def _leave(self, sock: socket.socket, *, stranger: bool) -> None:
        with self._lock:
            self._all.discard(sock)
            self._strangers -= stranger
        sock.close()

    def _attend(self, sock: socket.socket) -> None:
        stranger = True
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = Stream(sock, self._clock)
            admit(stream, self._token, self._ids, self._clock.monotonic_s() + HANDSHAKE_S)
            with self._lock:
                self._strangers -= 1
                stranger = False
            while not self._closing:
                self._answer(stream, stream.receive_frame(IDLE_S, FRAME_S))
        except (Closed, OSError):
            pass  # the client left, or was too slow
        except (Garbled, Stranger) as problem:
            _logger.info("a connection was closed: %s", problem)
        except Exception:  # a bad connection must not affect the process
            _logger.exception("a connection was closed")
        finally:
            self._leave(sock, stranger=stranger)

    def _answer(self, stream: Stream, body: bytes) -> None:
        name, payload = parse_request(body)
        with self._lock:
            self._busy += 1
        try:
            handler = self._services.get(name)
            if handler is None:
                answer = frame(UNKNOWN_SERVICE, name.encode())
            else:
                try:
                    answer = frame(OK, handler(payload))
                except Exception as failure:
                    _logger.warning("a request to %s failed: %s", name, failure, exc_info=True)
                    answer = frame(FAILED, str(failure)[:1000].encode())
            stream.send(answer, self._clock.monotonic_s() + ANSWER_S)
        finally:
            with self._lock:
                self._busy -= 1
                self._quiet.notify_all()
