"""A dropped table goes, and whoever looks at it in between can read that it was dropped."""

from __future__ import annotations

import pytest

from mergelake.core.clock import ManualClock
from mergelake.core.errors import CorruptDataError
from mergelake.core.ids import SeededIds
from mergelake.log.operations import DropTable
from mergelake.store.memory import MemoryStore
from mergelake.table.define import define
from mergelake.table.handle import TableHandle
from mergelake.table.remove import remove_table


class Rotten(MemoryStore):
    """So many checkpoints are stored with a wrong bit."""

    wrong = 0

    def create(self, key, data):
        if "/checkpoints/" in key and self.wrong:
            self.wrong -= 1
            data = bytes([data[0] ^ 1, *data[1:]])
        return super().create(key, data)


def dropped(store: Rotten) -> TableHandle:
    table = TableHandle.create(store, "t", define({"k": "UInt8"}), clock=ManualClock(), ids=SeededIds(1))
    table.log.commit(lambda _: (DropTable(),))
    return table


def test_entries_go_once_a_checkpoint_can_be_read():
    store = Rotten()
    table = dropped(store)
    store.wrong = 2
    deleting = store.delete

    def look(keys):
        deleting(keys)
        if any("/checkpoints/" in meta.key for meta in store.list("t")):
            assert TableHandle.open(store, "t", clock=ManualClock(), ids=SeededIds(2)).log.state.dropped

    store.delete = look
    remove_table(table)
    assert list(store.list("t")) == []


def test_nothing_goes_while_no_checkpoint_can_be_read():
    store = Rotten()
    table = dropped(store)
    store.wrong = 9
    with pytest.raises(CorruptDataError):
        remove_table(table)
    assert TableHandle.open(store, "t", clock=ManualClock(), ids=SeededIds(2)).log.state.dropped
