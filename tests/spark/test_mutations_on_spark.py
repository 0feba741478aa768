"""Mutations through Spark's doors: reads see them at once, and tasks write them down."""

from __future__ import annotations

import pytest

import mergelake as ml

PARTS = 6


@pytest.fixture
def table(tmp_path, spark):
    db = ml.connect(str(tmp_path), spark=spark)
    db.sql(
        "CREATE TABLE t (k Int64, s String, n Nullable(Int32)) ENGINE = MergeTree PARTITION BY k % 2 ORDER BY k "
        "SETTINGS min_bytes_for_wide_part = 0"
    )
    table = db.table("t")
    for part in range(PARTS):
        rows = range(part * 100, part * 100 + 100)
        table.append({"k": list(rows), "s": [f"s{k % 7}" for k in rows], "n": [k if k % 3 else None for k in rows]})
    return table


def rows_after() -> list[tuple[int, str, int | None]]:
    """The rows after the statements of `mutate`."""
    rows = [(k, f"s{k % 7}", k if k % 3 else None) for k in range(PARTS * 100)]
    rows = [(k, s + "!", None if n is None else n + 1) if s == "s3" else (k, s, n) for k, s, n in rows]
    return sorted(row for row in rows if not (row[2] is not None and row[2] % 10 == 0))


def mutate(table) -> None:
    table.update({"s": "concat(s, '!')", "n": "n + 1"}, where="s = 's3'")
    table.delete(where="n % 10 = 0")


def content(frame) -> list[tuple]:
    return sorted(tuple(row) for row in frame.collect())


def test_every_read_of_spark_sees_a_pending_mutation(table, spark):
    mutate(table)
    read = spark.read.format("mergelake")
    want = rows_after()
    assert content(table.scan().spark()) == want
    assert content(read.load(table.path)) == want
    assert read.load(table.path).count() == len(want)
    changed = read.load(table.path).where("s = 's3!'").select("k")
    assert content(changed) == sorted((k,) for k, s, _ in want if s == "s3!")
    before = read.option("version", table.handle.log.state.version - 2).load(table.path)
    assert before.count() == PARTS * 100
    db = ml.connect(table.path.rsplit("/", 1)[0], spark=spark)
    grouped = db.sql("SELECT s, count(), sum(n) FROM t GROUP BY s ORDER BY s SETTINGS executor = 'spark'").rows()
    assert grouped == [
        (s, sum(1 for row in want if row[1] == s), sum(n or 0 for _, each, n in want if each == s))
        for s in sorted({s for _, s, _ in want})
    ]


def test_tasks_write_mutations_down(table):
    mutate(table)
    parts = [part.name for part in table.handle.log.state.parts()]
    table.apply_mutations()
    assert all(mutation.finished_ms for mutation in table.handle.log.state.mutations)
    assert len(table.handle.log.state.mutations) == 2
    assert not set(parts) & {part.name for part in table.handle.log.state.parts()}
    assert content(table.scan().spark()) == rows_after()


def test_a_failing_row_is_told_from_a_task(table):
    table.update({"n": "intDiv(k, k - 250)"}, where="1")
    with pytest.raises(ml.MergelakeError, match="ILLEGAL_DIVISION"):
        table.apply_mutations()
    failed = [m.failure for m in table.handle.refresh().mutations]
    assert [(failure.part, failure.code) for failure in failed if failure] == [("0_5_5_0", "ILLEGAL_DIVISION")]
    lagging = [p.name for p in table.handle.log.state.parts() if not p.info.mutation]
    assert lagging == ["0_5_5_0"]
