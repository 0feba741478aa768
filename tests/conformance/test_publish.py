"""A stock ClickHouse attaches a published table and sees every commit: no row twice, none missing.

It takes new parts in one by one, so a commit into several partitions is seen partition by partition: of each partition
the rows of before or of after the commit, at any moment.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.clock import SystemClock
from mergelake.jobs.publish.definition import create_statement
from mergelake.jobs.publish.plan import floor_part
from mergelake.jobs.publish.publish import follow, publish, unpublish
from mergelake.log.model.operations import DropRange
from mergelake.store import Store, open_store
from mergelake.table.definition.define import define
from mergelake.table.partitions.parts import drop_part
from tests.helpers.blocks import select
from tests.helpers.merging import SmallTable, plain, random_column

COLUMNS = {"k": "UInt32", "p": "UInt8", "s": "String", "lc": "LowCardinality(String)", "x": "Nullable(Float64)"}
WAIT_S = 60.0

Rows = dict[int, tuple[int, int]]
"""Partition -> number of rows, and a digest of them."""


def _block(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    types = define(COLUMNS).types
    block = {n: random_column(kind, rows, random, distinct=rows) for n, kind in types.items()}
    block["k"] = pa.array(np.arange(rows, dtype=np.uint32) + seed * 100_000)
    block["p"] = pa.array(random.integers(0, 3, rows).astype(np.uint8))
    return pa.table(block)


class Served:
    """A table and a ClickHouse that has attached its directory."""

    def __init__(self, oracle: Any, store: Store, name: str, **settings: object) -> None:
        engine = str(settings.pop("engine", "MergeTree"))
        schema = define(COLUMNS, order_by=["k"], partition_by=["p"], engine=engine, settings=settings)
        self.table = SmallTable(schema, store, SystemClock())
        self.oracle = oracle
        self.name = name

    def attach(self) -> None:
        self.oracle.query(f"DROP TABLE IF EXISTS default.{self.name}")
        self.oracle.query(create_statement(self.table.handle, "default", self.name, show_secrets=True))

    def seen(self) -> Rows:
        return self._digests(f"default.{self.name}")

    def expected(self) -> Rows:
        rows = self.table.rows()
        keys, partitions = rows.column("k").to_pylist(), rows.column("p").to_pylist()
        return self._digests(f"(SELECT arrayJoin(arrayZip({keys}, {partitions})) AS row, row.1 AS k, row.2 AS p)")

    def _digests(self, source: str) -> Rows:
        query = f"SELECT p, count(), sum(cityHash64(toUInt32(k))) FROM {source} GROUP BY p"
        lines = str(self.oracle.query(query, "TSV")).splitlines()
        return {p: (rows, digest) for p, rows, digest in (map(int, line.split()) for line in lines)}

    def wait(self, *before: Rows) -> None:
        """Until the reader shows the newest rows; until then it shows of each partition those of one state before."""
        wanted = self.expected()
        states = [*before, wanted]
        deadline = time.monotonic() + WAIT_S
        while (found := self.seen()) != wanted:
            for p in {p for state in (found, *states) for p in state}:
                assert found.get(p) in [s.get(p) for s in states], f"{p}: {found.get(p)} is none of {states}"
            assert time.monotonic() < deadline, f"not refreshed: {found} instead of {wanted}"
            time.sleep(0.1)

    def wait_for_names(self, before: Rows) -> None:
        """Until the reader holds the table's parts; until then, and after, it shows the same rows."""
        deadline = time.monotonic() + WAIT_S
        while self.names() != sorted(self.table.names):
            assert self.seen() == before
            assert time.monotonic() < deadline, f"{self.names()} instead of {self.table.names}"
            time.sleep(0.1)
        assert self.seen() == before

    def names(self) -> list[str]:
        query = f"SELECT name FROM system.parts WHERE active AND table = '{self.name}' AND rows > 0 ORDER BY name"
        return str(self.oracle.query(query, "TSV")).split()


def _life(served: Served) -> None:
    """Inserts, a merge, a drop, each published and seen."""  # M-073
    table = served.table
    table.insert(_block(3000, 1))
    first = publish(table.handle)
    assert len(first.added) == 3
    served.attach()
    before = served.seen()
    assert before == served.expected()

    table.insert(_block(2000, 2))
    between = served.expected()
    assert len(publish(table.handle).added) == 3
    table.insert(_block(1000, 3))
    publish(table.handle)
    served.wait(before, between)
    # the same answers, value by value
    ours = sorted(plain(table.rows().select(["k", "s", "x"])), key=repr)
    types = table.handle.schema.types
    theirs = select(served.oracle, f"SELECT k, s, x FROM default.{served.name}", {n: types[n] for n in ("k", "s", "x")})
    assert sorted(plain(theirs), key=repr) == ours

    before = served.seen()
    table.optimize()
    report = publish(table.handle)
    assert (len(report.added), report.removed, report.waiting) == (3, (), 9)
    served.wait_for_names(before)
    report = publish(table.handle, grace_seconds=0)
    assert len(report.removed) == 9
    for _ in range(15):
        assert served.seen() == before
        time.sleep(0.1)

    [gone] = [name for name in table.names if name.startswith("1_")]
    table.handle.log.commit(lambda _: [DropRange("1")])
    report = publish(table.handle)
    assert report.dropped == (str(floor_part(table.handle.refresh(), "1")),)
    served.wait(before)
    before = served.seen()
    assert publish(table.handle, grace_seconds=0).removed == (gone,)
    table.insert(_block(500, 4))
    publish(table.handle)
    served.wait(before)
    for _ in range(12):
        assert served.seen() == served.expected()
        time.sleep(0.1)
    again = publish(table.handle)
    assert (again.added, again.dropped, again.removed) == ((), (), ())
    # a new reader sees the same
    served.attach()
    assert served.seen() == served.expected()
    settings = "check_query_single_value_result = 0"
    checked = str(served.oracle.query(f"CHECK TABLE default.{served.name} SETTINGS {settings}", "TSV")).splitlines()
    assert checked
    assert [line for line in checked if line.split("\t")[1:] != ["1", ""]] == []
    served.oracle.query(f"DROP TABLE default.{served.name}")


