"""The state machine of a log as a value, so that tables and the catalog share the code that does I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from mergelake.core.base.ids import IdSource
from mergelake.core.model.settings import TableSettings
from mergelake.log.model import conflict
from mergelake.log.model.conflict import Reject
from mergelake.log.model.fold import fold
from mergelake.log.model.operations import Entry
from mergelake.log.model.sequencer import Sequencer
from mergelake.log.model.state import State
from mergelake.log.storage import checkpoint
from mergelake.log.storage.layout import SegmentLayout
from mergelake.log.storage.segments import Segments


class Versioned(Protocol):
    """The attributes of every state."""

    @property
    def version(self) -> int:
        """Version of the last entry folded, 0 before the first."""
        ...

    @property
    def timestamp_ms(self) -> int:
        """Timestamp of that entry."""
        ...

    @property
    def history(self) -> int:
        """Versions before this one are no longer kept: their entries may be gone."""
        ...

    @property
    def sequencer(self) -> Sequencer:
        """Where the entries after it lie."""
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
        """The state after one new entry, or why it is not valid."""
        ...

    def checkpoint_interval(self, state: S) -> int:
        """Entries between two checkpoints."""
        ...

    def lay_out(self, state: S, segments: Segments, ids: IdSource) -> SegmentLayout | None:
        """The layout of a state's checkpoint; writes new segments. None if no checkpoint is needed."""
        ...

    def adopt(self, state: S, version: int, layout: SegmentLayout, segments: Segments) -> S:
        """The same state, with parts in the segments of the checkpoint of `version`, which is not after it."""
        ...

    def complete(self, state: S, segments: Segments) -> bool:
        """Whether all of a state is in memory."""
        ...

    def encode(self, state: S, layout: SegmentLayout | None) -> bytes:
        """A checkpoint's bytes."""
        ...

    def decode(self, data: bytes, key: str, segments: Segments) -> S:
        """Inverse of `encode`; `key` is the object's, for errors."""
        ...

    def layout(self, data: bytes, key: str) -> SegmentLayout:
        """The layout of an encoded checkpoint."""
        ...

    def verify(self, state: S, key: str) -> None:
        """Read all of a decoded state; CorruptDataError if it does not match its checkpoint."""
        ...


class TableMachine:
    """The state machine of a table."""

    def initial(self) -> State:
        """The state of a table that is not created yet."""
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

    def lay_out(self, state: State, segments: Segments, ids: IdSource) -> SegmentLayout | None:
        """See `Segments.lay_out`."""
        return segments.lay_out(state, ids)

    def adopt(self, state: State, version: int, layout: SegmentLayout, segments: Segments) -> State:
        """See `Segments.adopt`."""
        return segments.adopt(state, version, layout)

    def complete(self, state: State, segments: Segments) -> bool:
        """See `Segments.complete`."""
        return segments.complete(state)

    def encode(self, state: State, layout: SegmentLayout | None = None) -> bytes:
        """See `checkpoint.encode_checkpoint`."""
        return checkpoint.encode_checkpoint(state, layout)

    def decode(self, data: bytes, key: str, segments: Segments | None = None) -> State:
        """See `checkpoint.decode_checkpoint`."""
        return checkpoint.decode_checkpoint(data, key, segments)

    def layout(self, data: bytes, key: str) -> SegmentLayout:
        """See `checkpoint.decode_root`."""
        return checkpoint.decode_root(data, key).layout

    def verify(self, state: State, key: str) -> None:
        """See `checkpoint.verify_parts`."""
        checkpoint.verify_parts(state, key)
