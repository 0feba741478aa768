"""A dropped table goes, and whoever looks at it in between can read that it was dropped."""

from __future__ import annotations

import random

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import CorruptDataError, MergelakeError, UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.gc.remove import remove_table
from mergelake.log.model.operations import DropTable, Tag
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.table.handle.handle import TableHandle


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


class Torn(MemoryStore):
    """Deletions are carried out in part, some answers are late, and checkpoints are read with a wrong bit at times."""

    def __init__(self, draw):
        super().__init__()
        self.draw, self.torn = draw, False

    def delete(self, keys):
        some = list(keys)
        if self.torn and self.draw.random() < 0.7:
            super().delete(self.draw.sample(some, self.draw.randint(0, len(some))))
            raise UnavailableError("a test")
        super().delete(some)

    def get(self, key):
        data = super().get(key)
        flipped = self.torn and "/checkpoints/" in key and self.draw.random() < 0.3
        return bytes([data[0] ^ 1, *data[1:]]) if flipped else data


@pytest.mark.parametrize("seed", range(60))
def test_a_table_that_goes_in_part_is_never_one_that_was_not_dropped(seed):
    draw = random.Random(seed)
    store, clock = Torn(draw), ManualClock()
    schema = define({"k": "UInt8"}, settings={"checkpoint_interval": str(draw.randint(1, 6))})
    table = TableHandle.create(store, "t", schema, clock=clock, ids=SeededIds(1))
    for number in range(draw.randint(0, 12)):
        table.log.commit(lambda state, number=number: [Tag(f"tag {number}", state.version)])
    hinted = draw.random() < 0.5 and any(meta.key == "t/_log/_last_checkpoint" for meta in store.list("t"))
    hint = store.get("t/_log/_last_checkpoint") if hinted else b""
    table.log.commit(lambda _: (DropTable(),))
    if hint:  # its writer did not come to write it
        store.put("t/_log/_last_checkpoint", hint)
    told = set()
    for attempt in range(30):
        store.torn = attempt < 20
        try:
            remove_table(table)
            break
        except MergelakeError:
            pass
        try:
            found = TableHandle.open(store, "t", clock=clock, ids=SeededIds(100 + attempt))
        except MergelakeError as problem:  # gone, or not readable just now
            told.add(problem.name)
            continue
        assert found.log.state.dropped
    assert told <= {"UNKNOWN_TABLE", "CORRUPTED_DATA", "NETWORK_ERROR"}
    assert list(store.list("t")) == []
