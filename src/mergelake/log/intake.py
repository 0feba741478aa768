"""The intake: what writers who met others leave for whoever appends the next entry.

::

    <prefix>/intake/<position, 20 digits>-<attempt>.json
        {"format": 1, "position": 7, "attempt": "…", "author": "host:4711", "ops": […], "digest": "…"}

in the bucket; of a log in ZooKeeper, nodes of the same names (`backend_zookeeper`).

A member in the intake is meant for one position only. Whoever appends the entry of that position may take it along,
judged by its preconditions at its own place; nobody appends it anywhere else, ever. So the entry at the position tells
all: it has the attempt, or the member is void for good. Nothing is withdrawn, and no object of the intake decides
anything: a lost, late, stale, damaged or forged one costs a round, never a wrong outcome.

Objects of positions that are taken are garbage. Who lists the intake deletes those that it sees, by one request;
what is left when a crowd has gone is deleted when the log is cut (`truncate`), and goes with its writer's session in
ZooKeeper.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from mergelake.core.errors import CorruptDataError, MergelakeError, NotFoundError
from mergelake.core.json_load import fields, value
from mergelake.log.at_once import at_once
from mergelake.log.encoding import decode_ops, encode_ops, is_sealed, require_format, sealed
from mergelake.log.operations import LogOp
from mergelake.store.protocol import Store

INTAKE_FORMAT = 1
TAKEN_MAX = 64
"""Members that one entry takes along."""
TAKEN_BYTES_MAX = 256 << 10
"""Bytes of the members that one entry takes along; a longer one does not go through the intake."""
PAGE = 1000
"""Members that one look shows."""

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
            "ops": encode_ops(left.ops),
        }
    )


def decode_left(data: bytes, key: str = "") -> Left:
    """Inverse of `encode_left`; CorruptDataError or UNKNOWN_FORMAT_VERSION for what cannot be read."""
    if not is_sealed(data, "A member in the intake", key):
        raise CorruptDataError("A member in the intake has no digest", object_key=key)
    try:
        raw = fields(data)
        require_format(int(value(raw["format"])), INTAKE_FORMAT, f"Member {key}")
        position, attempt, author = (value(raw[name]) for name in ("position", "attempt", "author"))
        return Left(int(position), str(attempt), str(author), decode_ops(raw["ops"]))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError) as cause:
        if getattr(cause, "name", "") == "UNKNOWN_FORMAT_VERSION":
            raise
        raise CorruptDataError("A member in the intake is not readable", object_key=key, found=str(cause)) from cause


class Place(Protocol):
    """Where members lie, by keys below a folder. It may fail, and may forget them."""

    def put(self, key: str, data: bytes) -> None:
        """Leave one."""
        ...

    def page(self, folder: str) -> list[tuple[str, int]]:
        """Keys below a folder, in order, and sizes, 0 where that is not known: at most `PAGE` of them."""
        ...

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """What lies there, as far as it can be had; at once."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove them, if they are there."""
        ...


@dataclass(frozen=True, slots=True)
class Objects:
    """Members as objects of the bucket."""

    store: Store
    threads: int

    def put(self, key: str, data: bytes) -> None:
        """One PUT."""
        self.store.put(key, data)

    def page(self, folder: str) -> list[tuple[str, int]]:
        """One LIST."""
        return [(item.key, item.size) for item in islice(self.store.list(folder), PAGE)]

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """A GET each."""
        return at_once(self._get, keys, self.threads)

    def delete(self, keys: Sequence[str]) -> None:
        """One DELETE."""
        self.store.delete(keys)

    def _get(self, key: str) -> bytes | None:
        try:
            return self.store.get(key)
        except NotFoundError:
            return None
        except MergelakeError as cause:
            _logger.warning("a member is left out: %s", cause)
            return None


class Intake:
    """The intake of one log, as one process sees it. Not for several threads at once."""

    def __init__(self, place: Place, folder: str) -> None:
        self._place = place
        self._folder = folder
        self._seen: list[str] = []  # keys that a listing showed
        self._taken = set[str]()
        self.late = False
        """Whether the last `take` showed members for the position before that had come too late for the one before."""

    @staticmethod
    def of_bucket(store: Store, prefix: str, threads: int = 16) -> Intake:
        """That of the log below a prefix."""
        return Intake(Objects(store, threads), f"{prefix}/intake")

    def key(self, position: int, attempt: str) -> str:
        """Where a member lies."""
        return f"{self._folder}/{position:020d}-{attempt}.json"

    def leave(self, position: int, attempt: str, data: bytes) -> None:
        """One request. That it fails says nothing: the member may be there, or come later."""
        self._place.put(self.key(position, attempt), data)

    def take(self, position: int, own: str) -> list[Left]:
        """What others than `own` have left for a position: one LIST, and what is there, at once.

        At most `TAKEN_MAX`, and `TAKEN_BYTES_MAX` of members. What cannot be read, or is not for the position, is left
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
        found, room = list[Left](), TAKEN_BYTES_MAX
        for key, data in zip(chosen, self._place.get_many(chosen) if chosen else (), strict=True):
            room -= len(data or b"")
            left = self._decoded(key, data) if data is not None and room >= 0 else None
            if left is not None and left.position == position and left.attempt != own:
                found.append(left)
        return found

    def rank(self, position: int, attempt: str) -> int:
        """How many have left something for a position whose attempt comes before this one: one LIST."""
        start, own = f"{self._folder}/{position:020d}-", self.key(position, attempt)
        return sum(key.startswith(start) and key < own for key, _ in self._list())

    def knocked(self, since: int) -> list[str]:
        """The attempts for which something was left, for positions behind `since`: one LIST."""
        return [key.rpartition("-")[2].partition(".")[0] for key, _ in self._list() if _position(key) > since]

    def sweep(self, position: int) -> None:
        """Delete what listings showed of positions before this one, which is not taken yet: at most one DELETE."""
        old = [key for key in self._seen if _position(key) < position]
        self._seen = [key for key in self._seen if _position(key) >= position]
        self._delete(old)

    def _list(self) -> list[tuple[str, int]]:
        """Keys and sizes of one page."""
        try:
            page = self._place.page(self._folder)
        except MergelakeError as cause:
            _logger.warning("the intake cannot be listed, going on without it: %s", cause)
            return []
        self._seen = [key for key, _ in page if _position(key) >= 0]
        return page

    def _decoded(self, key: str, data: bytes) -> Left | None:
        try:
            left = decode_left(data, key)
        except MergelakeError as cause:
            _logger.warning("a member is left out: %s", cause)
            return None
        return left if left.ops and key == self.key(left.position, left.attempt) else None

    def _delete(self, keys: Sequence[str]) -> None:
        if keys:
            try:
                self._place.delete(keys)
            except MergelakeError as cause:
                _logger.warning("objects of the intake cannot be deleted yet: %s", cause)


def sweep_all(store: Store, prefix: str, before: int) -> int:
    """Delete what is left of positions before this one, all of which are taken; how many objects went."""
    gone = 0
    listing: Iterable[str] = (item.key for item in store.list(f"{prefix}/intake"))
    old = (key for key in listing if 0 <= _position(key) < before)
    while keys := list(islice(old, PAGE)):
        store.delete(keys)
        gone += len(keys)
    return gone


def _position(key: str) -> int:
    """The position that an object is meant for; -1 for one of another kind."""
    digits = key.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdigit() else -1
