"""Publishing when something fails: two publishers never take away what the other has shown."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.gc.fsck import fsck
from mergelake.jobs.publish import publish as publishing
from mergelake.jobs.publish.plan import shown_token
from mergelake.jobs.publish.publish import publish
from mergelake.log.model.operations import AdvanceGcHorizon, DropParts, DropRange
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.table.handle.handle import TableHandle
from mergelake.table.write.insert import commit_parts, insert_target, write_blocks

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


def _shown(store: MemoryStore) -> list[str]:
    return sorted(store.get(meta.key).decode().rstrip("/") for meta in store.list("t/__meta"))


def test_what_takes_the_place_of_dropped_parts_is_shown_by_one_name_that_covers_them():
    """And comes before the other new parts; what follows it, and what is dropped again, has names that fit."""
    order: list[str] = []

    class Watched(MemoryStore):
        def put(self, key, data):
            if "__meta" in key:
                order.append(bytes(data).decode().rstrip("/"))
            super().put(key, data)

    store = Watched()
    table = TableHandle.create(store, "t", SCHEMA, clock=ManualClock(), ids=SeededIds(1))
    for _ in range(3):
        _insert(table)
    publish(table)
    table.log.commit(lambda _: [DropRange("1"), DropRange("2")])
    for _ in range(2):
        _insert(table)
    order.clear()
    report = publish(table)
    assert report.added == ("1_7_7_0", "2_8_8_0", "1_9_9_0", "2_10_10_0")
    assert report.dropped == ()
    assert sorted(order[:2]) == ["1_1_7_1000000013_6", "2_1_8_1000000013_7"]
    assert sorted(order[2:]) == ["1_9_9_0", "2_10_10_0"]
    assert fsck(table).clean
    assert publish(TableHandle.open(store, "t", clock=ManualClock(), ids=SeededIds(2))).waiting == 6
    assert len(publish(table, grace_seconds=0).removed) == 6
    (first, _) = table.log.state.partitions["1"]
    table.log.commit(lambda _: [DropParts("1", (first.manifest.id,))])
    assert publish(table).dropped == ("1_1_7_1000000014_6",)
    table.log.commit(lambda _: [DropRange("1"), DropRange("2")])
    assert sorted(publish(table).dropped) == ["1_1_10_1000000018_10", "2_1_10_1000000018_10"]
    _insert(table)
    assert fsck(table).clean
    publish(table)
    assert {"1_1_11_1000000021_10", "2_1_12_1000000021_11"} <= set(_shown(store))
    assert fsck(table).clean
    assert len(publish(table, grace_seconds=0).removed) == 7
    assert _shown(store) == ["1_1_11_1000000021_10", "2_1_12_1000000021_11"]


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
