"""A stock ClickHouse that has attached a published table follows commands on partitions: after each publish it shows
the rows of the table, and meanwhile no row that was not there, or more often than it was. A partition that gets other
rows in one part changes in one instant.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.jobs.publish import publish as publishing
from tests.helpers.served import Served, refresh


def test_a_server_follows_commands_on_partitions(oracle: Any, tmp_path: Path) -> None:
    draw = random.Random(1)
    db = ml.connect(str(tmp_path / "w"))
    db.sql("CREATE TABLE t (p Int8, k Int64, v Int64) ENGINE = MergeTree PARTITION BY p ORDER BY k")
    table = db.table("t")
    table.append({"p": [1, 2, 3], "k": [1, 2, 3], "v": [0, 0, 0]})
    table.publish()
    oracle.query("DROP TABLE IF EXISTS default.followed")
    oracle.query(table.attach_statement("default.followed"))

    def seen() -> Counter[tuple[int, ...]]:
        lines = str(oracle.query("SELECT p, k, v FROM default.followed", "TSV")).splitlines()
        return Counter(tuple(map(int, line.split("\t"))) for line in lines)

    def part() -> str:
        return draw.choice([each.name for each in table.handle.refresh().parts()])

    def partition() -> int:
        return int(draw.choice(list(table.handle.refresh().partitions)))

    steps: list[list[Callable[[], object]]] = [
        [lambda: table.append({"p": [1, 2, 3, 3], "k": [4] * 4, "v": [1, 2, 3, 4]})],
        [lambda: table.update({"v": "v * 3 + 1"}, "k % 2 = 0"), lambda: table.detach_partition(partition())],
        [lambda: table.optimize(final=True), lambda: table.detach_part(part())],
        [lambda: table.attach_partition(every=True)],
        [lambda: table.overwrite({"p": [2], "k": [5], "v": [-5]}, "p = 2")],
        [lambda: table.freeze(), lambda: table.drop_partition(partition())],
        [lambda: table.detach_part(part()), lambda: table.attach_partition(every=True)],
        [lambda: table.delete("k = 4"), lambda: table.overwrite({"p": [1, 3], "k": [6, 6], "v": [6, 6]}, dynamic=True)],
    ]
    most = Counter(table.scan())
    for number, commands in enumerate(steps):
        for command in commands:
            command()
            most |= Counter(table.scan())
        table.publish()
        wanted = Counter(table.scan())
        found = seen()
        assert found <= most, (number, found - most)
        refresh(oracle, "default.followed")
        assert seen() == wanted, number
    oracle.query("DROP TABLE default.followed")


def test_a_partition_that_gets_other_rows_changes_in_one_instant(
    oracle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(6)
    served = Served(oracle, str(tmp_path), "overwritten")
    table, other = served.table, served.db.create_table("other", served.table.schema)
    for number in range(8):
        served.insert(200, random, 1 + number % 2)
    start = table.version
    other.append(served.block(300, random, 1))

    def drop_and_insert() -> None:
        table.drop_partition(2)
        served.insert(100, random, 2)

    def both() -> pa.Table:
        return pa.concat_tables([served.block(150, random, 1), served.block(150, random, 2)])

    steps: list[Callable[[], object]] = [
        lambda: table.overwrite(both(), dynamic=True),
        lambda: table.replace_partition(1, source=other),
        drop_and_insert,
        lambda: (table.rollback(start), table.optimize(final=True)),
        lambda: (served.insert(50, random, 1), table.overwrite(served.block(99, random, 2))),
        lambda: (table.overwrite(both()), table.update({"v": "v + 1"}, "1")),
    ]
    table.publish()
    served.attach()
    served.wait(served.learn())

    def name(*given: Any) -> None:  # the server looks after each request
        put(*given)
        served.refresh()

    put = publishing._name
    monkeypatch.setattr(publishing, "_name", name)
    with served.reading():
        for step in steps:
            step()
            now = served.learn()
            table.publish(grace_seconds=3.0)
            assert served.theirs() == now
    served.check(lambda group: group[1] == 0)
    # Of several parts some may be missed for a moment: old and new rows are never seen together.
    served.reads.clear()
    with served.reading():
        for _ in range(3):
            table.overwrite(served.block(150, random, 1), dynamic=True)
            for _ in range(6):
                served.insert(150, random, 1)
            served.learn()
            table.publish(grace_seconds=3.0)
    for seen in served.reads:
        inserts = {group: rows for group, rows in seen.items() if group[1]}
        assert any(inserts.items() <= state.items() for state in served.history[-4:]), seen
    served.drop()
