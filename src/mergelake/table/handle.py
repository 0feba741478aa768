"""An open table, and the snapshot of it that a reader holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mergelake.core.clock import Clock
from mergelake.core.errors import error
from mergelake.core.ids import IdSource
from mergelake.core.schema import TableSchema
from mergelake.core.settings import TableSettings
from mergelake.log.commit import Log
from mergelake.log.machine import TableMachine
from mergelake.log.operations import CreateTable
from mergelake.log.state import ActivePart, State
from mergelake.log.volatile import unfinished
from mergelake.store.protocol import Store


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table at one version: a value that pickles, refers to nothing that moves, and is never stale for itself."""

    version: int
    timestamp_ms: int
    """Of the commit that made this version."""
    schema: TableSchema
    parts: tuple[ActivePart, ...]
    """Active parts, sorted by partition id and block number."""
    schemas: Mapping[int, TableSchema] = field(default_factory=dict)
    """Every schema by version: a part is read by the one that it was written with."""

    @staticmethod
    def of(state: State) -> Snapshot:
        """The snapshot of a state.

        UNKNOWN_TABLE if there is no table (any more); NOT_IMPLEMENTED while parts lack a mutation: showing their rows
        without it would be a wrong answer.
        """
        late = unfinished(state) if state.mutations else ()
        if late:
            raise error(
                "NOT_IMPLEMENTED",
                f"Reading a table with unfinished mutations ({', '.join(m.id for m in late[:3])}) is not supported",
                "Wait until they are done, or kill them",
            )
        parts = tuple(state.parts())
        return Snapshot(state.version, state.timestamp_ms, state.schema, parts, state.schemas)

    @property
    def settings(self) -> TableSettings:
        """The table's settings at this version."""
        return TableSettings(self.schema.settings)

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.manifest.rows for part in self.parts)

    def partition(self, partition_id: str) -> tuple[ActivePart, ...]:
        """The parts of one partition, in block order."""
        return tuple(part for part in self.parts if part.info.partition_id == partition_id)


class TableHandle:
    """A table's directory in a store, and its log. Threads may share one."""

    def __init__(self, store: Store, directory: str, log: Log[State], *, clock: Clock, ids: IdSource) -> None:
        self.store = store
        self.directory = directory
        """The table's id: its directory in the store."""
        self.log = log
        self.clock = clock
        self.ids = ids

    @classmethod
    def open(cls, store: Store, directory: str, *, clock: Clock, ids: IdSource, author: str = "") -> TableHandle:
        """The table in `directory`, at its newest version; UNKNOWN_TABLE if there is none."""
        log = Log.open(store, f"{directory}/_log", TableMachine(), clock=clock, ids=ids, author=author)
        if log.state.version == 0:
            raise error("UNKNOWN_TABLE", f"There is no table in {directory} of {store.url}")
        return cls(store, directory, log, clock=clock, ids=ids)

    @classmethod
    def create(
        cls, store: Store, directory: str, schema: TableSchema, *, clock: Clock, ids: IdSource, author: str = ""
    ) -> TableHandle:
        """A new table in a new directory. The schema was checked (`define.check_schema`)."""
        log = Log(store, f"{directory}/_log", TableMachine(), clock=clock, ids=ids, author=author)
        log.commit(lambda _: [CreateTable(schema)])
        return cls(store, directory, log, clock=clock, ids=ids)

    @property
    def schema(self) -> TableSchema:
        """The newest schema known here."""
        return self.log.state.schema

    @property
    def settings(self) -> TableSettings:
        """The newest settings known here."""
        return TableSettings(self.schema.settings)

    def refresh(self) -> State:
        """Learn what others committed: one GET if they did not."""
        return self.log.refresh()

    def snapshot(self, version: int | None = None, timestamp_ms: int | None = None) -> Snapshot:
        """The table as known here, or AS OF a version or a time (milliseconds since 1970-01-01 UTC)."""
        return Snapshot.of(self.log.state_at(version, timestamp_ms))
