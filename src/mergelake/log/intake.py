"""The intake: what writers who met others leave for whoever appends the next entry.

::

    <prefix>/intake/<position, 20 digits>-<writer>.json
        {"format": 1, "position": 7, "attempt": "…", "author": "host:4711", "ops": […], "digest": "…"}

in the bucket; of a log in ZooKeeper, nodes of the same names (`backend_zookeeper`). *Writer* is what the attempts of
one process begin with: who knows which others there are asks for what they left without waiting for a listing.

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
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeAlias

from mergelake.core.errors import CorruptDataError, MergelakeError, NotFoundError
from mergelake.core.json_load import fields, value
from mergelake.log.at_once import at_once
from mergelake.log.encoding import decode_ops, encode_ops, is_sealed, require_format, sealed
from mergelake.log.operations import LogOp, writer_of
from mergelake.store.protocol import Store

INTAKE_FORMAT = 2
TAKEN_MAX = 64
"""Members that one entry takes along."""
TAKEN_BYTES_MAX = 256 << 10
"""Bytes of the members that one entry takes along; a longer one does not go through the intake."""
PAGE = 1000
"""Members that one look shows."""
KNOWN_MAX = 15
"""Writers up to which each is asked for what it left beside the listing: as many requests as are made at once."""
Page: TypeAlias = list[tuple[str, int]]
"""Keys, and sizes, 0 where that is not known."""

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
        require_format(int(value(raw["format"])), (INTAKE_FORMAT,), f"Member {key}")
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

    def look(self, folder: str, keys: Sequence[str]) -> tuple[Page, list[bytes | None]]:
        """At most `PAGE` keys of a folder, in order, and what lies under `keys`; at once, where requests are slow."""
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

    def look(self, folder: str, keys: Sequence[str]) -> tuple[Page, list[bytes | None]]:
        """One LIST, and a GET each."""
        asked: list[Callable[[], Any]] = [partial(self._page, folder), *(partial(self._get, key) for key in keys)]
        page, *found = at_once(lambda ask: ask(), asked, self.threads)
        return page, found

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """A GET each."""
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
        """Where a member lies: one of each writer. What it leaves again takes the place of what it left before."""
        return f"{self._folder}/{position:020d}-{writer_of(attempt)}.json"

    def leave(self, position: int, attempt: str, data: bytes) -> None:
        """One request. That it fails says nothing: the member may be there, or come later."""
        self._place.put(self.key(position, attempt), data)

    def take(self, position: int, own: str, known: Collection[str] = ()) -> list[Left]:
        """What others than `own` have left for a position: one LIST, and what is there, at once.

        What `known` writers have left is asked for beside the LIST, if they are few. At most `TAKEN_MAX` members, of
        `TAKEN_BYTES_MAX`. What cannot be read, or is not for the position, is left out.
        """
        page, left = self._look([self.key(position, writer) for writer in known] if len(known) <= KNOWN_MAX else ())
        start, room = f"{self._folder}/{position:020d}-", TAKEN_BYTES_MAX - sum(map(len, left.values()))
        more: list[str] = []
        for key, size in page:
            new = key.startswith(start) and key not in left and key != self.key(position, own)
            if new and len(left) + len(more) < TAKEN_MAX and size <= room:
                more.append(key)
                room -= size
        self.late = any(_position(key) == position - 1 and key not in self._taken for key in self._seen)
        left |= _there(more, self._place.get_many(more)) if more else {}
        self._taken = {*left, *more}
        found, room = list[Left](), TAKEN_BYTES_MAX
        for key, data in left.items():
            room -= len(data)
            member = self._decoded(key, data) if room >= 0 else None
            if member is not None and member.position == position and member.attempt != own:
                found.append(member)
        return found

    def rank(self, position: int, attempt: str) -> int:
        """How many have left something for a position whose attempt comes before this one: one LIST."""
        start, own = f"{self._folder}/{position:020d}-", self.key(position, attempt)
        return sum(key.startswith(start) and key < own for key, _ in self._look()[0])

    def knocked(self, since: int) -> list[str]:
        """The writers that have left something for positions behind `since`: one LIST."""
        return [key.rpartition("-")[2].partition(".")[0] for key, _ in self._look()[0] if _position(key) > since]

    def sweep(self, position: int) -> None:
        """Delete what listings showed of positions before this one, which is not taken yet: at most one DELETE."""
        old = [key for key in self._seen if _position(key) < position]
        self._seen = [key for key in self._seen if _position(key) >= position]
        self._delete(old)

    def _look(self, keys: Sequence[str] = ()) -> tuple[Page, dict[str, bytes]]:
        """One page, and what lies under `keys`."""
        try:
            page, found = self._place.look(self._folder, keys)
        except MergelakeError as problem:
            _logger.warning("the intake cannot be listed, going on without it: %s", problem)
            return [], {}
        self._seen = [key for key, _ in page if _position(key) >= 0]
        return page, _there(keys, found)

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


def _there(keys: Sequence[str], found: Sequence[bytes | None]) -> dict[str, bytes]:
    return {key: data for key, data in zip(keys, found, strict=True) if data is not None}


def _position(key: str) -> int:
    """The position that an object is meant for; -1 for one of another kind."""
    digits = key.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdigit() else -1
