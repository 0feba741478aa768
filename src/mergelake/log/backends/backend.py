"""Where the entries of a log lie: the protocol of a backend, and its implementation in an object store.

`LogBackend` is all that `tail` and `commit` know of the system that assigns positions. There are two implementations:
`ObjectBackend` below, where an entry is an object created only if it is absent, and
`backend_zookeeper.ZooKeeperBackend`, where the newest entries are nodes. Checkpoints and the hint are objects of the
bucket in either case.

Guarantees of a backend (`tests/…/test_log_contract.py` checks both):

* `create` has one winner for a position, among all writers at all times; after a lost reply it returns `Unknown`,
  never a guessed `Lost` or `Stored`;
* once created, an entry is read back byte for byte by every reader until it is collected;
* a position that was collected is never assigned again to a writer that slept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import CorruptDataError, MergelakeError, NotFoundError, error
from mergelake.log.backends import batches
from mergelake.log.backends.intake import Intake
from mergelake.log.storage.at_once import at_once
from mergelake.store.interface.protocol import PutOutcome, Store

POLL_FIRST_S, POLL_MAX_S = 0.05, 1.0
"""Pauses between two polls of a waiting reader: the first one, and the longest."""
DELETE_BATCH = 1000
"""Entries in one delete request of a truncation."""


class CollectedError(NotFoundError):
    """An entry has been collected: the state of the caller is too old to go on from."""


class LogBackend(Protocol):
    """The system that assigns the positions of one log. Thread-safe."""

    @property
    def intake(self) -> Intake | None:
        """Where writers of other processes leave operations for the next entry; None for a read-only backend."""
        ...

    @property
    def tells(self) -> bool:
        """Whether a waiting caller is notified of a new entry, and need not poll."""
        ...

    def key(self, version: int) -> str:
        """Where an entry lies or will lie, for messages."""
        ...

    def create(self, version: int, data: bytes) -> PutOutcome:
        """Append an entry at a position, if it is free. The caller has seen every entry before it.

        Raises UnavailableError if nothing was sent or the outcome is unknown (as `Unknown`), InvalidInputError if the
        store refuses the request.
        """
        ...

    def read(self, version: int) -> bytes | None:
        """The entry at a position, None if nothing has been committed there, or if it has been collected."""
        ...

    def read_many(self, versions: Sequence[int]) -> list[bytes | None]:
        """`read` of several positions, concurrently where that pays. May return fewer results than positions, at least
        one. Raises CollectedError for an entry that is known to have been collected.
        """
        ...

    def read_on(self, first: int, ahead: int) -> list[bytes | None]:
        """The entries from a position on, about `ahead` of them, at least one result; None marks the end of the log.

        The caller has read all entries before `first`, here or from a checkpoint.
        """
        ...

    def seal(self, version: int) -> None:
        """Copy all entries up to `version` to the bucket, oldest first, as far as they are not there yet."""
        ...

    def sealed_key(self, version: int) -> str:
        """Key of the object of the bucket that holds a sealed entry."""
        ...

    def trim(self, version: int) -> None:
        """There is a checkpoint at `version`: entries up to it need to be in the bucket only."""
        ...

    def end(self) -> int:
        """Assign no position any more, ever; returns the last version. Used when the log moves elsewhere."""
        ...

    def forget(self) -> None:
        """Remove what this backend holds outside the bucket, of a log that has ended here; everything is sealed."""
        ...

    def wait(self, version: int, timeout_s: float, poll_s: float | None = None) -> bool:
        """Return True once there is an entry at `version`, False after `timeout_s` seconds without one.

        The caller has just read that position. `poll_s` is the pause between two polls of a backend that has to poll
        (None: short ones first, then longer).
        """
        ...

    def pause(self, version: int, seconds: float) -> None:
        """Sleep for `seconds`; if the backend `tells`, only until there may be an entry at `version`."""
        ...

    def when_changed(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, from some thread, when there is a new entry; never if the backend has to poll."""
        ...

    def truncate(self, before: int) -> int:
        """Delete the entries before a version, oldest first, so that the rest is dense; returns how many.

        The caller knows that there is a newer checkpoint and that no reader needs them.
        """
        ...


