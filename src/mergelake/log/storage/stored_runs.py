"""Runs of retired parts in segments of checkpoints: immutable objects, read when their parts are used.

::

    <prefix>/checkpoints/<20 digits>-<id>.retired.segment   the parts of one run, an Arrow IPC stream (zstd)

A checkpoint names them with their facts (`retired.RunFacts`) and a digest. A state holds the parts of a run either in
memory or stored, which makes no difference to its content. The writer of a checkpoint reuses the runs of the newest one
that have the same parts as its own state (`Retired.held_as`); once too many parts are in no stored run, these go into
new ones, together with neighbouring small runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import cachetools
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.base.errors import CorruptDataError, NotFoundError
from mergelake.core.base.ids import IdSource
from mergelake.log.model.parts import RetiredPart
from mergelake.log.model.retired import MemoryRun, Run, RunFacts, spilled
from mergelake.log.model.state import State
from mergelake.log.storage.part_rows import (
    RETIRED,
    digest_of,
    lists_of,
    open_stream,
    require_digest,
    retired_columns,
    retired_of,
    table_of,
    write_stream,
)
from mergelake.log.storage.segment import NOT_WHAT_WAS_WRITTEN, segment_name
from mergelake.log.storage.segment_objects import SegmentObjects

INLINE_PARTS_MAX = 2048
"""Retired parts that a checkpoint holds itself."""
RUN_PARTS_MAX = 16384
"""Approximate parts of a stored run; runs of less than half are rewritten together with the parts after them."""
CACHE_BYTES = 32 << 20
"""Bytes of cached rows of runs."""


@dataclass(frozen=True, slots=True)
class RunRef:
    """The reference of a checkpoint to a stored run."""

    name: str
    """Name of the object, below `_log/checkpoints`."""
    digest: bytes
    """Digest of the object, 16 bytes."""
    facts: RunFacts


PlacedRun: TypeAlias = RunRef | MemoryRun
"""A run of a checkpoint: in a segment, or in the checkpoint itself."""


class StoredRun:
    """A run in a segment, which the checkpoint of `version` names. See `retired.Run`."""

    __slots__ = ("_runs", "ref", "version")

    def __init__(self, ref: RunRef, version: int, runs: Runs) -> None:
        self.ref = ref
        self.version = version
        self._runs = runs

    @property
    def name(self) -> str:
        """See `retired.Run`."""
        return self.ref.name

    @property
    def facts(self) -> RunFacts:
        """See `retired.Run`."""
        return self.ref.facts

    def parts(self) -> tuple[RetiredPart, ...]:
        """See `retired.Run`. If the segment is damaged or gone, they are computed from an older checkpoint."""
        try:
            return retired_of(lists_of(self._runs.rows(self.ref)))
        except (NotFoundError, CorruptDataError):
            parts = self._runs.instead(self.ref, self.version)
            if not parts:
                raise
            return parts

    def find(self, part_ids: Collection[str]) -> Iterable[RetiredPart]:
        """See `retired.Run`."""
        try:
            rows = self._runs.rows(self.ref)
        except (NotFoundError, CorruptDataError):
            return [part for part in self.parts() if part.id in part_ids]
        wanted = pa.array(list(part_ids), pa.string())
        return retired_of(lists_of(rows.filter(pc.is_in(rows["id"], value_set=wanted))))

    def __repr__(self) -> str:
        return f"StoredRun({self.ref.name!r}, {self.ref.facts.parts})"


class Runs:
    """The stored runs of a log. Threads may share it."""

    def __init__(self, objects: SegmentObjects, without: Callable[[int, frozenset[str]], State | None]) -> None:
        """`without` returns the state of a version, computed without some segments."""
        self._objects = objects
        self._without = without
        self._lock = threading.Lock()
        self._tables: cachetools.LRUCache[str, pa.Table] = cachetools.LRUCache(CACHE_BYTES, lambda table: table.nbytes)

    def stored(self, version: int, runs: Iterable[PlacedRun]) -> list[Run]:
        """The runs of a checkpoint that lie in segments."""
        return [StoredRun(run, version, self) for run in runs if isinstance(run, RunRef)]

    def rows(self, ref: RunRef) -> pa.Table:
        """The parts of a run as `part_rows.RETIRED`, cached. Raises NotFoundError and CorruptDataError."""
        with self._lock:
            table = self._tables.get(ref.name)
        if table is None:
            table = self._read(ref)
            self._keep(ref.name, table)
        return table

    def check(self, ref: RunRef) -> None:
        """Read a run without the cache; NotFoundError or CorruptDataError if it is gone or damaged."""
        self._read(ref)

    def instead(self, ref: RunRef, version: int) -> tuple[RetiredPart, ...]:
        """The parts of a run, computed from the state of a version without unreadable segments; empty if impossible."""
        state = self._without(version, frozenset(self._objects.bad))
        facts = ref.facts
        parts = tuple(
            part
            for part in (state.retired if state is not None else ())
            if facts.noted_first <= part.noted <= facts.noted_last
        )
        return parts if parts and RunFacts.of(parts) == facts else ()

    def laid_out(
        self, state: State, base: Iterable[PlacedRun], lost: Collection[str], ids: IdSource
    ) -> tuple[PlacedRun, ...]:
        """The runs of a checkpoint of a state: runs of `base` that it still has and that are not `lost`, and new ones.

        Writes the new runs.
        """
        usable = [run for run in self.stored(state.version, base) if run.name not in lost]
        names = {run.name for run in usable}
        retired = state.retired.held_as(usable)
        runs = [run if not run.name or run.name in names else MemoryRun.of(run.parts()) for run in retired.runs]
        pieces: Sequence[Run | list[RetiredPart]] = runs
        if sum(run.facts.parts for run in runs if not run.name) > INLINE_PARTS_MAX:
            pieces = spilled(runs, RUN_PARTS_MAX)
        return tuple(
            self._write(each, state.version, ids) if isinstance(each, list) else _placed(each) for each in pieces
        )

    def _write(self, parts: Sequence[RetiredPart], version: int, ids: IdSource) -> RunRef:
        name = segment_name(version, f"{ids.new_id()}.retired")
        sink = pa.BufferOutputStream()
        table = table_of(RETIRED, retired_columns(parts))
        write_stream(sink, table)
        data = bytes(sink.getvalue())
        self._objects.create(name, data)
        self._keep(name, table)
        return RunRef(name, digest_of(data), RunFacts.of(parts))

    def _read(self, ref: RunRef) -> pa.Table:
        def load(key: str) -> pa.Table:
            data = self._objects.store.get(key)
            require_digest(data, ref.digest, NOT_WHAT_WAS_WRITTEN, key)
            return open_stream(pa.BufferReader(data)).read_all()

        return self._objects.read(ref.name, load)

    def _keep(self, name: str, table: pa.Table) -> None:
        with self._lock, suppress(ValueError):  # larger than the cache
            self._tables[name] = table


def _placed(run: Run) -> PlacedRun:
    if isinstance(run, StoredRun):
        return run.ref
    assert isinstance(run, MemoryRun)
    return run
