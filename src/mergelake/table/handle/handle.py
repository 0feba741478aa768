"""An open table, and the snapshot of it for a reader."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import CorruptDataError, InvalidInputError, error
from mergelake.core.base.ids import IdSource
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.log.backends.backends import Backends
from mergelake.log.backends.keeper import Address
from mergelake.log.commit.commit import Log
from mergelake.log.commit.migrate import new_tree
from mergelake.log.model.operations import CreateTable, TableOp
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.retention import require_kept, version_of_tag
from mergelake.log.model.state import State
from mergelake.log.storage.machine import TableMachine
from mergelake.log.storage.tags import read_tag
from mergelake.store.interface.protocol import Store
from mergelake.table.handle.snapshot import Snapshot

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TableHandle:
    """A table's directory in a store, and its log. Threads may share one."""

    def __init__(self, store: Store, directory: str, log: Log[State], *, clock: Clock, ids: IdSource) -> None:
        self.store = store
        self.directory = directory
        """The table's id: its directory in the store."""
        self.log = log
        self.clock = clock
        self.ids = ids
        self._remembered: dict[type, Any] = {}

    @contextmanager
    def remembering(self, kind: type[T]) -> Iterator[T]:
        """The state of an earlier round of this process, for the next one; created by `kind()` at first.

        A concurrent round gets a new one, and if the round fails its state is dropped.
        """
        held = self._remembered.pop(kind, None)
        held = kind() if held is None else held
        yield held
        self._remembered[kind] = held

    @classmethod
    def open(
        cls,
        store: Store,
        directory: str,
        *,
        clock: Clock,
        ids: IdSource,
        author: str = "",
        backends: Backends | None = None,
    ) -> TableHandle:
        """The table in `directory`, at its newest version; UNKNOWN_TABLE if there is none.

        `backends` tells how a log that is not in the bucket is reached.
        """
        options: dict[str, Any] = {"clock": clock, "ids": ids, "author": author, "backends": backends}
        log = Log.open(store, f"{directory}/_log", TableMachine(), **options)
        if log.state.version == 0:
            raise error("UNKNOWN_TABLE", f"There is no table in {directory} of {store.url}")
        return cls(store, directory, log, clock=clock, ids=ids)

    @classmethod
    def create(
        cls,
        store: Store,
        directory: str,
        schema: TableSchema,
        *,
        clock: Clock,
        ids: IdSource,
        author: str = "",
        backends: Backends | None = None,
        log_at: Address | None = None,
        more: Sequence[TableOp] = (),
    ) -> TableHandle:
        """A new table in a new directory. The schema was checked (`define.check_schema`).

        `log_at` is the ZooKeeper to which its log moves with its first entry; None: it stays in the bucket. `more` are
        further operations of the first entry, for a table that begins with rows.
        """
        prefix = f"{directory}/_log"
        moves = [new_tree(log_at, store, prefix, clock, ids)] if log_at else []
        log = Log(store, prefix, TableMachine(), clock=clock, ids=ids, author=author, backends=backends)
        log.commit(lambda _: [CreateTable(schema), *more, *moves])
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
        """Read the newest state: one GET if there is no new entry."""
        return self.log.refresh()

    def base_version(self) -> int:
        """`PartManifest.base_version` of a part that is begun now; one GET if the state is too old.

        With a version from a grace period ago, the part would count as begun then.
        """
        return self.log.fresh(self.settings.integer("gc_grace_seconds") / 4).version

    def neighbour(self, directory: str) -> TableHandle:
        """Another table of the same store, by its directory."""
        log = self.log
        return TableHandle.open(
            self.store, directory, clock=self.clock, ids=self.ids, author=log.author, backends=log.backends
        )

    def wait_for(self, version: int, timeout_s: float) -> bool:
        """Wait until this version is known here, at most `timeout_s` seconds; returns whether it is."""
        end_s = self.clock.monotonic_s() + timeout_s
        while self.log.state.version < version:
            left_s = end_s - self.clock.monotonic_s()
            if left_s <= 0:
                return False
            self.log.wait(left_s)
        return True

    def snapshot(self, version: int | str | None = None, timestamp_ms: int | None = None) -> Snapshot:
        """The table as known here, or AS OF a version, a tag or a time (milliseconds since 1970-01-01 UTC)."""
        return Snapshot.of(self.state_at(version, timestamp_ms))

    def state_at(self, version: int | str | None = None, timestamp_ms: int | None = None) -> State:
        """The state of `snapshot`. BAD_ARGUMENTS for a version that is not kept (any more), with those that are."""
        if version is None and timestamp_ms is None:
            return self.log.state
        if version is not None and timestamp_ms is not None:
            raise error("BAD_ARGUMENTS", "Give a version or a timestamp, not both")
        if isinstance(version, bool) or not (
            version is None or isinstance(version, str) or hasattr(version, "__index__")
        ):
            raise error("TYPE_MISMATCH", f"The version {version!r} is no number", "Give a version's number or a tag")
        newest = self.log.state
        if isinstance(version, str):
            newest = newest if version in newest.tags else self.refresh()
            only = newest.tagged_partitions.get(version)
            version = version_of_tag(newest, version)
            if only is not None:
                return _limited(self.whole_state(version), only)
        elif timestamp_ms is not None:
            newest = self.refresh()
            version = self.log.version_at(timestamp_ms)
        assert version is not None
        state = self._kept(version)
        if timestamp_ms is None:
            return state
        # A transaction is in all of its tables from one time on, which is that of its last entry.
        while later := [joint.version for joint in state.joint.values() if joint.timestamp_ms > timestamp_ms]:
            state = self._kept(min(later) - 1)
        if state.timestamp_ms > timestamp_ms:
            raise error(
                "BAD_ARGUMENTS",
                "Versions of that time have been collected",
                f"Version {state.version} is the oldest that is kept, unless it has a tag",
            )
        return state

    def _kept(self, version: int) -> State:
        """The state of a version; BAD_ARGUMENTS if it is not kept (any more)."""
        newest = self.log.state
        require_kept(newest if version <= newest.version else self.refresh(), version)
        return self.whole_state(version)

    def whole_state(self, version: int) -> State:
        """The state at a version that a tag keeps, or that is kept anyway; all of it, though perhaps only the objects
        of some partitions are there.
        """
        prefix, cut = f"{self.directory}/_log", version < self.log.state.history
        try:
            return (cut and read_tag(self.store, prefix, version)) or self.log.state_at(version)
        except (CorruptDataError, InvalidInputError):
            # The log may have been cut meanwhile: states of tagged versions were written before.
            tagged = read_tag(self.store, prefix, version)
            if tagged is None:
                newest = self.refresh()
                if version not in newest.tags.values():
                    require_kept(newest, version)
                raise
            return tagged


