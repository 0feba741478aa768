"""`append(…, merge_schema=True)` without Spark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.base.errors import ConflictError, MergelakeError
from mergelake.core.types.types import parse_type
from tests.helpers.refusals import refused


@pytest.fixture
def db(tmp_path: Any) -> ml.Database:
    database = ml.connect(str(tmp_path))
    database.sql(
        "CREATE TABLE t (k Int32, v Int32, m Int64 MATERIALIZED v * 2, n Nullable(UInt8), l LowCardinality(String)) "
        "ENGINE = ReplacingMergeTree ORDER BY k PARTITION BY k % 2"
    )
    database.table("t").append({"k": [1, 2], "v": [1, 2]})
    return database


def kinds(table: ml.Table) -> dict[str, str]:
    return {name: str(kind) for name, kind in table.schema.types.items()}


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"k": [3], "w": [1.5], "s": ["x"]}),
        pa.table({"k": [3], "w": [1.5], "s": ["x"]}).to_reader(),
        pa.record_batch({"k": [3], "w": [1.5], "s": ["x"]}),
        pd.DataFrame({"k": [3], "w": [1.5], "s": ["x"]}),
        {"k": [3], "w": [1.5], "s": ["x"]},
        {"k": np.array([3]), "w": np.array([1.5]), "s": ["x"]},
        [{"k": 3, "w": 1.5, "s": "x"}],
    ],
)
def test_every_form_of_data(db: ml.Database, data: Any) -> None:
    table = db.table("t")
    version, before = table.refresh(), db.warehouse.store.counters
    assert table.append(data, merge_schema=True).version == version + 1
    assert (db.warehouse.store.counters - before).put == 2  # the part, and one entry
    assert kinds(table) | {"w": "Nullable(Float64)", "s": "Nullable(String)", "v": "Int32"} == kinds(table)
    assert sorted(table.scan(["k", "w", "s", "m"])) == [(1, None, None, 2), (2, None, None, 4), (3, 1.5, "x", 0)]
    assert table.append({"k": [5], "w": [2.5]}, merge_schema=True).rows == 1
    table.optimize(final=True)
    assert len(list(table.scan())) == 4


def test_only_numbers_of_arrow_data_make_a_column_wider(db: ml.Database) -> None:
    table = db.table("t")
    table.append({"k": [3], "v": [3], "n": [1]}, merge_schema=True)
    table.append(pd.DataFrame({"k": [4], "v": [4]}), merge_schema=True)
    assert kinds(table)["v"] == "Int32"
    wide = {"k": pa.array([5], pa.int64()), "v": pa.array([1 << 40]), "n": pa.array([300], pa.uint16())}
    table.append(pa.table({**wide, "l": ["x"]}), merge_schema=True)
    assert kinds(table) == {
        "k": "Int32", "v": "Int64", "m": "Int64", "n": "Nullable(UInt16)", "l": "LowCardinality(String)",
    }  # fmt: skip
    expected = [(1, 1, 2, None), (2, 2, 4, None), (3, 3, 6, 1), (4, 4, 8, None), (5, 1 << 40, 1 << 41, 300)]
    assert sorted(table.scan(["k", "v", "m", "n"])) == expected
    assert sorted(db.sql("SELECT k, v, m, n FROM t").rows()) == expected


def test_what_does_not_fit_changes_nothing(db: ml.Database) -> None:
    table = db.table("t")
    for data in ({"k": ["x"], "new": [1]}, {"k": [None], "new": [1]}, {"m": [1], "k": [1], "new": [1]}):
        with pytest.raises(MergelakeError):
            table.append(data, merge_schema=True)
    with refused(db, "NO_SUCH_COLUMN_IN_TABLE"):
        table.append({"k": [1], "new": [1]})
    assert (table.version, table.schema.has("new")) == (2, False)
    assert table.append({"k": [1], "new": [1]}, "token", merge_schema=True).rows == 1
    assert table.append({"k": [1], "other": [1]}, "token", merge_schema=True).duplicate
    assert not table.schema.has("other")


def test_two_at_a_time(tmp_path: Any, db: ml.Database) -> None:
    """The same columns are added once; another change in between is a conflict, and nothing is left of the rows."""
    table, other = db.table("t"), ml.connect(str(tmp_path)).table("t")

    def rows(change: Any, columns: dict[str, Any]) -> pa.RecordBatchReader:
        table_data = pa.table(columns)

        def batches() -> Any:
            change()
            yield from table_data.to_batches()

        return pa.RecordBatchReader.from_batches(table_data.schema, batches())

    def same() -> None:
        other.append({"k": [7], "new": ["y"]}, merge_schema=True)

    table.append(rows(same, {"k": [9], "new": ["x"]}), merge_schema=True)
    assert sorted(table.scan(["k", "new"])) == [(1, None), (2, None), (7, "y"), (9, "x")]
    assert [column.name for column in table.schema.columns].count("new") == 1
    with pytest.raises(ConflictError, match="altered meanwhile"):
        table.append(rows(lambda: other.add_column("z", "Int8"), {"k": [9], "more": ["x"]}), merge_schema=True)
    with pytest.raises(ConflictError, match="altered meanwhile"):
        table.overwrite(rows(lambda: other.add_column("y", "Int8"), {"k": [9], "more": ["x"]}), merge_schema=True)
    assert table.refresh() == other.refresh()
    assert not table.schema.has("more")
    assert table.schema.types["new"] == parse_type("Nullable(String)")


@pytest.mark.parametrize("pending", [False, True])
def test_an_overwrite_brings_columns_in_its_entry(db: ml.Database, pending: bool) -> None:
    """Whatever goes: what stays has the new columns' defaults, and mutations that it lacks."""
    table = db.table("t")
    table.append({"k": [3, 4], "v": [3, 4]})
    if pending:
        table.update({"l": "'u'"}, where="k < 4")
    old = {k: (k, k, "u" if pending and k < 4 else "", None, None) for k in (1, 2, 3, 4)}
    version = table.refresh()
    wide = 1 << 40
    with refused(db, "UNKNOWN_IDENTIFIER"):
        table.overwrite({"k": [9], "w": [1.5]}, "w > 1", merge_schema=True)
    with refused(db, "NO_SUCH_COLUMN_IN_TABLE"):
        table.overwrite({"k": [9], "w": [1.5]}, "k = 9")
    with pytest.raises(MergelakeError, match="VIOLATED_CONSTRAINT"):
        table.overwrite({"k": [9], "w": [1.5]}, "k = 1", merge_schema=True)
    assert (table.refresh(), table.schema.has("w")) == (version, False)
    rows = pa.table({"k": [3], "v": [wide], "w": [1.5]})
    table.overwrite(rows, "k IN (1, 3)", merge_schema=True)
    columns = ["k", "v", "l", "w", "z"]
    assert sorted(table.scan(columns[:4])) == [old[2][:4], (3, wide, "", 1.5), old[4][:4]]
    assert db.sql("SELECT k, v, w, m FROM t ORDER BY k").rows() == [
        (2, 2, None, 4), (3, wide, 1.5, 2 * wide), (4, 4, None, 8),
    ]  # fmt: skip
    table.overwrite({"k": [6], "z": ["x"]}, dynamic=True, merge_schema=True)
    assert sorted(table.scan(columns)) == [(3, wide, "", 1.5, None), (6, 0, "", None, "x")]
    table.overwrite({"k": [7], "y": [True]}, merge_schema=True)
    assert sorted(table.scan([*columns, "y"])) == [(7, 0, "", None, None, True)]
    assert table.refresh() == version + 3
    assert sorted(table.scan(["k", "l"], version=version)) == [(k, row[2]) for k, row in old.items()]
    table.optimize(final=True)
    assert all(table.check()["is_passed"].to_pylist())
