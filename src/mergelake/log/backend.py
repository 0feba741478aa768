"""Where the entries of a log lie: the few operations that a log needs, and the object store as one answer to them.

`LogBackend` is all that `tail` and `commit` know of the place that gives out positions. Two stand behind it:
`ObjectBackend` below, where an entry is an object created only if it is absent, and `zookeeper.ZooKeeperBackend`,
where the newest entries are nodes. Checkpoints and the hint are objects of the bucket in either case.

What a backend owes (`tests/…/test_log_contract.py` asks it of both):

* `create` has one winner for a position, whoever asks and whenever; after a lost reply it says `Unknown`, never
  `Lost` or `Stored` by guess;
* an entry that was created is read back byte for byte until it is collected, by everybody, from then on;
* a position that was collected is never given out again to a writer that slept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mergelake.core.clock import Clock
from mergelake.core.errors import CorruptDataError, MergelakeError, NotFoundError, error
from mergelake.log import batches
from mergelake.log.at_once import at_once
from mergelake.log.intake import Intake
from mergelake.store.protocol import PutOutcome, Store

POLL_FIRST_S, POLL_MAX_S = 0.05, 1.0
"""A waiting reader looks after the first, then less and less often."""
DELETE_BATCH = 1000
"""Entries that one delete request of a truncation names."""


class CollectedError(NotFoundError):
    """An entry was there once, and has been collected: the state of who asks for it is too old to go on from."""


class LogBackend(Protocol):
    """The place that gives out the positions of one log. Safe for many threads."""

    @property
    def intake(self) -> Intake | None:
        """Where writers of several processes leave what they want to say; None where nothing can be appended."""
        ...

    @property
    def tells(self) -> bool:
        """Whether who waits is woken by what is new, and need not look again and again."""
        ...

    def key(self, version: int) -> str:
        """Where an entry lies (or will): for messages."""
        ...

    def create(self, version: int, data: bytes) -> PutOutcome:
        """Take a position for an entry, if it is free. The caller has seen every entry before it.

        Raises UnavailableError where nothing was sent or the outcome is open (as `Unknown`), InvalidInputError for a
        refusal.
        """
        ...

    def read(self, version: int) -> bytes | None:
        """The entry at a position, None if nothing has been committed there, or if it has been collected."""
        ...

    def read_many(self, versions: Sequence[int]) -> list[bytes | None]:
        """`read` of several positions, at once where that pays: at least one answer, fewer than asked where the rest
        cannot be told now. Raises CollectedError for an entry that is known to have been there, and is not.
        """
        ...

    def read_on(self, first: int, ahead: int) -> list[bytes | None]:
        """The entries from a position on, `ahead` of them or however many pays, at least one answer; None ends them.

        The caller has read all before it, here or from a checkpoint.
        """
        ...

    def seal(self, version: int) -> None:
        """See to it that all entries up to `version` are objects of the bucket, oldest first. Nothing to do in most."""
        ...

    def sealed_key(self, version: int) -> str:
        """Key of the object of the bucket that holds an entry, which is sealed."""
        ...

    def trim(self, version: int) -> None:
        """A checkpoint at `version` stands: entries up to it need to lie in the bucket only."""
        ...

    def end(self) -> int:
        """Give out no position any more, ever; returns the last version. For who takes the log elsewhere."""
        ...

    def forget(self) -> None:
        """Remove what only this place holds of a log that goes on elsewhere, or nowhere: everything was sealed."""
        ...

    def wait(self, version: int, timeout_s: float, poll_s: float | None = None) -> bool:
        """Return True once there is an entry at `version`, False after `timeout_s` seconds without one.

        The caller has just looked. `poll_s` is the pause between two looks of a backend that has to poll (None: short
        ones first, then longer).
        """
        ...

    def pause(self, version: int, seconds: float) -> None:
        """Sleep so long; where the backend `tells`, until there may be an entry at `version`."""
        ...

    def when_changed(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, from some thread, when there is something new; never, where the backend has to poll."""
        ...

    def truncate(self, before: int) -> int:
        """Delete the entries before a version, oldest first, so that what is left is dense; how many went.

        The caller knows that a newer checkpoint stands and that nobody needs them.
        """
        ...


