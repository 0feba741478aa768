"""The observer of transactions over several tables: what was decided, and what must follow from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from mergelake.log.model.operations import AddParts, DropRange, LogOp
from mergelake.log.model.state import State
from mergelake.log.reading.transactions import PREFIX, Record, decode_record
from tests.simulation.bucket import Bucket
from tests.simulation.table import Table
from tests.simulation.tiny import Row


class Transactions:
    """All of a world. Invariants of their own, beside those of the tables:

    - nothing follows an entry that is not decided (`Table.on_entry`);
    - a decision is never another one, also after its record was collected (`on_change`);
    - a partition that moves takes all rows with it, and no other ones (`_take`);
    - a record goes only when no log has an entry of it, and none comes later (`on_delete`, `late`);
    - who reads several tables sees all of a transaction or nothing (`check`).
    """

    def __init__(self, bucket: Bucket, tables: Mapping[str, Table]) -> None:
        self.bucket, self.tables = bucket, tables
        self.decided: dict[str, Record] = {}
        """All that ever were, and what was decided first."""
        self.collected: set[str] = set()

    def on_change(self, key: str, data: bytes | None) -> None:
        if not key.startswith(f"{PREFIX}/"):
            return
        transaction = key.removeprefix(f"{PREFIX}/").removesuffix(".json")
        if data is None:
            self.on_delete(transaction)
            return
        record = decode_record(data)
        first = self.decided.setdefault(transaction, record)
        if transaction in self.collected:
            for table in self.tables.values():
                assert not self._entries(table, transaction), "a record came back, and an entry asks for it"
            return  # of a process that slept
        assert record == first, f"transaction {transaction} was decided twice"
        self._take(transaction, record)

    def _take(self, transaction: str, record: Record) -> None:
        tables = [table for name, table in self.tables.items() if name in record.tables]
        concerned = [table for table in tables if self._prepared(table, transaction)]
        if record.committed:
            for name, (_, version) in record.tables.items():
                table = self.tables.get(name)
                here = table is not None and table.prepared is not None and table.prepared.version == version
                assert here or table is None, f"transaction {transaction} is committed, and {name} has no entry of it"
        before = self._rows(concerned)
        ops: dict[str, tuple[LogOp, ...]] = {}
        for table in concerned:
            prepared = table.prepared
            assert prepared is not None
            assert prepared.prepare is not None
            ops[table.directory] = prepared.prepare.ops
            table.on_record(transaction, record)
        moved = any(isinstance(op, DropRange) and op.kind == "move" for each in ops.values() for op in each)
        if not record.committed or moved:
            assert self._rows(concerned) == before, f"transaction {transaction} lost rows, or brought some"
        if record.committed and not moved:
            for table in concerned:
                adds = any(isinstance(op, AddParts) for op in ops[table.directory])
                same = table.views[table.state.version] == table.views[table.state.version - 1]
                assert adds or same, "a table from which rows were taken over lost some"

    def _rows(self, tables: list[Table]) -> Counter[Row]:
        return Counter(row for table in tables for rows in table.model.physical.values() for row in rows)

    def on_delete(self, transaction: str) -> None:
        for table in self.tables.values():
            assert not self._entries(table, transaction), f"the record of {transaction} was deleted, and is asked for"
        self.collected.add(transaction)

    def _prepared(self, table: Table, transaction: str) -> bool:
        prepare = table.prepared.prepare if table.prepared is not None else None
        return prepare is not None and prepare.transaction == transaction

    def _entries(self, table: Table, transaction: str) -> list[int]:
        """The versions of its entries that are there, and may be read."""
        found = [
            version
            for version, entry in table.entries.items()
            if (prepare := entry.prepare) is not None
            and prepare.transaction == transaction
            and f"{table.directory}/_log/{version:020d}.json" in self.bucket.objects
        ]
        return [*found, *([table.state.version + 1] if self._prepared(table, transaction) else [])]

    def check(self, states: Mapping[str, State]) -> None:
        """What is read together has all of each transaction, or nothing."""
        for transaction, record in self.decided.items():
            if record.committed:
                has = {
                    name: states[name].version >= version
                    for name, (_, version) in record.tables.items()
                    if name in states
                }
                assert len(set(has.values())) < 2, f"a reader sees a part of transaction {transaction}: {has}"
