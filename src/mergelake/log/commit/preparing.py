"""What a log has for transactions: appending the entry of one, and waiting for the decision of another's.

See `transactions`. The state never holds an entry that is not decided: it ends before it, and only who appends behind
it has to wait.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import ConflictError
from mergelake.core.base.ids import IdSource
from mergelake.log.model.conflict import Reject
from mergelake.log.model.operations import Decision, Entry, Prepare
from mergelake.log.reading.checkpointing import Checkpointing, Knowledge
from mergelake.log.reading.head_freshness import Instant
from mergelake.log.reading.transactions import Record
from mergelake.log.storage.machine import S, StateMachine

if TYPE_CHECKING:
    import threading

    from mergelake.log.reading.tail import LogReader

UNDECIDED_S = 0.25
"""Pause of those who wait for a new entry while there is one that is not decided."""
RACES_MAX = 100
"""Lost races after which a transaction gives up."""


class Preparing(Generic[S]):
    """A part of `Log`, with the attributes that it needs of it."""

    _reader: LogReader[S]
    _machine: StateMachine[S]
    _clock: Clock
    _ids: IdSource
    _lock: threading.RLock
    _state: S
    _append: Callable[[Entry], Entry | None]
    _head: Callable[[], Entry]
    _refresh_head: Callable[[], None]
    _is_head_fresh: Callable[[], bool]
    _usable: Callable[[], bool]
    _moved_on: Callable[..., Entry | None]
    _remember: Callable[..., None]
    _knowledge: Callable[[], Knowledge[S]]
    _checkpoints: Checkpointing[S]
    _start_writing: Callable[[], None]

    def prepare(self, build: Callable[[S], Prepare], patience_s: float | None = None) -> Entry:
        """Append the entry of a transaction, built on the newest state known here; `build` is called again after each
        lost race.

        The state stays before it until `decided` is called, or the decision is read. An entry of another transaction at
        the position is awaited for `patience_s` seconds (None: `PATIENCE_S`), then that transaction is given up.

        Raises the error of a rejected operation, and ConflictError if the race is lost too often: then nothing was
        appended. UnavailableError if that is not known.
        """
        with self._lock:
            refreshed = False
            for attempt in range(RACES_MAX):
                if attempt or not self._usable():
                    self._refresh_head()
                    refreshed = True
                own = dataclasses.replace(self._head(), ops=(build(self._state),))
                after = self._machine.step(self._state, own.decided(Decision(True)))
                if isinstance(after, Reject):
                    if refreshed:
                        raise after.as_error()
                    continue
                sent = Instant.now(self._clock)
                holder = self._append(own)
                if holder is None and self._is_head_fresh():
                    return own
                if holder is not None:
                    holder = self._settled(holder, patience_s)
                if self._moved_on(own, self._state, holder, sent, left=False) is not None:
                    return own
        raise ConflictError(f"Lost {RACES_MAX} races for the next position of the log", hint="Fewer writers")

    def decided(self, entry: Entry, record: Record) -> S:
        """The newest state known here, after the transaction of an entry of `prepare` was decided. No request."""
        prepare = entry.prepare
        assert prepare is not None
        with self._lock:
            decision = self._reader.decisions.learn(prepare.transaction, entry.version, record)
            complete = entry.decided(decision)
            if self._state.version == entry.version - 1:
                self._remember(complete)
                self._state = self._machine.fold(self._state, [complete])
                self._checkpoints.note(self._knowledge())
            state = self._state
        self._start_writing()
        return state

    def _past_undecided(self, newest: S, timeout_s: float) -> S:
        """For those who wait behind a state: its next entry is not decided, and nothing tells when it is."""
        self._clock.sleep_s(min(timeout_s, UNDECIDED_S))
        return newest

    def _settle_after(self, state: S) -> bool:
        """Decide the entry after a state, if there is one."""
        entry = self._reader.try_entry(state.version + 1)
        return entry is not None and bool(self._settled(entry))

    def oldest(self) -> S | None:
        """The state of the oldest checkpoint, from which the log can be opened; None if there is none."""
        return self._reader.oldest()

    def _settled(self, entry: Entry, patience_s: float | None = None) -> Entry:
        """The entry, if it is one of a transaction with the decision, which is awaited, and then made."""
        return self._reader.decisions.settled(entry, self._clock, self._ids, patience_s)
