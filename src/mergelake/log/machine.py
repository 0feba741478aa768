"""A log's meaning as one value, so that tables and the catalog share the code that does I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from mergelake.core.settings import TableSettings
from mergelake.log import checkpoint, conflict
from mergelake.log.authority import Authority
from mergelake.log.conflict import Reject
from mergelake.log.fold import fold
from mergelake.log.operations import Entry
from mergelake.log.state import State


class Versioned(Protocol):
    """What every state has."""

    @property
    def version(self) -> int:
        """Of the last entry folded, 0 before the first."""
        ...

    @property
    def timestamp_ms(self) -> int:
        """Of that entry."""
        ...

    @property
    def history(self) -> int:
        """Versions before this one are no longer kept: their entries may be gone."""
        ...

    @property
    def authority(self) -> Authority:
        """Where the entries behind it lie."""
        ...


S = TypeVar("S", bound=Versioned)


class StateMachine(Protocol[S]):
    """Pure functions over one kind of state."""

    def initial(self) -> S:
        """The state before the first entry."""
        ...

    def fold(self, state: S, entries: Iterable[Entry]) -> S:
        """The state after `entries`, which were checked when they were committed."""
        ...

    def step(self, state: S, entry: Entry) -> S | Reject:
        """The state after one new entry, or why it may not follow."""
        ...

    def checkpoint_interval(self, state: S) -> int:
        """Entries between two checkpoints."""
        ...

    def encode(self, state: S) -> bytes:
        """A checkpoint's bytes."""
        ...

    def decode(self, data: bytes, key: str) -> S:
        """Inverse of `encode`; `key` is the object's, for errors."""
        ...


class TableMachine:
    """The state machine of a table."""

    def initial(self) -> State:
        """No table yet."""
        return State()

    def fold(self, state: State, entries: Iterable[Entry]) -> State:
        """See `fold.fold`."""
        return fold(state, entries)

    def step(self, state: State, entry: Entry) -> State | Reject:
        """See `conflict.step`."""
        return conflict.step(state, entry)

    def checkpoint_interval(self, state: State) -> int:
        """The table's setting of that name, at least 1."""
        if state.schema_version == 0:
            return 1 << 62
        return max(TableSettings(state.schemas[state.schema_version].settings).integer("checkpoint_interval"), 1)

    def encode(self, state: State) -> bytes:
        """See `checkpoint.encode_checkpoint`."""
        return checkpoint.encode_checkpoint(state)

    def decode(self, data: bytes, key: str) -> State:
        """See `checkpoint.decode_checkpoint`."""
        return checkpoint.decode_checkpoint(data, key)