EVERY = 1 << 62
"""Value of `batched` if any entry may lie in a batch."""


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The entries read along with the last one, from the same object."""

    version: int = 0
    """The version after the last one read."""
    entries: Sequence[bytes] = ()
    """The entries from `version` on in the same object; empty: another object begins at `version`."""
    batch: bool = False
    """Whether the object is a batch."""


class ObjectBackend:
    """Entries as objects `<prefix>/<20 digits>.json`, created only if absent; sealed ones perhaps in batches.

    An entry without an object of its name may lie in a batch that begins before it (`batches`). A batch is searched for
    only where there can be one: not in a log that was always in the bucket, nor right after an object that was read.
    """

    intake: Intake | None
    tells = False

    def __init__(self, store: Store, prefix: str, *, clock: Clock, threads: int = 16, batched: int = 0) -> None:
        """`batched`: entries up to this version may lie in batches, as in a log that is or was in ZooKeeper."""
        self.store = store
        self.prefix = prefix
        self.clock = clock
        self.threads = threads
        self._batched = batched
        self._ahead = _Ahead()
        self.intake = Intake.of_bucket(store, prefix, threads)

    def key(self, version: int) -> str:
        """Key of an entry that is alone, or the first of a batch."""
        return f"{self.prefix}/{version:020d}.json"

    def large_key(self, version: int, digest: str) -> str:
        """Key of an entry that is too large for a node of ZooKeeper, until it is sealed."""
        return f"{self.prefix}/large/{version:020d}-{digest}"

    def create(self, version: int, data: bytes) -> PutOutcome:
        """One conditional PUT."""
        return self.store.create(self.key(version), data)

    def read(self, version: int) -> bytes | None:
        """One GET; up to six more, concurrently, for a missing entry that may lie in a batch."""
        data = self._get(version)
        entries = self._inside(version) if data is None else self._split(version, data)
        return entries[0] if entries else None

    def read_many(self, versions: Sequence[int]) -> list[bytes | None]:
        """One GET each, by several threads; one for all that lie in a batch."""
        ahead = self._ahead
        if versions[0] == ahead.version and ahead.entries:
            count = sum(version == versions[0] + at for at, version in enumerate(versions[: len(ahead.entries)]))
            self._ahead = _Ahead(ahead.version + count, ahead.entries[count:], batch=True)
            return list(ahead.entries[:count])
        if ahead.batch if versions[0] == ahead.version else versions[0] <= self._batched:
            versions = versions[:1]  # most of the others lie in the same batch
        objects = at_once(self._get, versions, self.threads)
        out: list[bytes | None] = []
        ahead = _Ahead()
        for at, (version, data) in enumerate(zip(versions, objects, strict=True)):
            if data is not None:
                entries = self._split(version, data)
            elif version == ahead.version and ahead.entries:
                entries = ahead.entries
            elif at and versions[at - 1] == version - 1:
                entries = ()  # a batch with this entry would hold the one before it, too
            else:
                entries = self._inside(version)
            out.append(entries[0] if entries else None)
            if entries:
                ahead = _Ahead(version + 1, entries[1:], batch=data is None or len(entries) > 1)
        if ahead.version:
            self._ahead = ahead
        return out

    def read_on(self, first: int, ahead: int) -> list[bytes | None]:
        """`ahead` entries. If the first one is missing, later calls do not search for it in a batch again."""
        entries = self.read_many(range(first, first + ahead))
        if entries[0] is None:
            # All entries before it were read: a batch with this one would also hold the one before it.
            self._ahead = _Ahead(first)
        return entries

    def read_all(self, versions: Sequence[int]) -> list[bytes | None]:
        """`read_many`, repeated until there is a result for each version."""
        out: list[bytes | None] = []
        while len(out) < len(versions):
            out += self.read_many(versions[len(out) :])
        return out

    def object_at(self, first: int) -> Sequence[bytes]:
        """The entries of the object that begins with entry `first`; none if there is no such object. One GET.

        Raises CorruptDataError for a batch that is damaged.
        """
        data = self._get(first)
        try:
            return () if data is None else batches.decode(first, data)
        except batches.Damaged as cause:
            message = "A batch of log entries is damaged"
            raise CorruptDataError(message, object_key=self.key(first), found=str(cause)) from cause

    def sealed_key(self, version: int) -> str:
        """No request if the entry cannot lie in a batch."""
        if version <= self._batched and self._get(version) is None:
            return self.key(self._around(version)[0])
        return self.key(version)

    def _get(self, version: int) -> bytes | None:
        try:
            return self.store.get(self.key(version))
        except NotFoundError:
            return None

    def _inside(self, version: int) -> Sequence[bytes]:
        """An entry without an object of its name, and those after it in the same batch; none if there is no batch."""
        ahead = self._ahead
        if version > self._batched or (version == ahead.version and not ahead.entries):
            return ()
        first, data = self._around(version)
        return self._split(first, data)[version - first :] if first < version else ()

    def _around(self, version: int) -> tuple[int, bytes]:
        """First entry and bytes of the batch that holds an entry; the entry itself and no bytes if there is none."""
        candidates = batches.starts(version)[1:]
        for first, data in zip(candidates, at_once(self._get, candidates, self.threads), strict=True):
            if data is not None:  # objects before this one end before it begins
                return (first, data) if batches.reach(first, data) >= version else (version, b"")
        return version, b""

    def _split(self, first: int, data: bytes) -> Sequence[bytes]:
        """The entries of an object. A damaged batch is returned unchanged for each entry it could hold: undecodable."""
        try:
            return batches.decode(first, data)
        except batches.Damaged:
            return [data] * (batches.reach(first, data) - first + 1)

    def seal(self, version: int) -> None:
        """Nothing to do: entries are objects of the bucket."""

    def trim(self, version: int) -> None:
        """Nothing to do: entries are nowhere else."""

    def end(self) -> int:
        """Not supported: an object store cannot refuse later creations. Only a `MoveLog` ends a log here."""
        raise error("UNSUPPORTED_METHOD", "A log in the bucket ends only by an entry that says so")

    def forget(self) -> None:
        """Nothing to do: the objects are deleted with the table's directory."""

    def wait(self, version: int, timeout_s: float, poll_s: float | None = None) -> bool:
        """Poll, by one GET each; pauses grow from `POLL_FIRST_S` to `POLL_MAX_S` unless `poll_s` is given."""
        left_s, end_s = timeout_s, self.clock.monotonic_s() + timeout_s
        pause_s = poll_s or POLL_FIRST_S
        while True:
            self.clock.sleep_s(max(min(pause_s, left_s), 0.0))
            if self.read(version) is not None:
                return True
            left_s = end_s - self.clock.monotonic_s()
            if left_s <= 0:
                return False
            pause_s = poll_s or min(pause_s * 2, POLL_MAX_S)

    def pause(self, version: int, seconds: float) -> None:
        """Sleep for all of `seconds`."""
        self.clock.sleep_s(seconds)

    def when_changed(self, wake: Callable[[], None]) -> None:
        """Nothing to do: an object store does not notify."""

    def truncate(self, before: int) -> int:
        """One LIST and one DELETE per thousand objects. A batch is deleted when its last entry may be."""
        batch, gone, last = list[str](), 0, None
        for item in self.store.list(self.prefix):
            version = version_of(item.key)
            if last is not None and version is not None and version <= before:
                batch.append(self.key(last))
                gone += version - last
            if version is None or version >= before:
                break
            last = version
            if len(batch) == DELETE_BATCH:
                self.store.delete(batch)
                batch = []
        if batch:
            self.store.delete(batch)
        return gone


class SealedBackend(ObjectBackend):
    """The sealed entries of a log whose sequencer is elsewhere: read-only."""

    def __init__(self, bucket: ObjectBackend, sequencer: str) -> None:
        super().__init__(bucket.store, bucket.prefix, clock=bucket.clock, threads=bucket.threads, batched=EVERY)
        self._sequencer = sequencer
        self.intake = None

    def create(self, version: int, data: bytes) -> PutOutcome:
        """Raises READONLY."""
        raise read_only(self._sequencer)

    def truncate(self, before: int) -> int:
        """Nothing is deleted."""
        return 0


def version_of(key: str) -> int | None:
    """The number in the name of an entry, checkpoint or tag; None for other keys."""
    stem = key.rpartition("/")[2].partition(".")[0]
    return int(stem) if stem.isdigit() else None


def read_only(sequencer: str) -> MergelakeError:
    """The error for an append with `log="sealed"`."""
    return error(
        "READONLY",
        f"The log is in {sequencer}, and here it is only read",
        'Connect without log="sealed", or take it over: mergelake log seal',
    )
