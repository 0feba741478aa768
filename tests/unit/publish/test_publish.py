"""Publishing when something fails: two publishers never take away what the other has shown."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mergelake.core.clock import ManualClock
from mergelake.core.errors import UnavailableError
from mergelake.core.ids import SeededIds
from mergelake.log.operations import AdvanceGcHorizon, DropParts
from mergelake.publish import publish as publishing
from mergelake.publish.plan import shown_token
from mergelake.publish.publish import publish
from mergelake.store.memory import MemoryStore
from mergelake.table.define import define
from mergelake.table.handle import TableHandle
from mergelake.table.insert import commit_parts, insert_target, write_blocks

SCHEMA = define({"p": "UInt8", "k": "UInt8"}, partition_by="p", order_by="k")


def _insert(table: TableHandle) -> None:
    """A row into each of two partitions."""
    block = pa.table({"p": pa.array([1, 2], pa.uint8()), "k": pa.array([1, 2], pa.uint8())})
    commit_parts(table, write_blocks(insert_target(table.store, "t", SCHEMA, table.ids, table.clock), [block]))


def _published(store: MemoryStore) -> TableHandle:
    """Two partitions of a row, shown, and the first dropped since."""
    table = TableHandle.create(store, "t", SCHEMA, clock=ManualClock(), ids=SeededIds(1))
    _insert(table)
    publish(table)
    table.log.commit(lambda state: [DropParts("1", (state.partitions["1"][0].manifest.id,))])
    return table


def test_a_name_that_was_read_wrong_once_is_not_believed():
    store = MemoryStore()
    table = _published(store)
    table.log.commit(
        lambda state: [AdvanceGcHorizon(state.fence, state.version)]
    )  # the log forgets the part, not its name
    (dropped,) = (m.key for m in store.list("t/__meta") if m.key.split("/")[2] not in _active(table))

    class Flipping(MemoryStore):
        wrong = 1

        def get(self, key):
            data = super().get(key)
            if key == dropped and self.wrong:
                self.wrong -= 1
                return data.replace(b"1_1_1", b"1_1_3")
            return data

    flipping = Flipping()
    flipping._space = store._space
    report = publish(TableHandle.open(flipping, "t", clock=ManualClock(), ids=SeededIds(2)))
    assert flipping.wrong == 0
    assert report.dropped == ("1_1_1_1",)


def _active(table: TableHandle) -> set[str]:
    return {shown_token(part.manifest) for part in table.log.state.parts()}


def test_a_publisher_that_fails_leaves_the_empty_part_of_another_alone():
    store = MemoryStore()
    table = _published(store)

    class Cut(MemoryStore):
        def put(self, key, data):
            if key.startswith("t/drop-") and key.endswith("checksums.txt"):
                publish(table)  # the other one is faster, and now shows the same empty part
                raise UnavailableError("the network is gone")
            super().put(key, data)

    cut = Cut()
    cut._space = store._space
    other = TableHandle.open(cut, "t", clock=ManualClock(), ids=SeededIds(2))
    with pytest.raises(UnavailableError):
        publish(other)
    (token,) = (key.key.split("/")[2] for key in store.list("t/__meta") if "drop-" in key.key)
    files = {key.key.rpartition("/")[2] for key in store.list(f"t/{token}")}
    assert {"checksums.txt", "columns.txt", "count.txt", "partition.dat", "k.bin", "p.bin"} <= files


def test_what_another_published_meanwhile_is_not_taken_for_dropped():
    """The names are listed before the log is read: the other way round, the newest rows would be covered for good."""

    class Busy(MemoryStore):
        other: TableHandle | None = None

        def list(self, prefix, after=""):
            if self.other is not None and prefix.endswith("__meta/"):
                other, self.other = self.other, None
                _insert(other)
                publish(other)
            return super().list(prefix, after)

    store = Busy()
    table = _published(store)
    publish(table)
    store.other = TableHandle.open(store, "t", clock=ManualClock(), ids=SeededIds(2))
    report = publish(table)
    assert (report.added, report.dropped) == ((), ())
    assert report.version == table.refresh().version == 4


def test_an_empty_part_that_was_collected_before_it_got_its_name_is_not_shown(monkeypatch):
    """By a publisher that stood still for hours between writing it and naming it."""
    store = MemoryStore()
    table = _published(store)
    name = publishing._name

    def late(store, directory, token, info):
        table.clock.sleep_s(100_000)
        store.delete([meta.key for meta in store.list(f"{directory}/{token}")])
        name(store, directory, token, info)

    monkeypatch.setattr(publishing, "_name", late)
    assert len(publish(table).dropped) == 1
    assert not [meta.key for meta in store.list("t/__meta") if "drop-" in meta.key]
