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
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from mergelake.core.clock import Clock
from mergelake.core.errors import MergelakeError, NotFoundError, error
from mergelake.store.protocol import PutOutcome, Store

POLL_FIRST_S, POLL_MAX_S = 0.05, 1.0
"""A waiting reader looks after the first, then less and less often."""
DELETE_BATCH = 1000
"""Entries that one delete request of a truncation names."""


class CollectedError(NotFoundError):
    """An entry was there once, and has been collected: the state of who asks for it is too old to go on from."""


class LogBackend(Protocol):
    """The place that gives out the positions of one log. Safe for many threads."""

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

    def seal(self, version: int) -> None:
        """See to it that all entries up to `version` are objects of the bucket, oldest first. Nothing to do in most."""
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

    def when_changed(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, from some thread, when there is something new; never, where the backend has to poll."""
        ...

    def truncate(self, before: int) -> int:
        """Delete the entries before a version, oldest first, so that what is left is dense; how many went.

        The caller knows that a newer checkpoint stands and that nobody needs them.
        """
        ...


class ObjectBackend:
    """Entries as objects `<prefix>/<20 digits>.json`, created only if absent."""

    def __init__(self, store: Store, prefix: str, *, clock: Clock, threads: int = 16) -> None:
        self.store = store
        self.prefix = prefix
        self.clock = clock
        self.threads = threads

    def key(self, version: int) -> str:
        """Key of an entry."""
        return f"{self.prefix}/{version:020d}.json"

    def large_key(self, version: int, digest: str) -> str:
        """Key of an entry that is too big for another authority's nodes, until it is sealed."""
        return f"{self.prefix}/large/{version:020d}-{digest}"

    def create(self, version: int, data: bytes) -> PutOutcome:
        """One conditional PUT."""
        return self.store.create(self.key(version), data)

    def read(self, version: int) -> bytes | None:
        """One GET."""
        try:
            return self.store.get(self.key(version))
        except NotFoundError:
            return None

    def read_many(self, versions: Sequence[int]) -> list[bytes | None]:
        """One GET each, by several threads."""
        if len(versions) == 1 or self.threads <= 1:
            return [self.read(version) for version in versions]
        with ThreadPoolExecutor(min(self.threads, len(versions))) as pool:
            return list(pool.map(self.read, versions))

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

    def when_changed(self, wake: Callable[[], None]) -> None:
        """An object store tells nobody."""

    def truncate(self, before: int) -> int:
        """One LIST a thousand entries, one DELETE a thousand."""
        end, batch, gone = self.key(before), list[str](), 0
        for item in self.store.list(self.prefix):
            if item.key >= end:
                break
            batch.append(item.key)
            if len(batch) == DELETE_BATCH:
                self.store.delete(batch)
                gone, batch = gone + len(batch), []
        if batch:
            self.store.delete(batch)
        return gone + len(batch)


class SealedBackend(ObjectBackend):
    """What has reached the bucket of a log whose authority is elsewhere: to be read, never to be appended to."""

    def __init__(self, bucket: ObjectBackend, authority: str) -> None:
        super().__init__(bucket.store, bucket.prefix, clock=bucket.clock, threads=bucket.threads)
        self._authority = authority

    def create(self, version: int, data: bytes) -> PutOutcome:
        """READONLY."""
        raise read_only(self._authority)

    def truncate(self, before: int) -> int:
        """Nothing is deleted."""
        return 0


def read_only(authority: str) -> MergelakeError:
    """For who asks the bucket alone to take something."""
    return error(
        "READONLY",
        f"The log is in {authority}, and here it is only read",
        'Connect without log="sealed", or take it over: mergelake log seal',
    )
