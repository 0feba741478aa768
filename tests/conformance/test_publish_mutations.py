"""A stock ClickHouse serves a table that is mutated: old rows or new ones, and new ones once `publish` has returned.

While mutations are pending it shows the version before them. When they are published it takes the parts in one by one:
the rows of one part are those of one version at any moment, and so are those of a partition that was merged.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mergelake.jobs.publish.publish import publish
from tests.helpers.served import Served


def _statement(served: Served, random: np.random.Generator) -> None:
    """A random mutation."""
    table, modulus, rest = served.table, int(random.integers(2, 9)), int(random.integers(0, 9))
    where = f"(k + v) % {modulus} = {rest % modulus}"
    partition = str(random.integers(1, 3)) if random.random() < 0.3 else None
    if random.random() < 0.4:
        where = f"({where}) AND i = {random.integers(1, served.inserts + 1)}"
    match random.integers(0, 4):
        case 0:
            table.delete(f"({where}) AND k > {random.integers(0, 3000)}", partition_id=partition)
        case 1:
            table.update({"v": "v + k", "s": "concat(s, '-')"}, where, partition_id=partition)
        case 2:
            scope = f"IN PARTITION ID '{partition}' " if partition else ""
            served.db.sql(f"ALTER TABLE {served.name} DELETE {scope}WHERE ({where}) AND k < 100")
        case _:
            table.update({"v": f"v * 2 + {rest}"}, where, partition_id=partition)


@pytest.mark.parametrize(("seed", "storage"), [(1, "packed"), (2, "full")])
def test_clickhouse_sees_mutations_only_when_all_of_them_are_in_the_parts(
    oracle: Any, tmp_path: Path, seed: int, storage: str
) -> None:
    random = np.random.default_rng(seed)
    settings = ", min_bytes_for_full_part_storage = 0" if storage == "full" else ""
    served = Served(oracle, str(tmp_path), f"mutated_{storage}", settings=settings)
    for number in range(6):  # large enough for masks and columns by reference, and some small ones
        served.insert(12_000 if number % 2 else 300, random, 1 + number // 3)
    served.table.publish()
    served.attach()
    served.wait(served.learn())
    with served.reading():
        served.table.delete("i = 2 AND k % 7 = 1")
        served.table.publish()
        assert any(part.manifest.masked for part in served.table.handle.log.state.parts())
        served.wait(served.learn())
        for _ in range(5):
            before = served.history[-1]
            for _ in range(random.integers(1, 4)):
                _statement(served, random)
            if random.random() < 0.5:
                served.insert(200, random, 1)
            if random.random() < 0.3:
                served.table.optimize(partition_id="2", final=True)
            held = publish(served.table.handle)
            if held.pending:
                assert (held.added, held.dropped, held.removed) == ((), (), ())
                assert served.theirs() == before
            now = served.learn()
            report = served.table.publish(grace_seconds=3.0)
            assert not report.pending
            served.wait(now)
    served.check(lambda group: group[1] > 0)
    for _ in range(10):
        assert served.theirs() == served.history[-1]
        time.sleep(0.15)
    checked = "SETTINGS check_query_single_value_result = 0"
    lines = str(oracle.query(f"CHECK TABLE default.{served.name} {checked}", "TSV")).splitlines()
    assert [line for line in lines if line.split("\t")[1:] != ["1", ""]] == []
    served.drop()


def test_a_partition_that_is_merged_after_the_statement_changes_in_one_instant(oracle: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    served = Served(oracle, str(tmp_path), "merged_mutated")
    for number in range(20):
        served.insert(200, random, 1 + number % 2)
    served.table.publish()
    served.attach()
    served.wait(served.learn())
    with served.reading():
        for _ in range(4):
            for _ in range(3):
                served.insert(100, random, 1)
            _statement(served, random)
            served.table.optimize(final=True)
            served.table.publish()
            served.wait(served.learn())
    served.check(lambda group: group[1] == 0)
    served.drop()


def test_parts_without_a_row_left_are_served(oracle: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    served = Served(oracle, str(tmp_path), "emptied")
    for rows in (300, 12_000, 12_000, 300):
        served.insert(rows, random, 1)
    served.table.publish()
    served.attach()
    served.wait(served.learn())
    served.table.delete("i IN (1, 2)")
    served.db.sql("ALTER TABLE emptied DELETE WHERE i = 3")
    served.table.publish()
    served.wait(served.learn())
    assert set(served.history[-1]) == {(1, 0), (1, 4)}
    served.table.delete("1")
    served.table.publish()
    served.wait({})
    served.insert(10, random, 1)
    served.table.optimize(final=True)
    served.table.publish()
    served.wait(served.learn())
    served.drop()


def test_a_mutated_table_on_s3_is_served(oracle: Any, s3_url: str, s3_options: dict[str, str]) -> None:
    random = np.random.default_rng(4)
    served = Served(oracle, s3_url, "mutated_on_s3", options=s3_options)
    for number in range(3):
        served.insert(12_000, random, 1 + number % 2)
    served.table.publish()
    served.attach()
    served.wait(served.learn())
    served.table.delete("k % 5 = 0 AND i = 1")
    served.table.update({"v": "v + 1"}, "i = 2")
    served.table.publish()
    served.wait(served.learn())
    assert [part.manifest.masked for part in served.table.handle.log.state.parts()] == [True, False, False]
    assert int(str(oracle.query("SELECT count() FROM default.mutated_on_s3", "TSV"))) == 36_000 - 2_400
    served.drop()
