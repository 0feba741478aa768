"""Writing the checkpoints of a log: one at a time, and those that became due in a thread of its own.

Whoever commits only notes what is due: it goes on while the state, which is immutable, is encoded and stored.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Generic, NamedTuple

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import UnavailableError
from mergelake.core.base.ids import IdSource
from mergelake.log.backends.backend import LogBackend
from mergelake.log.reading.head_freshness import Instant
from mergelake.log.reading.tail import LogReader
from mergelake.log.storage.layout import SegmentLayout
from mergelake.log.storage.machine import S, StateMachine
from mergelake.store.interface.protocol import OutcomeUnknown, Store, Stored

_logger = logging.getLogger("mergelake.log")


class Knowledge(NamedTuple, Generic[S]):
    """The newest state that is known, when it was known to be the newest, and the backend of what follows."""

    state: S
    known: Instant
    backend: LogBackend


class Checkpointing(Generic[S]):
    """The checkpoints of one log, as one process writes them. Threads may share it."""

    def __init__(
        self,
        store: Store,
        reader: LogReader[S],
        machine: StateMachine[S],
        *,
        clock: Clock,
        ids: IdSource,
        head_freshness_s: float,
        adopt: Callable[[int, SegmentLayout], None],
    ) -> None:
        """`adopt` is called with the version and the layout of a checkpoint that has segments, once it is stored."""
        self._store, self._reader, self._machine = store, reader, machine
        self._clock, self._ids = clock, ids
        self._head_freshness_s = head_freshness_s
        self._adopt = adopt
        self._writing = threading.Lock()
        self._due: Knowledge[S] | None = None
        self.failure = ""
        """Why the last checkpoint that was due could not be written; empty if it was."""

    def note(self, newest: Knowledge[S]) -> None:
        """Note a state of which a checkpoint is due, if it is: `write_due` writes the last one that was noted."""
        if newest.state.version % self._machine.checkpoint_interval(newest.state) == 0:
            self._due = newest

    @property
    def waits(self) -> bool:
        """Whether one is due for which no thread is at work."""
        return self._due is not None and not self._writing.locked()

    def write(self, newest: Callable[[], Knowledge[S]]) -> None:
        """Write a state as a checkpoint, and the hint that finds it; `newest` is called when no other is being written.

        Only if there is none: one that was emptied must stay so. The hint does not name one that was written too late.
        """
        with self._writing:
            self._write(newest())

    def write_due(self) -> None:
        """Write the checkpoint that is due, if any, while others commit; by one thread at a time."""
        while self._due is not None and self._writing.acquire(blocking=False):
            try:
                due, self._due = self._due, None
                if due is not None:
                    self._write(due)
                    self.failure = ""
            except Exception as cause:
                version = due.state.version if due is not None else 0
                self.failure = f"no checkpoint of {self._reader.prefix} at version {version}: {cause!r}"
                _logger.exception("%s", self.failure)
            finally:
                self._writing.release()

    def _write(self, newest: Knowledge[S]) -> None:
        state, known, backend = newest
        backend.seal(state.version)
        layout = self._machine.lay_out(state, self._reader.segments, self._ids)
        if layout is None:
            return  # another process was faster
        data = self._machine.encode(state, layout)
        if layout.names and known.age_s(self._clock) > self._head_freshness_s:
            # Its segments may have been deleted meanwhile, as no existing checkpoint names them.
            raise UnavailableError("The checkpoint was not written in time", hint="The next one will be")
        outcome = self._store.create(self._reader.checkpoint_key(state.version), data)
        if isinstance(outcome, OutcomeUnknown):
            raise UnavailableError(f"It is not known whether the checkpoint was written: {outcome.reason}")
        if isinstance(outcome, Stored) and layout.names:  # otherwise there is another one, with other segments
            self._adopt(state.version, layout)
        if known.age_s(self._clock) <= self._head_freshness_s:
            self._store.put(self._reader.hint_key, json.dumps({"version": state.version}).encode())
        backend.trim(state.version)
