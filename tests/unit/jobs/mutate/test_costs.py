"""What mutations cost: bytes and requests that follow the work, never the size of the table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.api.python.mutating import submit_commands
from mergelake.table.pending.commands import Delete, Update

ROWS = 120_000
COLUMNS = 20


def wide_table(engine: str = "MergeTree", settings: str = "", inserts: int = 1) -> ml.Table:
    """A table of 20 columns whose values do not compress."""
    db = ml.connect("memory://costs")
    columns = ", ".join(f"c{i} UInt64" for i in range(COLUMNS))
    db.sql("DROP TABLE IF EXISTS t")
    wide = f"SETTINGS min_bytes_for_wide_part = 0{settings}"
    db.sql(f"CREATE TABLE t (k UInt64, {columns}) ENGINE = {engine} ORDER BY k {wide}")
    table = db.table("t")
    random = np.random.default_rng(7)
    for at in range(inserts):
        data = {f"c{i}": random.integers(0, 1 << 60, ROWS, dtype=np.uint64) for i in range(COLUMNS)}
        table.append(pa.table({"k": np.arange(at, inserts * ROWS, inserts, dtype=np.uint64), **data}))
    return table


def spent(table: ml.Table, work) -> tuple[int, int, int]:
    """(bytes written, bytes read, PUT requests) of some work."""
    before = table.handle.store.counters
    work()
    after = table.handle.store.counters
    return after.bytes_put - before.bytes_put, after.bytes_get - before.bytes_get, after.put - before.put


@pytest.fixture(scope="module")
def table() -> ml.Table:
    return wide_table()


def test_a_mutation_is_one_small_entry_of_the_log(table):
    for work in (lambda: table.update({"c3": "c3 + 1"}, where="c4 % 100 = 0"), lambda: table.delete(where="k = 7")):
        written, read, puts = spent(table, work)
        assert written < 1_000
        assert (read, puts) == (0, 1)
    assert table.scan(["c3"], "k = 7").arrow().num_rows == 0
    table.apply_mutations()


def test_an_update_writes_the_bytes_of_its_column(table):
    table.apply_mutations()
    part = next(iter(table.handle.log.state.parts())).manifest
    column = sum(file.size for name, file in part.file_table().items() if name.startswith("c5."))
    table.update({"c5": "c6"}, where="c7 % 50 = 0")
    written, read, _ = spent(table, table.apply_mutations)
    assert written < 1.1 * column + 20_000
    assert read < 3.3 * column  # the condition, the old values and the new ones
    assert written < part.bytes_on_disk / 15


@pytest.mark.parametrize(
    ("alter", "column", "most"),
    [
        ("ADD COLUMN d UInt64 DEFAULT c0 + 1", "c5", 1),
        ("ADD COLUMN d UInt64 DEFAULT c5 + 1, ADD COLUMN e UInt64 DEFAULT d + 1", "c5", 3),
        ("ADD COLUMN d UInt64 FIRST", "d", 1),
        ("RENAME COLUMN c6 TO d", "c5", 1),
        ("RENAME COLUMN c5 TO d, RENAME COLUMN c4 TO c5", "c5", 1),
        ("DROP COLUMN c6, ADD COLUMN d UInt64", "c5", 1),
        ("DROP COLUMN c6, RENAME COLUMN c5 TO c6", "c6", 1),
        ("MODIFY COLUMN c6 UInt128", "c5", 3),
    ],
)
def test_so_it_does_after_the_table_was_altered(table, alter, column, most):
    db = ml.connect("memory://costs")
    db.sql("CREATE OR REPLACE TABLE u CLONE AS t")
    altered = db.table("u")
    part = next(iter(altered.handle.log.state.parts())).manifest
    size = sum(file.size for name, file in part.file_table().items() if name.startswith("c5."))
    db.sql(f"ALTER TABLE u {alter}")
    altered.refresh()
    values = f"SELECT {', '.join(altered.scan().arrow().schema.names)} FROM u ORDER BY k LIMIT 50"
    altered.update({column: "c7"}, where="c7 % 50 = 0")
    before = db.sql(values).rows()
    assert spent(altered, altered.apply_mutations)[0] < 1.1 * most * size + 20_000
    assert db.sql(values).rows() == before
    assert altered.check()["is_passed"].to_pylist() == [1]


def test_a_mutation_that_matches_nothing_writes_no_data(table):
    table.apply_mutations()
    objects = {meta.key for meta in table.handle.store.list(table.handle.directory)}
    submit_commands(table, [Delete("c8 = 5")])
    table.delete(where="k > 1000000000")
    table.apply_mutations()
    new = {meta.key for meta in table.handle.store.list(table.handle.directory)} - objects
    assert new
    assert all("/_log/" in key for key in new)
    assert [m.finished_ms > 0 for m in table.handle.log.state.mutations[-2:]] == [True, True]


def test_keys_exclude_what_need_not_be_read(table):
    table.apply_mutations()
    part = next(iter(table.handle.log.state.parts())).manifest
    submit_commands(table, [Delete("k = 100000000")])
    assert spent(table, table.apply_mutations)[1] < 20_000  # no data, not even of the key
    table.delete(where="k = 77777")
    written, read, _ = spent(table, table.apply_mutations)
    assert written < 10_000 + part.marks * 24  # a mask, and its marks
    assert read < part.bytes_on_disk / 20


def test_a_row_of_a_large_part_is_changed_for_less_than_ten_kilobytes(table):
    # M-062: visible with the statement, which writes the entry alone, whatever the size of the part
    assert spent(table, lambda: table.update({"c1": "1"}, where="k = 5"))[0] < 10_000
    assert table.scan(["c1"], "k = 5").arrow()["c1"].to_pylist() == [1]
    table.apply_mutations()


def test_many_mutations_are_one_rewrite_of_a_part():
    # M-046
    table = wide_table(inserts=2)
    for at in range(6):
        table.update({"c0": f"c0 + {at}"}, where=f"c1 % {at + 2} = 0")
    table.delete(where="c2 % 3 = 0")
    before = {part.manifest.id for part in table.handle.log.state.parts()}
    table.apply_mutations()
    after = {part.manifest.id for part in table.handle.log.state.parts()}
    assert len(after) == 2
    assert not before & after
    directories = {meta.key.split("/")[1] for meta in table.handle.store.list(table.handle.directory)} - {"_log"}
    assert len(directories) == 4  # each part was written once more


@pytest.mark.parametrize("engine", ["MergeTree", "ReplacingMergeTree"])
def test_a_merge_with_pending_mutations_costs_no_more_than_the_merge(engine):
    # M-048
    alone = wide_table(engine, inserts=2)
    written, read, _ = spent(alone, lambda: alone.optimize(final=True))
    mutated = wide_table(engine, inserts=2)
    submit_commands(mutated, [Update((("c5", "c5 + 1"), ("c6", "0")), "c5 % 10 = 0")])
    mutated.delete(where="c7 % 100 = 0")
    both_written, both_read, _ = spent(mutated, lambda: mutated.optimize(final=True))
    assert both_written <= 1.1 * written
    assert both_read <= 1.1 * read
    assert all(m.finished_ms for m in mutated.handle.log.state.mutations)


def test_readers_and_nodes_of_other_processes_see_stacked_mutations():
    # M-103, M-047: seen by the next read of any process, before and after they are written down
    table = wide_table()
    table.update({"c0": "1"}, where="k < 1000")
    table.update({"c0": "c0 + 1"}, where="k < 500")
    table.delete(where="c0 = 2 AND k >= 250")
    want = {1: 500, 2: 250}

    def seen(reader: ml.Table) -> dict[int, int]:
        values = reader.scan(["c0"], "c0 < 10").arrow()["c0"].to_pylist()
        return {value: values.count(value) for value in sorted(set(values))}

    reader = ml.Warehouse(table.handle.store).table("t")
    assert seen(reader) == seen(table) == want
    table.apply_mutations()
    assert seen(reader) == seen(table) == want