def test_parts_that_were_dropped_singly_are_merged_over(oracle: Any, tmp_path: Path) -> None:
    """Their empty covers are covered in turn; a merge of their level would cross them, and ClickHouse would stop."""
    served = Served(oracle, open_store(str(tmp_path)), "holes")
    table = served.table
    for seed in range(1, 6):
        table.insert(_block(400, seed))
    publish(table.handle)
    served.attach()
    for gone in table.names[1:4:2]:
        before = served.seen()
        drop_part(table.handle, gone)
        assert publish(table.handle).dropped == (f"{gone[:-1]}1",)
        served.wait(before)
    before = served.seen()
    table.optimize()
    assert table.names[0].endswith("_2")
    publish(table.handle)
    served.wait_for_names(before)
    assert len(publish(table.handle, grace_seconds=0).removed) > 5
    served.attach()
    assert served.seen() == served.expected()
    served.oracle.query(f"DROP TABLE default.{served.name}")


@pytest.mark.parametrize("storage", ["packed", "full"])
def test_clickhouse_follows_a_table_in_a_directory(oracle: Any, tmp_path: Path, storage: str) -> None:
    limit = 0 if storage == "full" else 10 << 20
    served = Served(oracle, open_store(str(tmp_path)), f"dir_{storage}", min_bytes_for_full_part_storage=limit)
    _life(served)


def test_clickhouse_follows_a_table_on_s3(oracle: Any, s3_url: str, s3_options: dict[str, str]) -> None:
    served = Served(oracle, open_store(s3_url, s3_options), "on_s3", min_bytes_for_full_part_storage=100_000)
    _life(served)


def test_a_published_replacing_table_answers_final(oracle: Any, tmp_path: Path) -> None:
    served = Served(oracle, open_store(str(tmp_path)), "replaced", engine="ReplacingMergeTree")
    for seed in (1, 1, 1):
        block = _block(1000, seed)
        served.table.insert(block.set_column(1, "p", pa.array(np.zeros(1000, np.uint8))))
    publish(served.table.handle)
    served.attach()
    assert served.seen()[0][0] == 3000
    final = str(oracle.query("SELECT count() FROM default.replaced FINAL", "TSV"))
    assert int(final) == 1000
    served.table.optimize()
    assert len(served.table.rows()) == 1000


def test_following_publishes_each_commit_and_unpublishing_hides_all(tmp_path: Path, oracle: Any) -> None:
    served = Served(oracle, open_store(str(tmp_path)), "followed")
    table, reports = served.table, []

    def stop() -> bool:
        if len(reports) < 2 and len(table.parts) < 6:
            table.insert(_block(100, len(table.parts)))
        return len(reports) >= 2

    follow(table.handle, 0.01, stop, on_report=reports.append)
    assert [len(report.added) for report in reports] == [3, 3]
    served.attach()
    assert served.seen() == served.expected()
    oracle.query("DROP TABLE default.followed")
    assert unpublish(table.handle) == 6
    assert sorted(publish(table.handle).added) == sorted(table.names)


@pytest.mark.parametrize(
    "names", [("colc0",), ("c0", "c1", "c2", "c3"), ("colf0", "colc1"), ("k",), ("data", "packed")]
)
def test_a_packed_part_is_attached_whatever_its_columns_are_called(
    oracle: Any, tmp_path: Path, names: tuple[str, ...]
) -> None:
    table = SmallTable(define(dict.fromkeys(names, "UInt32")), open_store(str(tmp_path)))
    table.insert(pa.table({name: pa.array([1, 2], pa.uint32()) for name in names}))
    assert table.parts[0].manifest.storage == "packed"
    publish(table.handle)
    assert not list(tmp_path.rglob("data.packed"))  # ClickHouse's own packed parts are called so
    oracle.query("DROP TABLE IF EXISTS default.packed_names SYNC")
    oracle.query(create_statement(table.handle, "default", "packed_names"))
    assert str(oracle.query("SELECT count() FROM default.packed_names", "TSV")).strip() == "2"
    assert str(oracle.query("CHECK TABLE default.packed_names", "TSV")).split() == ["all_1_1_0", "1"]
    oracle.query("DROP TABLE default.packed_names SYNC")
