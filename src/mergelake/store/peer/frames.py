"""Messages on a stream: a length, a kind or status, and that many bytes.

::

    request   u32 length | u8 length of the service's name | name | payload
    answer    u32 length | u8 status                       | payload, or the text of the error

`length` is the number of bytes after it, big-endian, at most `FRAME_MAX`: more is refused before any of them is read,
and memory grows with the received bytes, not with the announced ones. A message must be complete by a deadline, so a
slow sender occupies one thread for a bounded time.
"""

from __future__ import annotations

import socket
import struct

from mergelake.core.base.clock import Clock

FRAME_MAX = 32 << 20
"""Maximum bytes of a message."""
NAME_MAX = 64
OK, FAILED, UNKNOWN_SERVICE = 0, 1, 2
"""Statuses of answers: the result of the service; it raised (its effects remain); there is no such service."""
_CHUNK = 1 << 16
_LENGTH = struct.Struct(">I")


class Garbled(Exception):
    """The received bytes are no message: the connection is closed."""


class Closed(Exception):
    """The other end closed the connection between two messages."""


class Stream:
    """A connected socket, read and written by deadlines. For one thread at a time."""

    def __init__(self, sock: socket.socket, clock: Clock) -> None:
        self._sock = sock
        self._clock = clock

    def receive(self, size: int, end_s: float) -> bytes:
        """Exactly `size` bytes by the time `end_s` of the monotonic clock.

        Raises Closed if the other end closed before the first, Garbled if later, TimeoutError, OSError.
        """
        data = bytearray()
        while len(data) < size:
            self._sock.settimeout(self._left(end_s))
            piece = self._sock.recv(min(size - len(data), _CHUNK))
            if not piece:
                raise Garbled("the connection ended within a message") if data else Closed
            data += piece
        return bytes(data)

    def send(self, data: bytes, end_s: float) -> None:
        """Send all of `data` by the time `end_s`. After TimeoutError or OSError it was not received completely."""
        self._sock.settimeout(self._left(end_s))
        self._sock.sendall(data)

    def receive_frame(self, wait_s: float, within_s: float) -> bytes:
        """A message, without its length: it must begin within `wait_s`, and be complete within another `within_s`."""
        now_s = self._clock.monotonic_s()
        first = self.receive(1, now_s + wait_s)
        end_s = self._clock.monotonic_s() + within_s
        try:
            (length,) = _LENGTH.unpack(first + self.receive(_LENGTH.size - 1, end_s))
            if not 1 <= length <= FRAME_MAX:
                raise Garbled(f"a message of {length} bytes")
            return self.receive(length, end_s)
        except Closed:
            raise Garbled("the connection ended within a message") from None

    def _left(self, end_s: float) -> float:
        left_s = end_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError("the time for a message is over")
        return left_s


def frame(head: int, *parts: bytes) -> bytes:
    """A message: its first byte, and the rest."""
    body = b"".join((bytes([head]), *parts))
    if len(body) > FRAME_MAX:
        raise ValueError(f"a message of {len(body)} bytes is too long")
    return _LENGTH.pack(len(body)) + body


def request(service: str, payload: bytes) -> bytes:
    """The frame of a request."""
    name = service.encode()
    return frame(len(name), name, payload)


def parse_request(body: bytes) -> tuple[str, bytes]:
    """Service and payload of a request's frame, without its length; raises Garbled."""
    size = body[0]
    if not 1 <= size <= NAME_MAX or len(body) <= size:
        raise Garbled("a request without the name of a service")
    try:
        return body[1 : 1 + size].decode("ascii"), body[1 + size :]
    except UnicodeDecodeError as cause:
        raise Garbled("a service's name is not ASCII") from cause
