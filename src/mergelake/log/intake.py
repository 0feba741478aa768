"""The intake: what writers who met others leave for whoever appends the next entry.

::

    <prefix>/intake/<position, 20 digits>-<attempt>.json
        {"format": 1, "position": 7, "attempt": "…", "author": "host:4711", "ops": […], "digest": "…"}

A member in the intake is meant for one position only. Whoever appends the entry of that position may take it along,
judged by its preconditions at its own place; nobody appends it anywhere else, ever. So the entry at the position tells
all: it has the attempt, or the member is void for good. Nothing is withdrawn, and no object of the intake decides
anything: a lost, late, stale, damaged or forged one costs a round, never a wrong outcome.

Objects of positions that are taken are garbage. Who lists the intake deletes those that it sees, by one request;
what is left when a crowd has gone is deleted when the log is cut (`truncate`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from mergelake.core.errors import CorruptDataError, MergelakeError, NotFoundError
from mergelake.core.json_load import loads
from mergelake.log.backend import at_once
from mergelake.log.encoding import decode_op, encode_op, is_sealed, require_format, sealed
from mergelake.log.operations import LogOp
from mergelake.store.protocol import Store

INTAKE_FORMAT = 1
TAKEN_MAX = 64
"""Members that one entry takes along."""
TAKEN_BYTES_MAX = 256 << 10
"""Bytes of the members that one entry takes along; a longer one does not go through the intake."""
_PAGE = 1000

_logger = logging.getLogger("mergelake.log")


@dataclass(frozen=True, slots=True)
class Left:
    """A member that was left for one position."""

    position: int
    attempt: str
    author: str
    ops: tuple[LogOp, ...]


def encode_left(left: Left) -> bytes:
    """The bytes of a member's object."""
    return sealed(
        {
            "format": INTAKE_FORMAT,
            "position": left.position,
            "attempt": left.attempt,
            "author": left.author,
            "ops": [encode_op(op) for op in left.ops],
        }
    )


def decode_left(data: bytes, key: str = "") -> Left:
    """Inverse of `encode_left`; CorruptDataError or UNKNOWN_FORMAT_VERSION for what cannot be read."""
    if not is_sealed(data, "A member in the intake", key):
        raise CorruptDataError("A member in the intake has no digest", object_key=key)
    try:
        raw = loads(data)
        require_format(int(raw["format"]), INTAKE_FORMAT, f"Member {key}")
        ops = tuple(decode_op(op) for op in raw["ops"])
        return Left(int(raw["position"]), str(raw["attempt"]), str(raw["author"]), ops)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError) as cause:
        if getattr(cause, "name", "") == "UNKNOWN_FORMAT_VERSION":
            raise
        raise CorruptDataError("A member in the intake is not readable", object_key=key, found=str(cause)) from cause


class Intake:
    """The intake of one log, as one process sees it. Not for several threads at once."""

    def __init__(self, store: Store, prefix: str, threads: int = 16) -> None:
        self._store = store
        self._folder = f"{prefix}/intake"
        self._threads = threads
        self._seen: list[str] = []  # keys that a listing showed
        self._taken = set[str]()
        self.late = False
        """Whether the last `take` showed members for the position before that had come too late for the one before."""

    def key(self, position: int, attempt: str) -> str:
        """Where a member lies."""
        return f"{self._folder}/{position:020d}-{attempt}.json"

    def leave(self, position: int, attempt: str, data: bytes) -> None:
        """One PUT. That it fails says nothing: the object may be there, or come later."""
        self._store.put(self.key(position, attempt), data)

    def take(self, position: int, own: str) -> list[Left]:
        """What others than `own` have left for a position: one LIST, and the GETs of what is there, at once.

        At most `TAKEN_MAX`, and `TAKEN_BYTES_MAX` of objects. What cannot be read, or is not for the position, is left
        out.
        """
        chosen: list[str] = []
        start, room = f"{self._folder}/{position:020d}-", TAKEN_BYTES_MAX
        for key, size in self._list():
            if key.startswith(start) and key != self.key(position, own) and len(chosen) < TAKEN_MAX and size <= room:
                chosen.append(key)
                room -= size
        self.late = any(_position(key) == position - 1 and key not in self._taken for key in self._seen)
        self._taken = set(chosen)
        found = [left for left in at_once(self._read, chosen, self._threads) if left is not None]
        return [left for left in found if left.position == position and left.attempt != own]

    def rank(self, position: int, attempt: str) -> int:
        """How many have left something for a position whose attempt comes before this one: one LIST."""
        start, own = f"{self._folder}/{position:020d}-", self.key(position, attempt)
        return sum(key.startswith(start) and key < own for key, _ in self._list())

    def knocked(self, since: int) -> bool:
        """Whether others have left something for a position behind `since`: one LIST."""
        return any(_position(item_key) > since for item_key, _ in self._list())

    def sweep(self, position: int) -> None:
        """Delete what listings showed of positions before this one, which is not taken yet: at most one DELETE."""
        old = [key for key in self._seen if _position(key) < position]
        self._seen = [key for key in self._seen if _position(key) >= position]
        self._delete(old)

    def _list(self) -> list[tuple[str, int]]:
        """Keys and sizes of one page."""
        try:
            page = list(islice(self._store.list(self._folder), _PAGE))
        except MergelakeError as cause:
            _logger.warning("the intake cannot be listed, going on without it: %s", cause)
            return []
        self._seen = [item.key for item in page if _position(item.key) >= 0]
        return [(item.key, item.size) for item in page]

    def _read(self, key: str) -> Left | None:
        try:
            left = decode_left(self._store.get(key), key)
        except NotFoundError:
            return None
        except MergelakeError as cause:
            _logger.warning("a member is left out: %s", cause)
            return None
        return left if left.ops and key == self.key(left.position, left.attempt) else None

    def _delete(self, keys: Sequence[str]) -> None:
        if keys:
            try:
                self._store.delete(keys)
            except MergelakeError as cause:
                _logger.warning("objects of the intake cannot be deleted yet: %s", cause)


def sweep_all(store: Store, prefix: str, before: int) -> int:
    """Delete what is left of positions before this one, all of which are taken; how many objects went."""
    gone = 0
    listing: Iterable[str] = (item.key for item in store.list(f"{prefix}/intake"))
    old = (key for key in listing if 0 <= _position(key) < before)
    while keys := list(islice(old, _PAGE)):
        store.delete(keys)
        gone += len(keys)
    return gone


def _position(key: str) -> int:
    """The position that an object is meant for; -1 for one of another kind."""
    digits = key.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdigit() else -1
