"""A month of a table with a TTL, on a clock that is moved: a node, and what it reads and writes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.log.model.operations import DropParts, Publish
from mergelake.parts.read.reader import PartReader
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.table.handle.handle import TableHandle
from mergelake.table.write.insert import commit_parts, insert_target, write_blocks
from tests.helpers.nodes import TinyNode

HOUR, DAY = 3600, 86400
COLUMNS = {"ts": "DateTime", "k": "UInt32", "v": "UInt32", "note": "String"}


class Events:
    """A table of events, and its rows by the hour in which they came."""

    def __init__(self, ttl: Any, partition: str = "toYYYYMMDD(ts)", **settings: object) -> None:
        self.store, self.clock, self.ids = MemoryStore(), ManualClock(1_700_000_000_000), SeededIds(1)
        given = {"merge_upload_policy": "direct", "index_granularity": 64, **settings}
        schema = define(COLUMNS, order_by=["k", "ts"], partition_by=partition, settings=given, ttl=ttl)
        self.handle = TableHandle.create(self.store, "t", schema, clock=self.clock, ids=self.ids)
        self.rows: list[tuple[int, int]] = []

    @property
    def now(self) -> int:
        return self.clock.now_ms() // 1000

    def insert(self, times: list[int]) -> None:
        new = [(time, len(self.rows) + at) for at, time in enumerate(times)]
        self.rows += new
        block = pa.table(
            {
                "ts": pa.array([time for time, _ in new], pa.uint32()),
                "k": pa.array([n * 37 % 11 for _, n in new], pa.uint32()),
                "v": pa.array([n for _, n in new], pa.uint32()),
                "note": pa.array([b"note"] * len(new), pa.binary()),
            }
        )
        written = write_blocks(insert_target(self.store, "t", self.handle.schema, self.ids, self.clock), [block])
        commit_parts(self.handle, written)

    def present(self) -> dict[int, bytes]:
        """Of each row that is there its number and its note."""
        state = self.handle.refresh()
        columns = {column.name: column for column in state.schema.stored}
        found: dict[int, bytes] = {}
        for part in state.parts():
            held = set(part.manifest.columns)
            names = [name for name in ("v", "note") if columns[name].id in held]
            for batch in PartReader(self.store, "t", part.manifest, columns).read(names):
                notes = batch.column(1).to_pylist() if len(names) > 1 else [b""] * batch.num_rows
                found |= dict(zip(batch.column(0).to_pylist(), notes, strict=True))
        return found

    def expected(self, keep_s: int) -> tuple[set[int], Callable[[int], set[int]]]:
        """Rows that have not expired; and those that had not, so many seconds ago."""
        return (
            {n for time, n in self.rows if time + keep_s > self.now},
            lambda late_s: {n for time, n in self.rows if time + keep_s > self.now - late_s},
        )

    def operations(self, kind: type) -> list[Any]:
        self.handle.refresh()
        return [op for entry in self.handle.log.entries() for op in entry.ops if isinstance(op, kind)]


def data_requests(store: MemoryStore) -> tuple[int, int]:
    """GETs and PUTs of objects of parts so far."""
    details = store.counters.details
    return details.get("get data", 0), details.get("put data", 0)


# M-029, M-044
@pytest.mark.parametrize("policy", ["direct", "volatile"])
@pytest.mark.parametrize("partition", ["toYYYYMMDD(ts)", "toYYYYMM(ts)"])
def test_a_month_of_rows_that_live_for_a_week(partition: str, policy: str) -> None:
    table = Events("ts + INTERVAL 7 DAY", partition, merge_upload_policy=policy)
    node = TinyNode(table, has_disk=policy == "volatile")
    for _ in range(30 * 2):
        table.insert([table.now - back * HOUR for back in range(8)])
        table.clock.advance_s(12 * HOUR)
        node.rest()
        alive, late = table.expected(7 * DAY)
        # A merge for single rows comes four hours after the one before it, at the next tick.
        assert alive <= table.present().keys() <= late(12 * HOUR)
    assert table.operations(DropParts)


def test_whole_parts_are_dropped_without_a_request_for_data() -> None:
    table = Events("ts + INTERVAL 7 DAY", ttl_only_drop_parts=1, min_parts_to_merge_at_once=1000)
    node = TinyNode(table, has_disk=False)
    for day in range(30):
        table.insert([table.now + at * HOUR for at in range(3)])
        before = data_requests(table.store)
        table.clock.advance_s(DAY)
        node.rest()
        assert data_requests(table.store) == before
        alive, late = table.expected(7 * DAY)
        assert alive <= table.present().keys() <= late(DAY), day
    assert not table.operations(Publish)
    assert {op.kind for op in table.operations(DropParts)} == {"expire"}
    assert len(table.handle.refresh().partitions) < 12


def on_disk(ttl: Any, partition: str = "toYYYYMM(ts)", **settings: object) -> tuple[Events, TinyNode]:
    table = Events(ttl, partition, merge_upload_policy="volatile", merge_selector_base=2, **settings)
    return table, TinyNode(table)


def test_merges_of_rows_that_live_for_days_keep_to_the_budget() -> None:
    table, node = on_disk("ts + INTERVAL 1 DAY", "toYYYYMMDD(ts)", ttl_only_drop_parts=1)
    for _ in range(3 * 8):
        for at in range(3):
            table.insert([table.now + at * HOUR, table.now + at * HOUR + 1])
        table.clock.advance_s(3 * HOUR)
        node.rest()
    alive, late = table.expected(DAY)
    assert alive <= table.present().keys() <= late(DAY)
    kinds = [op.kind for op in table.operations(Publish)]
    assert kinds.count("volatile") > kinds.count("direct")
    assert {op.kind for op in table.operations(DropParts)} == {"expire"}
    assert table.handle.log.state.written.amplification < 2.2
    assert len(table.handle.log.state.partitions) <= 5


def test_a_volatile_part_goes_with_the_rows_beneath_it() -> None:
    table, node = on_disk("ts + INTERVAL 1 DAY", volatile_upload_age_seconds=10 * DAY)
    for hour in (0, 1, 2, 3):
        table.insert([table.now + hour * HOUR + at for at in range(3)])
    node.rest()
    (name,) = node.local
    before = data_requests(table.store)
    table.clock.advance_s(DAY + 2 * HOUR)
    node.rest()
    assert (node.local, len(table.present())) == ([name], 12)  # some of its rows have not expired
    table.clock.advance_s(2 * HOUR)
    node.rest()
    assert (node.local, table.present()) == ([], {})
    assert not table.handle.refresh().volatile
    assert data_requests(table.store)[1] == before[1]


def test_stored_parts_with_expired_rows_are_merged_to_the_store() -> None:
    table, node = on_disk("ts + INTERVAL 1 DAY", ttl_only_drop_parts=1, volatile_upload_age_seconds=60)
    for wait in (0, DAY + 300):
        table.clock.advance_s(wait)
        for at in range(4):
            table.insert([table.now + at, 1_700_100_000])
        node.rest()
        table.clock.advance_s(120)
        node.rest()
    assert [(task.kind, task.time_ms > 0) for task in node.stored] == [("regular", True)]
    alive, _ = table.expected(DAY)
    assert table.present().keys() == alive


def test_values_of_a_column_expire_before_their_rows() -> None:
    table = Events({"": "ts + INTERVAL 10 DAY", "note": "ts + INTERVAL 2 DAY"})
    node = TinyNode(table, has_disk=False)
    for _ in range(20):
        table.insert([table.now + at * HOUR for at in range(3)])
        table.clock.advance_s(DAY)
        node.rest()
        present = table.present()
        alive, late = table.expected(10 * DAY)
        assert alive <= present.keys() <= late(DAY)
        fresh, known = table.expected(2 * DAY)
        noted = {n for n, note in present.items() if note}
        assert fresh <= noted <= known(DAY)


def test_parts_are_recompressed_once() -> None:
    table = Events("ts + INTERVAL 3 DAY RECOMPRESS CODEC(ZSTD(5))", min_parts_to_merge_at_once=1000)
    node = TinyNode(table, has_disk=False)
    table.insert([table.now, table.now + 60])
    node.rest()
    assert not node.stored
    table.clock.advance_s(3 * DAY + 120)
    node.rest()
    assert [task.kind for task in node.stored] == ["ttl_recompress"]
    table.clock.advance_s(30 * DAY)
    node.rest()
    assert len(node.stored) == 1
    (part,) = table.handle.refresh().parts()
    reader = PartReader(table.store, "t", part.manifest, {c.name: c for c in table.handle.schema.stored})
    assert reader.small_files(["default_compression_codec.txt"]) == {"default_compression_codec.txt": b"CODEC(ZSTD(5))"}


@pytest.mark.parametrize("seed", range(4))
def test_nodes_come_to_rest_with_any_ttl(seed: int) -> None:
    rng = random.Random(seed)
    drawn = [
        "ts + INTERVAL 9 DAY",
        "ts + INTERVAL 3 DAY WHERE v % 3 = 0",
        "ts + INTERVAL 4 DAY WHERE v > 100000",
        "ts + INTERVAL 2 DAY RECOMPRESS CODEC(ZSTD(2))",
        "ts + INTERVAL 5 DAY RECOMPRESS CODEC(LZ4HC(3))",
        "ts + INTERVAL 6 DAY GROUP BY k SET v = max(v)",
    ]
    ttl = {"": [each for each in drawn if rng.random() < 0.5], "note": "ts + INTERVAL 1 DAY"}
    settings = {"ttl_only_drop_parts": rng.randrange(2), "min_bytes_for_wide_part": rng.choice([0, 1 << 30])}
    settings["merge_upload_policy"] = rng.choice(["direct", "volatile"])
    table = Events(ttl, rng.choice(["toYYYYMMDD(ts)", "toYYYYMM(ts)"]), **settings)
    node = TinyNode(table, has_disk=settings["merge_upload_policy"] == "volatile")
    for day in range(14):
        if day < 7:
            table.insert([table.now + at * HOUR for at in range(4)])
        table.clock.advance_s(DAY)
        node.rest()
    assert not node.due()