EVERY = 1 << 62
"""As `batched`: any entry may lie in a batch."""


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What is known of the positions behind an entry that was read."""

    version: int = 0
    """The one behind it."""
    entries: Sequence[bytes] = ()
    """Those from there on that lie in the same object; none: another object begins there."""
    batch: bool = False
    """Whether that object holds several."""


class ObjectBackend:
    """Entries as objects `<prefix>/<20 digits>.json`, created only if absent; sealed ones perhaps in batches.

    An entry that is not there by name may lie in a batch that begins before it (`batches`). That is looked for only
    where it can be: not in a log that was always here, nor right behind an object that was read.
    """

    intake: Intake | None
    tells = False

    def __init__(self, store: Store, prefix: str, *, clock: Clock, threads: int = 16, batched: int = 0) -> None:
        """`batched`: entries up to this version may lie in batches: those of a log that is or was elsewhere."""
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
        """Key of an entry that is too big for another sequencer's nodes, until it is sealed."""
        return f"{self.prefix}/large/{version:020d}-{digest}"

    def create(self, version: int, data: bytes) -> PutOutcome:
        """One conditional PUT."""
        return self.store.create(self.key(version), data)

    def read(self, version: int) -> bytes | None:
        """One GET; up to six more, at once, for an entry that is not there and may lie in a batch."""
        data = self._get(version)
        entries = self._inside(version) if data is None else self._split(version, data)
        return entries[0] if entries else None

    def read_many(self, versions: Sequence[int]) -> list[bytes | None]:
        """One GET each, by several threads; one for all that lie in a batch."""
        ahead = self._ahead
        if versions[0] == ahead.version and ahead.entries:
            count = sum(1 for at, wanted in enumerate(versions[: len(ahead.entries)]) if wanted == versions[0] + at)
            self._ahead = _Ahead(ahead.version + count, ahead.entries[count:], batch=True)
            return list(ahead.entries[:count])
        if ahead.batch if versions[0] == ahead.version else versions[0] <= self._batched:
            versions = versions[:1]  # most of the others lie in the same batch
        found = at_once(self._get, versions, self.threads)
        out: list[bytes | None] = []
        ahead = _Ahead()
        for at, (version, data) in enumerate(zip(versions, found, strict=True)):
            if data is not None:
                entries = self._split(version, data)
            elif version == ahead.version and ahead.entries:
                entries = ahead.entries
            elif at and versions[at - 1] == version - 1:
                entries = ()  # a batch around this one would hold the one before, too
            else:
                entries = self._inside(version)
            out.append(entries[0] if entries else None)
            if entries:
                ahead = _Ahead(version + 1, entries[1:], batch=data is None or len(entries) > 1)
        if ahead.version:
            self._ahead = ahead
        return out

    def read_on(self, first: int, ahead: int) -> list[bytes | None]:
        """So many as are wanted. Where the next one is not there, it is not looked for around its place again."""
        found = self.read_many(range(first, first + ahead))
        if found[0] is None:
            # All before it is here: a batch with this one would be, too, for it would be that of the one before.
            self._ahead = _Ahead(first)
        return found

    def read_all(self, versions: Sequence[int]) -> list[bytes | None]:
        """`read_many` until each one is answered."""
        out: list[bytes | None] = []
        while len(out) < len(versions):
            out += self.read_many(versions[len(out) :])
        return out

    def object_at(self, first: int) -> Sequence[bytes]:
        """The entries of the object that is named after one; none if there is no such object. One GET.

        Raises CorruptDataError for a batch that is damaged.
        """
        data = self._get(first)
        try:
            return () if data is None else batches.decode(first, data)
        except batches.Damaged as cause:
            told = "A batch of log entries is damaged"
            raise CorruptDataError(told, object_key=self.key(first), found=str(cause)) from cause

    def sealed_key(self, version: int) -> str:
        """No request where no batch can be."""
        if version <= self._batched and self._get(version) is None:
            return self.key(self._around(version)[0])
        return self.key(version)

    def _get(self, version: int) -> bytes | None:
        try:
            return self.store.get(self.key(version))
        except NotFoundError:
            return None

    def _inside(self, version: int) -> Sequence[bytes]:
        """The entry that no object is named after, and those behind it in the same object; none if it is nowhere."""
        ahead = self._ahead
        if version > self._batched or (version == ahead.version and not ahead.entries):
            return ()
        first, data = self._around(version)
        return self._split(first, data)[version - first :] if first < version else ()

    def _around(self, version: int) -> tuple[int, bytes]:
        """First entry and bytes of the object that holds an entry which it is not named after; else that entry."""
        candidates = batches.starts(version)[1:]
        for first, data in zip(candidates, at_once(self._get, candidates, self.threads), strict=True):
            if data is not None:  # objects before this one end before it begins
                return (first, data) if batches.reach(first, data) >= version else (version, b"")
        return version, b""

    def _split(self, first: int, data: bytes) -> Sequence[bytes]:
        """The entries of an object. A damaged batch is given as it lies for each that it could hold: no entry."""
        try:
            return batches.decode(first, data)
        except batches.Damaged:
            return [data] * (batches.reach(first, data) - first + 1)

    def seal(self, version: int) -> None:
        """They are."""

    def trim(self, version: int) -> None:
        """They do."""

    def end(self) -> int:
        """An object store cannot promise that; only a `MoveLog` ends its turn."""
        raise error("UNSUPPORTED_METHOD", "A log in the bucket ends only by an entry that says so")

    def forget(self) -> None:
        """Its objects go with its directory."""

    def wait(self, version: int, timeout_s: float, poll_s: float | None = None) -> bool:
        """Pause and look, by one GET; pauses grow from `POLL_FIRST_S` to `POLL_MAX_S` unless they are given."""
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
        """All of it."""
        self.clock.sleep_s(seconds)

    def when_changed(self, wake: Callable[[], None]) -> None:
        """An object store tells nobody."""

    def truncate(self, before: int) -> int:
        """One LIST a thousand objects, one DELETE a thousand. A batch goes when its last entry may."""
        batch, gone, last = list[str](), 0, None
        for item in self.store.list(self.prefix):
            version = _version_of(item.key)
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
    """What has reached the bucket of a log whose sequencer is elsewhere: to be read, never to be appended to."""

    def __init__(self, bucket: ObjectBackend, sequencer: str) -> None:
        super().__init__(bucket.store, bucket.prefix, clock=bucket.clock, threads=bucket.threads, batched=EVERY)
        self._sequencer = sequencer
        self.intake = None

    def create(self, version: int, data: bytes) -> PutOutcome:
        """READONLY."""
        raise read_only(self._sequencer)

    def truncate(self, before: int) -> int:
        """Nothing is deleted."""
        return 0


def _version_of(key: str) -> int | None:
    stem = key.rpartition("/")[2].partition(".")[0]
    return int(stem) if stem.isdigit() else None


def read_only(sequencer: str) -> MergelakeError:
    """For who asks the bucket alone to take something."""
    return error(
        "READONLY",
        f"The log is in {sequencer}, and here it is only read",
        'Connect without log="sealed", or take it over: mergelake log seal',
    )
