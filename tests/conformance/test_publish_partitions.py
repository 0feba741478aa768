"""A stock ClickHouse that has attached a published table follows commands on partitions: after each publish it shows
the rows of the table, and meanwhile no row that was not there, or more often than it was.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mergelake as ml

WAIT_S = 60.0


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
        wanted, until = Counter(table.scan()), time.monotonic() + WAIT_S
        while (found := seen()) != wanted:
            assert found <= most, (number, found - most)
            assert time.monotonic() < until, (number, found, wanted)
            time.sleep(0.1)
    oracle.query("DROP TABLE default.followed")