def _limited(state: State, partition_ids: Collection[str]) -> State:
    """A state with these partitions only."""
    held = {name: state.partitions[name] for name in partition_ids if name in state.partitions}
    volatile = {name: parts for name, parts in state.volatile.items() if name in held}
    return replace(state, partitions=Partitions.of(held), volatile=volatile)


OpenTable = Callable[[str], TableHandle]
"""Opens a table by its directory."""


def epoch_ms(when: datetime | date | str | int) -> int:
    """Milliseconds since 1970-01-01 UTC of a time, or of its ISO text; a time without a zone is UTC.

    Raises CANNOT_PARSE_DATETIME for another text, TYPE_MISMATCH for another type.
    """
    if hasattr(when, "__index__") and not isinstance(when, bool):
        return int(when)
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            raise error("CANNOT_PARSE_DATETIME", f"'{when}' is not a time", "Write it as 2026-01-31 12:00:00") from None
    if not isinstance(when, date):
        hint = "Give a datetime, its ISO text, or whole milliseconds since 1970-01-01 UTC"
        raise error("TYPE_MISMATCH", f"A {type(when).__name__} is not a time", hint)
    if not isinstance(when, datetime):
        when = datetime(when.year, when.month, when.day, tzinfo=UTC)
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - _EPOCH) // timedelta(milliseconds=1)
