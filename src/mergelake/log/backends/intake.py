"""The intake: operations that writers leave for the writer of the next entry.

::

    <prefix>/intake/<position, 20 digits>-<writer>.json
        {"format": 1, "position": 7, "attempt": "…", "author": "host:4711", "ops": […], "digest": "…"}

in the bucket; for a log in ZooKeeper, nodes of the same names (`backend_zookeeper`). *Writer* is the common beginning
of the attempts of one process: members of known writers can be read without waiting for a listing.

A member in the intake is meant for one position only. The writer that appends the entry of that position may include
it, if its preconditions hold at its place in the entry; it is never appended anywhere else. So the entry at the
position is decisive: it has the attempt, or the member is void for good. Nothing is withdrawn, and no object of the
intake decides anything: a lost, late, stale, damaged or forged one costs a round, never a wrong outcome.

Objects of positions that are taken are garbage. A process that lists the intake deletes those that it sees, by one
request; the rest is deleted when the log is cut (`truncate`); nodes of ZooKeeper end with their writer's session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeAlias

from mergelake.core.base.errors import CorruptDataError, MergelakeError, NotFoundError
from mergelake.core.base.json_load import fields, value
from mergelake.log.model.operations import LogOp, writer_of
from mergelake.log.storage.at_once import at_once
from mergelake.log.storage.encoding import decode_ops, decoding, encode_ops, is_sealed, require_format, sealed
from mergelake.store.interface.protocol import Store

INTAKE_FORMAT = 2
TAKEN_MAX = 64
"""Members of other writers that one entry includes."""
TAKEN_BYTES_MAX = 256 << 10
"""Bytes of the members of other writers that one entry includes; a longer member is not left in the intake."""
PAGE = 1000
"""Members that one listing shows."""
KNOWN_MAX = 15
"""Known writers whose members are read beside the listing: with it, as many requests as are made concurrently."""
Page: TypeAlias = list[tuple[str, int]]
"""Keys and sizes, the size 0 if it is not known."""

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
    """Inverse of `encode_left`; raises CorruptDataError or UNKNOWN_FORMAT_VERSION."""
    if not is_sealed(data, "A member in the intake", key):
        raise CorruptDataError("A member in the intake has no digest", object_key=key)
    with decoding("A member in the intake is not readable", key):
        raw = fields(data)
        require_format(int(value(raw["format"])), (INTAKE_FORMAT,), f"Member {key}")
        position, attempt, author = (value(raw[name]) for name in ("position", "attempt", "author"))
        return Left(int(position), str(attempt), str(author), decode_ops(raw["ops"]))


class IntakePlace(Protocol):
    """A store of members, by keys below a folder. It may fail, and may lose them."""

    def put(self, key: str, data: bytes) -> None:
        """Write a member."""
        ...

    def list_and_get(self, folder: str, keys: Sequence[str]) -> tuple[Page, list[bytes | None]]:
        """At most `PAGE` keys of a folder, in order, and the contents of `keys`, None if missing; concurrently."""
        ...

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The contents of keys, None for those missing or unreadable; concurrently."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove members, if they exist."""
        ...


@dataclass(frozen=True, slots=True)
class Objects:
    """Members as objects of the bucket."""

    store: Store
    threads: int

    def put(self, key: str, data: bytes) -> None:
        """One PUT."""
        self.store.put(key, data)

    def list_and_get(self, folder: str, keys: Sequence[str]) -> tuple[Page, list[bytes | None]]:
        """One LIST, and one GET per key."""
        requests: list[Callable[[], Any]] = [partial(self._page, folder), *(partial(self._get, key) for key in keys)]
        page, *bodies = at_once(lambda request: request(), requests, self.threads)
        return page, bodies

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """One GET per key."""
        return at_once(self._get, keys, self.threads)

    def delete(self, keys: Sequence[str]) -> None:
        """One DELETE."""
        self.store.delete(keys)

    def _page(self, folder: str) -> Page:
        return [(item.key, item.size) for item in islice(self.store.list(folder), PAGE)]

    def _get(self, key: str) -> bytes | None:
        try:
            return self.store.get(key)
        except NotFoundError:
            return None
        except MergelakeError as cause:
            _logger.warning("a member is left out: %s", cause)
            return None


