"""Asks nodes which of their volatile parts are ready, and for ranges of their bytes.

Bytes are immutable, and so is an answer "ready": it is remembered while the volatile part is Live. A node that did not
answer is left alone for a while, longer each time, so that it does not cost each read a connection attempt.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from mergelake.core.base.clock import Clock, SystemClock
from mergelake.core.base.errors import CorruptDataError, MergelakeError, NotFoundError, error
from mergelake.core.base.ids import RandomIds
from mergelake.log.model.state import Lease, State, VolatilePart
from mergelake.parts.read.cache import PartCache
from mergelake.store import open_store
from mergelake.store.interface.protocol import Store
from mergelake.store.peer.client import NotSent, PeerClient, Peers, UnknownOutcome
from mergelake.table.handle.volatile_choice import DiskPlace, MergedPart, PeerPlace, Place, Ready
from mergelake.table.volatile.volatile_record import decode_record, record_key
from mergelake.table.volatile.volatile_wire import (
    IDS_MAX,
    SERVICE,
    BytesRequest,
    ReadyRequest,
    cut_ranges,
    decode_ready,
    encode_request,
)

OFF, PEERS = "off", "peers"
READY_S, BYTES_S = 2.0, 5.0
"""Seconds for an answer: the stored parts are there, too."""
SMALL_CACHE_BYTES, SMALL_BYTES = 64 << 20, 256 << 10
"""Bytes of small pieces that a process remembers, and the most bytes of one."""
AVOID_FIRST_S, AVOID_MAX_S = 1.0, 60.0
SILENT = "it does not answer"
NOT_READY = "it is not ready there"

_logger = logging.getLogger("mergelake.table")


def volatile_mode(text: object) -> str:
    """The value of the setting `read_volatile`, checked; raises BAD_ARGUMENTS.

    `off`; `peers`: volatile parts are read from nodes that listen, and from the disks of nodes of this process; an
    absolute path, the directory that nodes of this machine got as `--local`: from their disks.
    """
    if isinstance(text, str) and (text in (OFF, PEERS) or text.startswith("/")):
        return text
    raise error(
        "BAD_ARGUMENTS", f"There is no read_volatile {text!r}", "It is 'off', 'peers' or the directory of nodes' disks"
    )


class OwnerGone(Exception):
    """The bytes of a volatile part cannot be had from its node (any more): its sources are read."""

    def __init__(self, part: MergedPart, why: str) -> None:
        super().__init__(f"volatile part {part.name} of node {part.node}: {why}")
        self.id = part.id
        self.why = why


class VolatileReads:
    """The nodes from which this process reads volatile parts. Threads may share it."""

    def __init__(self, peers: Peers | None, clock: Clock) -> None:
        """Without `peers`, volatile parts are read from disks only."""
        self.disks: dict[str, Store] = {}
        """Disks of nodes of this process, by node."""
        self.small = PartCache(SMALL_CACHE_BYTES)
        """Small pieces of volatile parts that were read and verified: marks, indexes."""
        self._peers = peers
        self._clock = clock
        self._lock = threading.Lock()
        self._avoided: dict[Place, tuple[float, float]] = {}
        """Until when, and for how long, a place is left alone."""
        self._ready: dict[str, dict[tuple[str, Place], Ready]] = {}
        """By table, volatile part and place."""

    # -- which are ready -----------------------------------------------------------------------

    def ready(self, directory: str, state: State, leases: Mapping[str, Lease], mode: str) -> dict[str, Ready | str]:
        """By id of each Live volatile part of `state` its bytes, or why they cannot be read.

        `leases` are the newest that are known. One request for each node, for the parts of which it is not known that
        they are ready.
        """
        by_owner: dict[str, list[str]] = {}
        for part in _live(state):
            by_owner.setdefault(part.owner, []).append(part.id)
        known = self._ready.get(directory, {})
        kept: dict[tuple[str, Place], Ready] = {}
        out: dict[str, Ready | str] = {}
        for node, ids in by_owner.items():
            place = self._place(node, leases.get(node), mode)
            if isinstance(place, str):
                out.update(dict.fromkeys(ids, place))
                continue
            held = {each: known[each, place] for each in ids if (each, place) in known}
            found = self._with_news(place, directory, ids, held)
            out.update({each: SILENT if found is None else found.get(each, NOT_READY) for each in ids})
            kept.update({(each, place): ready for each, ready in (found or {}).items()})
        with self._lock:
            self._ready[directory] = kept
        return out

    def _place(self, node: str, lease: Lease | None, mode: str) -> Place | str:
        """Where a node's bytes are read, or why nowhere."""
        if mode != PEERS:
            path = Path(mode, node)
            return DiskPlace(str(path)) if path.is_dir() else f"{mode} has no directory of this node"
        if node in self.disks:
            return DiskPlace(self.disks[node].url)
        if lease is None or not lease.address:
            return "it does not listen"
        if self._peers is None:
            return "this process asks no others"
        return PeerPlace(lease.address, lease.token)

    def _with_news(
        self, place: Place, directory: str, ids: Sequence[str], known: dict[str, Ready]
    ) -> dict[str, Ready] | None:
        """What is `known` to be ready there, and those of the other ids that are; None if the place does not answer."""
        if not self._is_fine(place):
            return None
        left = [each for each in ids if each not in known]
        if not left:
            return known
        if isinstance(place, DiskPlace):
            return known | self._on_disk(place, directory, left)
        found: dict[str, Ready] = {}
        try:
            while left:
                asked, left = left[:IDS_MAX], left[IDS_MAX:]
                answer = decode_ready(self._call(place, encode_request(ReadyRequest(directory, tuple(asked))), READY_S))
                found |= {each: Ready(manifest, place) for each, manifest in answer.ready if each in asked}
                again = [each for each in answer.left if each in asked and each not in found]
                if len(again) < len(asked):
                    left += again
        except (NotSent, UnknownOutcome, CorruptDataError) as cause:
            self._avoid(place, str(cause))
            return None
        with self._lock:
            self._avoided.pop(place, None)
        return known | found

    def _on_disk(self, place: DiskPlace, directory: str, ids: Iterable[str]) -> dict[str, Ready]:
        found: dict[str, Ready] = {}
        for each in ids:
            try:
                record = decode_record(self._disk(place).get(record_key(directory, each)))
            except MergelakeError:  # it is not there, or the disk is gone
                continue
            if record is not None and record[0] == each:
                found[each] = Ready(record[2], place)
        return found

    # -- their bytes ---------------------------------------------------------------------------

    def fetch(
        self, part: MergedPart, directory: str, key: str, ranges: Sequence[tuple[int, int]]
    ) -> Iterator[memoryview]:
        """The bytes of ranges (start, length) of an object, in pieces that end with their ranges, as they arrive.

        `key` is relative to the table's directory. Raises OwnerGone.
        """
        place = part.place
        if not self._is_fine(place):
            raise OwnerGone(part, SILENT)
        try:
            if isinstance(place, DiskPlace):
                for held in self._disk(place).get_ranges(f"{directory}/{key}", ranges):
                    yield memoryview(held)
                return
            for group in cut_ranges(ranges):
                body = memoryview(self._bytes(place, BytesRequest(directory, key, tuple(group))))
                at = 0
                for _, length in group:
                    yield body[at : at + length]
                    at += length
        except NotFoundError as cause:
            self._forget(part)
            raise OwnerGone(part, NOT_READY) from cause
        except (NotSent, UnknownOutcome, MergelakeError) as cause:
            self.failed(part, str(cause))
            raise OwnerGone(part, SILENT) from cause

    def failed(self, part: MergedPart, why: str) -> None:
        """Leave the place of a part alone for a while, and forget that it is ready."""
        self._avoid(part.place, why)
        self._forget(part)

    def _forget(self, part: MergedPart) -> None:
        with self._lock:
            for known in self._ready.values():
                known.pop((part.id, part.place), None)

    def _bytes(self, place: PeerPlace, request: BytesRequest) -> bytes:
        body = self._call(place, encode_request(request), BYTES_S)
        wanted = sum(length for _, length in request.ranges)
        if wanted and not body:
            raise NotFoundError(request.key)
        if len(body) != wanted:
            raise CorruptDataError("A node sent another number of bytes", expected=str(wanted), found=str(len(body)))
        return body

    def _call(self, place: PeerPlace, request: bytes, within_s: float) -> bytes:
        if self._peers is None:
            raise NotSent("this process asks no others")
        return self._peers.call(place.address, place.token, SERVICE, request, within_s)

    def _disk(self, place: DiskPlace) -> Store:
        own = next((store for store in self.disks.values() if store.url == place.url), None)
        return own if own is not None else _opened(place.url)

    # -- places that do not answer -------------------------------------------------------------

    def _is_fine(self, place: Place) -> bool:
        with self._lock:
            return self._avoided.get(place, (0.0, 0.0))[0] <= self._clock.monotonic_s()

    def _avoid(self, place: Place, why: str) -> None:
        if isinstance(place, DiskPlace):
            return  # to look there again costs nothing
        with self._lock:
            _, before_s = self._avoided.get(place, (0.0, 0.0))
            for_s = min(max(2 * before_s, AVOID_FIRST_S), AVOID_MAX_S)
            self._avoided[place] = self._clock.monotonic_s() + for_s, for_s
        level = logging.INFO if before_s else logging.WARNING
        _logger.log(level, "volatile parts are not read from %s for %.0f s: %s", place.address, for_s, why)


def _live(state: State) -> Iterable[VolatilePart]:
    return (part for held in state.volatile.values() for part in held)


@cache
def _opened(url: str) -> Store:
    return open_store(url)


def of_process() -> VolatileReads:
    """The one that tasks of this process share."""
    return _of_process(os.getpid(), SystemClock)


@cache
def _of_process(_: int, clock: Callable[[], Clock]) -> VolatileReads:
    return VolatileReads(PeerClient(clock=clock(), ids=RandomIds()), clock())
