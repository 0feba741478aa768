"""Random histories of tables of every engine: peer reads give the rows of the stored parts, whatever nodes answer."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.engines.rules.modes import mode_of
from mergelake.jobs.mutate.submit import submit
from mergelake.jobs.mutate.validate import Submission
from mergelake.log.model.operations import DropRange
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.table.handle.handle import TableHandle
from mergelake.table.pending.commands import Delete, Update
from mergelake.table.volatile.volatile_reads import OFF
from mergelake.table.write.insert import commit_parts, insert_target, write_blocks
from tests.helpers.nodes import TinyNode
from tests.helpers.peer_reads import Reader, serving
from tests.helpers.peers import Network

COLUMNS = {
    "k": "UInt32", "p": "UInt8", "v": "UInt32", "sign": "Int8", "n": "Nullable(Int32)",
    "l": "LowCardinality(String)", "a": "Array(UInt16)", "s": "String",
}  # fmt: skip
ENGINES = {
    "MergeTree": "k",
    "ReplacingMergeTree": "k",
    "ReplacingMergeTree(v)": "k",
    "SummingMergeTree(v)": "k",
    "CoalescingMergeTree": "k",
    "VersionedCollapsingMergeTree(sign, v)": "k",
}
MUTATIONS = (
    Update((("n", "n + 1"),), "v % 3 = 0"),
    Update((("s", "concat(s, '!')"), ("l", "'new'")), "v % 2 = 0"),
    Delete("v % 5 = 1", lightweight=True),
    Delete("sign = 1 AND k % 7 = 3"),
)


class History:
    """A table, nodes that merge it on their disks, and what happens to it."""

    def __init__(self, engine: str, rng: random.Random) -> None:
        self.store, self.clock, self.ids, self.rng = (
            MemoryStore(),
            ManualClock(),
            SeededIds(rng.randrange(1 << 30)),
            rng,
        )
        settings = {
            "merge_upload_policy": "volatile",
            "merge_selector_base": 2,
            "write_amplification_target": rng.choice([1.0001, 2.1]),
            "max_bytes_to_merge_volatile": rng.choice([60_000, 10_000_000]),
            "index_granularity": rng.choice([16, 64, 8192]),
            "min_bytes_for_wide_part": rng.choice([0, 1 << 30]),
            "min_bytes_for_full_part_storage": rng.choice([0, 1 << 30]),
        }
        schema = define(COLUMNS, order_by=ENGINES[engine], partition_by="p", engine=engine, settings=settings)
        self.handle = TableHandle.create(self.store, "t", schema, clock=self.clock, ids=self.ids)
        self.number = 0
        self.network = Network()
        self.nodes = [TinyNode(self, name) for name in ("a", "b")]
        for node in self.nodes:
            serving(self.network, self, node)

    def insert(self, rows: int) -> None:
        rng, first = self.rng, self.number
        self.number += rows
        numbers = range(first, self.number)
        table = pa.table(
            {
                "k": pa.array([rng.randrange(200) for _ in numbers], pa.uint32()),
                "p": pa.array([rng.randrange(2) for _ in numbers], pa.uint8()),
                "v": pa.array(numbers, pa.uint32()),
                "sign": pa.array([rng.choice([-1, 1]) for _ in numbers], pa.int8()),
                "n": pa.array([rng.choice([None, n]) for n in numbers], pa.int32()),
                "l": pa.array([f"l{n % 9}".encode() for n in numbers], pa.binary()).dictionary_encode(),
                "a": pa.array([list(range(n % 4)) for n in numbers], storage_type(parse_type("Array(UInt16)"))),
                "s": pa.array([f"row {n}".encode() for n in numbers], pa.binary()),
            }
        )
        target = insert_target(self.store, "t", self.handle.schema, self.ids, self.clock)
        commit_parts(self.handle, write_blocks(target, [table]))

    def happen(self) -> None:
        """One random thing."""
        rng = self.rng
        roll = rng.random()
        self.handle.refresh()
        if roll < 0.45:
            self.insert(rng.choice([1, 30, 300]))
        elif roll < 0.9:
            rng.choice(self.nodes).step()
        elif roll < 0.96:
            submit(self.handle, [rng.choice(MUTATIONS)], Submission(now_ms=self.clock.now_ms()))
        elif roll < 0.98:
            self.handle.log.commit(lambda _: [DropRange(rng.choice(["0", "1"]))])
        else:
            node = rng.choice(self.nodes)
            node.worker._forget(node.worker._held()[:1])  # the disk loses a part
        if rng.random() < 0.1:
            self.clock.advance_s(rng.choice([1, 70, 700]))


def rows_of(reader: Reader, final: bool, **options) -> list[tuple]:
    return [tuple(map(str, row)) for row in reader.rows(final=final, **options)]


@pytest.mark.parametrize("engine", ENGINES)
def test_peer_reads_give_the_rows_of_the_stored_parts(engine):
    # M-010
    assert compared(engine, 3, steps=14)


def compared(engine: str, seed: int, steps: int) -> int:
    """Compare reads after random steps; how many volatile parts were read."""
    rng = random.Random(f"{engine} {seed}")
    history = History(engine, rng)
    merged = 0
    reader = Reader(history, history.network)
    for _ in range(steps):
        history.happen()
        for _ in range(rng.randrange(4)):
            rng.choice(history.nodes).step()
        history.network.fate = [rng.choice(["", "", "", "", "lose", "mute"]) for _ in range(rng.randrange(12))]
        reader.clock.advance_s(rng.choice([0, 100]))
        if rng.random() < 0.3:
            reader = Reader(history, history.network)
        version = rng.choice([None, None, rng.randint(1, history.handle.refresh().version)])
        final = mode_of(history.handle.schema) is not None
        options = rng.choice(
            [
                {},
                {"where": "k < 20"},
                {"columns": ("k", "s", "a"), "where": "n > 100"},
                {"columns": ("l",), "prewhere": "v % 2 = 0"},
                {"ordered": True, "columns": ("k",)},
                {"threads": 2},
            ]
        )
        found = rows_of(reader, final, version=version, **options)
        history.network.fate = []
        stored = rows_of(Reader(history, None), final, version=version, mode=OFF, **options)
        assert found == stored
        merged += sum(item.merged is not None for item in reader.scan(version=version)[0].items)
    return merged