class Intake:
    """The intake of one log, as one process sees it. Not thread-safe."""

    def __init__(self, place: IntakePlace, folder: str) -> None:
        self._place = place
        self._folder = folder
        self._seen: list[str] = []  # keys that a listing showed
        self._taken = set[str]()
        self.late = False
        """Whether `take` found members for the previous position that the previous entry does not include."""

    @staticmethod
    def of_bucket(store: Store, prefix: str, threads: int = 16) -> Intake:
        """The intake, in the bucket, of the log below a prefix."""
        return Intake(Objects(store, threads), f"{prefix}/intake")

    def key(self, position: int, attempt: str) -> str:
        """Key of a member: one per writer and position, so a later member replaces an earlier one."""
        return f"{self._folder}/{position:020d}-{writer_of(attempt)}.json"

    def leave(self, position: int, attempt: str, data: bytes) -> None:
        """Write a member, by one request. After a failure the member may still be there, or arrive later."""
        self._place.put(self.key(position, attempt), data)

    def take(self, position: int, own: str, known: Collection[str] = ()) -> list[Left]:
        """The members, other than `own`, for a position: one LIST, and concurrent GETs.

        The members of `known` writers are read beside the LIST, if these are at most `KNOWN_MAX`. Returns at most
        `TAKEN_MAX` members of `TAKEN_BYTES_MAX` in sum, without those that are unreadable or for another position.
        """
        page, left = self._list([self.key(position, writer) for writer in known] if len(known) <= KNOWN_MAX else ())
        start, room = f"{self._folder}/{position:020d}-", TAKEN_BYTES_MAX - sum(map(len, left.values()))
        keys_to_get: list[str] = []
        for key, size in page:
            new = key.startswith(start) and key not in left and key != self.key(position, own)
            if new and len(left) + len(keys_to_get) < TAKEN_MAX and size <= room:
                keys_to_get.append(key)
                room -= size
        self.late = any(_position(key) == position - 1 and key not in self._taken for key in self._seen)
        left |= _present(keys_to_get, self._place.get_many(keys_to_get)) if keys_to_get else {}
        self._taken = {*left, *keys_to_get}
        members, room = list[Left](), TAKEN_BYTES_MAX
        for key, data in left.items():
            room -= len(data)
            member = self._decoded(key, data) if room >= 0 else None
            if member is not None and member.position == position and member.attempt != own:
                members.append(member)
        return members

    def rank(self, position: int, attempt: str) -> int:
        """How many members for a position come before this one in the order of keys: one LIST."""
        start, own = f"{self._folder}/{position:020d}-", self.key(position, attempt)
        return sum(key.startswith(start) and key < own for key, _ in self._list()[0])

    def knocked(self, since: int) -> list[str]:
        """The writers with members for positions after `since`: one LIST."""
        return [key.rpartition("-")[2].partition(".")[0] for key, _ in self._list()[0] if _position(key) > since]

    def sweep(self, position: int) -> None:
        """Delete the listed members for positions before this one, which are all taken: at most one DELETE."""
        old = [key for key in self._seen if _position(key) < position]
        self._seen = [key for key in self._seen if _position(key) >= position]
        self._delete(old)

    def _list(self, keys: Sequence[str] = ()) -> tuple[Page, dict[str, bytes]]:
        """One page of a listing, and the contents of those of `keys` that exist; empty if the listing fails."""
        try:
            page, bodies = self._place.list_and_get(self._folder, keys)
        except MergelakeError as problem:
            _logger.warning("the intake cannot be listed, going on without it: %s", problem)
            return [], {}
        self._seen = [key for key, _ in page if _position(key) >= 0]
        return page, _present(keys, bodies)

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
    """Delete all members for positions before `before`, which are all taken; returns how many."""
    gone = 0
    listing: Iterable[str] = (item.key for item in store.list(f"{prefix}/intake"))
    old = (key for key in listing if 0 <= _position(key) < before)
    while keys := list(islice(old, PAGE)):
        store.delete(keys)
        gone += len(keys)
    return gone


def _present(keys: Sequence[str], bodies: Sequence[bytes | None]) -> dict[str, bytes]:
    return {key: data for key, data in zip(keys, bodies, strict=True) if data is not None}


def _position(key: str) -> int:
    """The position that an object is meant for; -1 for one of another kind."""
    digits = key.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdigit() else -1
