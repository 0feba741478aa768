"""`Log`: append by create-if-absent, follow the tail, open from a checkpoint, look back.

To append at position p a writer has applied everything before p, so it judges its operations on the exact
state. The append has three outcomes:

1. *Stored*: the entry is ours, the state moves on. One PUT, nothing else.
2. *Lost*: p is taken. Read it, apply the winner (and whatever follows), wait a random moment, build the
   operations anew on the new state, try again.
3. *Unknown*: the reply was lost. Read p: our attempt id means stored, another means lost; nothing there
   means still unknown, and the same bytes are sent again. Only when the store stays silent does the caller
   get `UnavailableError`; until then nobody may delete what the entry refers to.

Positions are dense: a missing object means "not committed yet", and nobody ever skips one. Listings decide
nothing; they only find checkpoints faster.

One `Log` may be shared by threads: commits of a process queue up at its lock and do not race each other.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from mergelake.core.clock import Clock
from mergelake.core.errors import ConflictError, InvalidInputError, UnavailableError, error
from mergelake.core.ids import IdSource
from mergelake.log.conflict import Reject
from mergelake.log.encoding import encode_entry
from mergelake.log.machine import S, StateMachine
from mergelake.log.operations import Entry, LogOp
from mergelake.log.tail import LogReader
from mergelake.store.protocol import PutOutcome, Store, Stored, Unknown

RETRIES_MAX = 100
"""Lost races after which a commit gives up."""
UNKNOWN_MAX = 12
"""Questions to a silent store after which the outcome of a commit is reported as not known."""
_BACKOFF_FIRST_S = 0.002
_BACKOFF_MAX_S = 0.5

_logger = logging.getLogger("mergelake.log")


@dataclass(frozen=True, slots=True)
class Committed(Generic[S]):
    """A commit that is in the log, or that had nothing to say."""

    state: S
    """The state right after it."""
    entry: Entry | None
    """None if `build` gave no operations."""

    @property
    def version(self) -> int:
        """The position that was taken, or the version at which nothing had to be done."""
        return self.entry.version if self.entry else self.state.version


class Log(Generic[S]):
    """One log under `prefix` of a store, and its newest state that this process knows."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        machine: StateMachine[S],
        *,
        clock: Clock,
        ids: IdSource,
        author: str = "",
        threads: int = 16,
    ) -> None:
        self._store = store
        self._reader = LogReader(store, prefix, machine, threads)
        self._machine = machine
        self._clock = clock
        self._ids = ids
        self._author = author
        self._lock = threading.RLock()
        self._state = machine.initial()

    @classmethod
    def open(cls, store: Store, prefix: str, machine: StateMachine[S], **arguments: Any) -> Log[S]:
        """The log with its newest state: hint, checkpoint, tail. A log without entries opens at version 0.

        `arguments` are those of the constructor.
        """
        log = cls(store, prefix, machine, **arguments)
        log._state = log._reader.newest()
        return log

    @property
    def state(self) -> S:
        """The newest state known here, without asking the store."""
        return self._state

    def refresh(self) -> S:
        """Follow the tail: one GET if nothing is new, concurrent ones if much is."""
        with self._lock:
            self._state = self._reader.follow(self._state)
            return self._state

    def state_at(self, version: int | None = None, timestamp_ms: int | None = None) -> S:
        """The state as of a version, or as of the last entry not after a time. Neither: the newest.

        Raises BAD_ARGUMENTS for a version that does not exist (yet) or a time before the first entry.
        """
        if version is None and timestamp_ms is None:
            return self._state
        state = self._state
        if version is not None and timestamp_ms is not None:
            raise error("BAD_ARGUMENTS", "Give a version or a timestamp, not both")
        if (version is not None and version > state.version) or timestamp_ms is not None:
            state = self.refresh()
        if timestamp_ms is not None:
            version = self._reader.version_at(state, timestamp_ms)
        assert version is not None
        if not 1 <= version <= state.version:
            raise error("BAD_ARGUMENTS", f"There is no version {version}", f"Versions go from 1 to {state.version}")
        return state if version == state.version else self._reader.state_at(version)

    def entries(self, first: int = 1, last: int | None = None) -> Iterator[Entry]:
        """Committed entries, `first` to `last` (inclusive; None: the newest known here), in order."""
        return self._reader.entries(first, self._state.version if last is None else last)

    def commit(self, build: Callable[[S], Sequence[LogOp]]) -> Committed[S]:
        """Append what `build` makes of the newest state; called anew after each lost race.

        No operations means that there is nothing (left) to do. `build` may raise to give up.
        Raises the error of a rejected operation, ConflictError if the race is lost too often,
        UnavailableError if the outcome cannot be learned: the entry may yet be in the log.
        """
        with self._lock:
            for retry in range(RETRIES_MAX):
                if retry:
                    self._pause(retry)
                ops = tuple(build(self._state))
                if not ops:
                    return Committed(self._state, None)
                entry = self._entry(ops)
                after = self._machine.step(self._state, entry)
                if isinstance(after, Reject):
                    raise after.as_error()
                winner = self._append(entry)
                if winner is None:
                    self._state = after
                    self._checkpoint(after)
                    return Committed(after, entry)
                self._state = self._reader.follow(self._machine.fold(self._state, [winner]))
            raise ConflictError(
                f"Lost {RETRIES_MAX} races for the next position of the log",
                hint="Fewer writers, or larger and fewer commits",
            )

    def _entry(self, ops: tuple[LogOp, ...]) -> Entry:
        now_ms = max(self._clock.now_ms(), self._state.timestamp_ms)
        return Entry(self._state.version + 1, self._ids.new_id(), now_ms, self._author, ops)

    def _append(self, entry: Entry) -> Entry | None:
        """None if the entry got its position, else the entry that holds it."""
        data = encode_entry(entry)
        sent = False
        for question in range(UNKNOWN_MAX):
            if question:
                self._pause(question)
            # Also "exists already" may be our own entry, whose reply was lost on the way: look whose it is.
            try:
                if isinstance(self._create(entry.version, data), Stored):
                    return None
                sent = True
                holder = self._reader.try_entry(entry.version)
            except UnavailableError:
                continue
            except InvalidInputError as refusal:
                # Refused at once, the entry is not there. A refusal (of credentials that ran out) after it was
                # sent says nothing, and must not be taken for a commit that failed.
                if not sent or refusal.name == "UNKNOWN_FORMAT_VERSION":
                    raise
                raise _not_known(entry.version, str(refusal)) from refusal
            if holder is not None:
                return None if holder.attempt == entry.attempt else holder
        raise _not_known(entry.version, "the store does not answer")

    def _create(self, version: int, data: bytes) -> PutOutcome:
        try:
            return self._store.create(self._reader.key(version), data)
        except UnavailableError as cause:
            return Unknown(str(cause))

    def _pause(self, attempt: int) -> None:
        ceiling = min(_BACKOFF_FIRST_S * 2 ** min(attempt, 16), _BACKOFF_MAX_S)
        self._clock.sleep_s(ceiling * self._ids.jitter())

    def _checkpoint(self, state: S) -> None:
        if state.version % self._machine.checkpoint_interval(state) == 0:
            try:
                self.write_checkpoint(state)
            except Exception as cause:  # noqa: BLE001  the commit stands, whatever this is; opening is only slower
                _logger.warning("no checkpoint at version %d: %r", state.version, cause)

    def write_checkpoint(self, state: S | None = None) -> None:
        """Write a state (the newest) as a checkpoint, and the hint that finds it."""
        state = self._state if state is None else state
        self._store.put(self._reader.checkpoint_key(state.version), self._machine.encode(state))
        self._store.put(self._reader.hint_key, json.dumps({"version": state.version}).encode())


def _not_known(version: int, why: str) -> UnavailableError:
    return UnavailableError(
        f"It is not known whether version {version} was committed: {why}",
        hint="Look at the table's history before trying again, or use a dedup_token and just try again",
    )
