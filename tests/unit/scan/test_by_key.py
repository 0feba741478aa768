"""Pruning by the key on columns of segments leaves the parts that pruning one part after another leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from unittest import mock

import pytest

import mergelake as ml
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.log.model.operations import DropParts
from mergelake.log.storage import layout, segments
from mergelake.scan.prune import by_key
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read import plan
from mergelake.table.handle.handle import TableHandle
from tests.helpers.predicates import TABLES, random_predicate, random_rows
from tests.helpers.scans import ScanTable, make_schema

CONDITIONS = (
    "k = 77",
    "k BETWEEN 100 AND 140",
    "k IN (3, 900, 1500)",
    "k < 50 OR k > 1800",
    "s = '33'",
    "k >= 500 AND s < '6'",
    "p = 2 AND k = 444",
    "d = '2026-01-03' AND k < 600",
    "k > 100000",
    "not (k = 7)",
)


@pytest.fixture(params=["(s, k)", "k DESC", "(toDate(d), k)"])
def db(request: pytest.FixtureRequest, tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ml.Database]:
    monkeypatch.setattr(layout, "INLINE_MAX", 4_000)
    monkeypatch.setattr(layout, "SEGMENT_MAX", 60_000)
    monkeypatch.setattr(by_key, "GROUP_ROWS", 4)
    with ml.connect(str(tmp_path)) as db:
        db.sql(
            "CREATE TABLE t (p UInt8, d Date, k Int64, s String) ENGINE = MergeTree PARTITION BY (p, d) "
            f"ORDER BY {request.param} SETTINGS checkpoint_interval = 8, allow_experimental_reverse_key = 1"
        )
        order = list(range(60))
        random.Random(5).shuffle(order)
        for n in order:
            db.sql(
                f"INSERT INTO t SELECT {n % 4}, toDate('2026-01-01') + {n % 3}, number + {n * 20 - 7}, "
                f"toString((number + {n}) % 90) FROM numbers(20)"
            )
    with ml.connect(str(tmp_path)) as late:
        yield late


def test_the_same_rows_and_the_same_parts(db: ml.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = by_key.parts_by_key

    def told(*arguments):
        asked.append(real(*arguments))
        return asked[-1]

    monkeypatch.setattr(plan, "parts_by_key", told)
    table = db.table("t")
    assert table.snapshot().partitions.segments
    for condition in CONDITIONS:
        text = f"SELECT count(), sum(k), min(s), max(p) FROM t WHERE {condition}"
        with monkeypatch.context() as few:
            few.setattr(plan, "_MANY_PARTS", 8)
            pruned = db.sql(text).rows()
        with monkeypatch.context() as never:
            never.setattr(plan, "_MANY_PARTS", 1 << 30)
            assert pruned == db.sql(text).rows(), condition
    assert asked
    assert min(map(len, asked)) < 30  # of sixty
    names = [[part.name for part in parts] for parts in asked]
    assert all(
        found == sorted(found, key=lambda name: next(p.info for p in table.snapshot().parts if p.name == name))
        for found in names
    )


def test_parts_that_are_not_read_are_not_made(db: ml.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = db.table("t").snapshot()
    made = []
    real = by_key.OpenSegment.parts
    monkeypatch.setattr(by_key.OpenSegment, "parts", lambda self, rows: made.extend(rows) or real(self, rows))
    assert db.table("t").scan(where="k < 20", columns=["k"]).arrow().num_rows == 27
    inside = sum(len(snapshot.partitions.held(name)) for name in snapshot.partitions)
    assert inside == 60
    assert len(made) < 60


@pytest.mark.parametrize("name", sorted(TABLES))
def test_groups_and_rows_of_segments_leave_what_every_part_by_itself_leaves(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of all types, and parts that came, went and were merged since the checkpoint."""
    schema, columns = TABLES[name]
    draw = random.Random(name)
    for number in range(2):
        monkeypatch.setattr(layout, "INLINE_MAX", 3_000)
        monkeypatch.setattr(layout, "SEGMENT_MAX", draw.choice([15_000, 60_000]))
        monkeypatch.setattr(by_key, "GROUP_ROWS", draw.choice([1, 3, 8]))
        table = ScanTable(schema)
        for _ in range(30):
            table.insert(random_rows(draw, columns, draw.randint(1, 3)))
        log = table.handle.log
        log.write_checkpoint()
        if number:  # some of them change
            for _ in range(3):
                table.insert(random_rows(draw, columns, 2))
            partition = draw.choice(sorted(log.state.partitions))
            gone = (log.state.partitions[partition][0].manifest.id,)
            log.commit(lambda _, partition=partition, gone=gone: [DropParts(partition, gone, "drop")])
        snapshot = TableHandle.open(table.store, "t", clock=ManualClock(), ids=SeededIds(2)).snapshot()
        assert snapshot.partitions.segments
        for _ in range(40):
            request = ScanRequest(where=random_predicate(draw, columns))
            found = []
            for least in (1, 1 << 30):
                monkeypatch.setattr(plan, "_MANY_PARTS", least)
                planned = plan.plan_scan(table.store, "t", snapshot, request, table.caches, count_steps=False)
                found.append([(str(item.info), item.ranges) for item in planned.items])
            assert found[0] == found[1], request.where


def rising(partitions: int) -> ScanTable:
    """A row in each partition, whose key rises with it; all in a checkpoint."""
    table = ScanTable(make_schema({"p": "UInt16", "k": "UInt32"}, order_by=("k",), partition_by=("p",)))
    for first in range(0, partitions, 64):
        table.insert([{"p": 100 + n, "k": 10 * n} for n in range(first, first + 64)])
    table.handle.log.write_checkpoint()
    return table


def test_a_segment_that_cannot_be_read_costs_its_partitions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "INLINE_MAX", 3_000)
    monkeypatch.setattr(layout, "SEGMENT_MAX", 30_000)
    monkeypatch.setattr(segments, "EAGER_BYTES", 0)
    table = rising(320)
    keys = [meta.key for meta in table.store.list("t/_log/checkpoints") if meta.key.endswith(".segment")]
    assert len(keys) > 2
    table.store.put(keys[1], b"x" * len(table.store.get(keys[1])))
    for k in (50, 1500, 3100):
        snapshot = TableHandle.open(table.store, "t", clock=ManualClock(), ids=SeededIds(2)).snapshot()
        found = plan.plan_scan(table.store, "t", snapshot, ScanRequest(where=f"k = {k}"), count_steps=False)
        assert [item.info.partition_id for item in found.items] == [str(100 + k // 10)]
        made = sum(snapshot.partitions.held(name).in_memory is not None for name in snapshot.partitions)
        assert 0 < made < 200


def test_a_look_up_costs_what_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are judged, where keys rise with the partition; and the same after one more commit."""
    monkeypatch.setattr(layout, "INLINE_MAX", 3_000)
    monkeypatch.setattr(by_key, "GROUP_ROWS", 16)
    table = rising(640)
    real, request = by_key._judged, ScanRequest(where="k = 3330")
    for _ in range(2):
        with mock.patch.object(by_key, "_judged", side_effect=real) as judged:
            found = plan.plan_scan(table.store, "t", table.handle.snapshot(), request, count_steps=False)
        assert [item.info.partition_id for item in found.items] == ["433"]
        assert sum(len(call.args[1]) for call in judged.call_args_list) <= 32
        table.insert([{"p": 3, "k": 5}])
