# ruff: noqa: E501  (tables read best with one idea a line)
"""CONSTRAINTs and EPHEMERAL columns of new tables: taken, refused and enforced where ClickHouse does."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import TableSchema
from tests.helpers.refusals import held, refused

pytestmark = pytest.mark.chdb

COLUMNS = {
    "k": "Int64", "n": "Nullable(Int32)", "u": "UInt8", "s": "String", "l": "LowCardinality(Nullable(String))", "d": "Decimal(9, 2)",
    "b": "Bool", "t": "DateTime", "a": "Array(UInt8)", "f": "Float64",
}  # fmt: skip
CHECKS = [
    "k > 0", "k % 3 != 1", "n < 10", "n IS NULL OR n < 10", "u", "u < 250", "b", "NOT b", "s != ''", "length(s) < 4", "l = 'a'", "ifNull(l, 'a') IN ('a', 'b')",
    "d >= 0", "f < 100", "k", "s", "n", "1", "0", "NULL", "m > 3", "al > 0", "e > 0", "nobody = 1", "has(a, 1)", "length(a) <= 2", "t < now()", "t > '1971-01-01'",
    "k IN (1, 2, 3, 4, 5)", "rand() >= 0", "toUInt8(k)", "u = 1 AND k = 2",
]  # fmt: skip
OWN = ["m Int64 MATERIALIZED k + 2", "al Int64 ALIAS k + 1", "e UInt8 EPHEMERAL", "w UInt16 DEFAULT e * 2"]


def code_of(run: Callable[[str], Any], statement: str) -> int:
    """The code of a refusal, 0 where there is none."""
    try:
        run(statement)
    except MergelakeError as problem:
        return problem.code
    except RuntimeError as problem:
        found = re.search(r"Code: (\d+)", str(problem))
        return int(found.group(1)) if found else -1
    return 0


def cell(draw: random.Random, kind: str) -> str:
    """A literal of a column's type."""
    if kind.startswith(("Nullable", "LowCardinality")) and draw.random() < 0.2:
        return "NULL"
    if "String" in kind:
        return repr(draw.choice(["", "a", "b", "abcd"]))
    if kind == "Bool":
        return draw.choice(["true", "false"])
    if kind == "DateTime":
        return repr(draw.choice(["1970-01-01 00:00:00", "2020-05-05 01:02:03", "2100-01-01 00:00:00"]))
    if kind.startswith("Array"):
        return str([draw.randint(0, 2) for _ in range(draw.randint(0, 3))])
    return str(draw.choice([0, 1, 1, 2, 3, 5, 200] + ([-3] if kind[0] in "IFD" else [])))


@pytest.fixture
def both(oracle: Any, tmp_path: Path) -> Iterator[tuple[ml.Database, Any]]:
    with ml.connect(str(tmp_path)) as db:
        yield db, oracle
    oracle.query("DROP TABLE IF EXISTS checked")


def test_random_constraints_hold_for_random_rows_as_in_clickhouse(both: tuple[ml.Database, Any]) -> None:
    db, oracle = both
    draw = random.Random(7)
    outcomes: set[int] = set()
    for _ in range(60):
        oracle.query("DROP TABLE IF EXISTS checked")
        db.sql("DROP TABLE IF EXISTS checked")
        names = draw.sample(list(COLUMNS), 4)
        columns = [f"{name} {COLUMNS[name]}" for name in names if name != "k"]
        kinds = draw.choices(["CHECK", "CHECK", "ASSUME"], k=2)
        texts = [f"CONSTRAINT c{at} {kind} {draw.choice(CHECKS)}" for at, kind in enumerate(kinds)]
        create = f"CREATE TABLE checked (k Int64, {', '.join([*columns, *OWN, *texts])}) ENGINE = MergeTree ORDER BY k PARTITION BY k % 2"
        expected = code_of(oracle.query, create)
        assert code_of(db.sql, create) == expected, create
        outcomes.add(expected)
        if expected:
            continue
        given = ["k", *(name for name in names if name != "k")]
        for _ in range(6):
            rows = ", ".join(
                f"({', '.join(cell(draw, COLUMNS[name]) for name in given)})" for _ in range(draw.randint(1, 3))
            )
            insert = f"INSERT INTO checked ({', '.join(given)}) VALUES {rows}"
            expected = code_of(oracle.query, insert)
            assert code_of(db.sql, insert) == expected, (create, insert)
            outcomes.add(expected)
        asked = f"SELECT toString(tuple({', '.join(given)}, w, m)) AS r FROM checked ORDER BY r"
        assert [r for (r,) in db.sql(asked).rows()] == str(oracle.query(asked, "TSVRaw")).splitlines(), create
    assert outcomes == {0, 1, 47, 469}


def test_every_door_checks_before_anything_is_written(tmp_path: Path) -> None:
    with ml.connect(str(tmp_path / "w"), allow_external_access=True) as db:
        db.sql(
            "CREATE TABLE t (k Int64, v Nullable(Int32), s String, CONSTRAINT c CHECK k > 0, CONSTRAINT `a b` CHECK v < 10) ENGINE = MergeTree ORDER BY k PARTITION BY k % 3"
        )
        db.sql("INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')")
        table, version = db.table("t"), db.table("t").refresh()
        (tmp_path / "x.csv").write_text("5,5,x\n-1,5,y\n")
        says = ("Constraint `c` is violated", "Expression: (k > 0)", "Column values: k = -1")
        for statement in (
            "INSERT INTO t VALUES (5, 5, 'x'), (-1, 5, 'y')", 'INSERT INTO t FORMAT JSONEachRow {"k": -1, "v": 2}', "INSERT INTO t SELECT number - 1, 1, 'a' FROM numbers(2)",
            f"INSERT INTO t FROM INFILE '{tmp_path}/x.csv' FORMAT CSV", "INSERT INTO t FORMAT TSV -1\t1\ta\n",
        ):  # fmt: skip
            with refused(db, "VIOLATED_CONSTRAINT", *says):
                db.sql(statement)
        for data in ({"k": [5, -1], "v": [1, 1]}, pa.table({"k": [-1], "v": [1]})):
            with refused(db, "VIOLATED_CONSTRAINT", *says):
                table.append(data)
            with refused(db, "VIOLATED_CONSTRAINT", *says):
                table.merge(data, on="k")
        with refused(db, "VIOLATED_CONSTRAINT", "`a b`", "null value"):
            table.append({"k": [1], "v": [None]})
        with refused(db, "VIOLATED_CONSTRAINT", "at row 1"):
            table.merge({"k": [1], "v": [11]}, on="k", when_matched="update")
        assert table.refresh() == version
        table.modify_settings({"max_insert_block_size": 3, "max_bytes_to_share_object": 0})
        before = held(db)
        with pytest.raises(MergelakeError, match="at row 3"):  # of the third block: parts that were written go
            table.append({"k": [*range(1, 9), -1], "v": [1] * 9})
        assert table.refresh() == version + 1
        assert held(db) == before
        table.update({"v": "50"}, where="k = 1")  # as in ClickHouse, mutations do not check
        assert sorted(db.sql("SELECT k, v FROM t").rows()) == [(1, 50), (2, 2)]
        copied = TableSchema.from_json(table.schema.to_json())
        assert copied == table.schema
        assert "constraints" not in db.create_table("plain", {"k": [1]}, order_by="k").schema.to_json()
        text = db.sql("SHOW CREATE TABLE t").scalar()
        assert "    CONSTRAINT c CHECK k > 0,\n    CONSTRAINT `a b` CHECK v < 10\n)" in text
        db.sql(text.replace("default.t\n", "default.again\n"))
        assert db.table("again").schema.constraints == table.schema.constraints
        db.sql("CREATE TABLE b CLONE AS t")
        with refused(db, "VIOLATED_CONSTRAINT"):
            db.sql("INSERT INTO b VALUES (-1, 1, '')")


EPHEMERAL = [
    "(k UInt8, e UInt8 EPHEMERAL, e2 String EPHEMERAL 'abc', d1 UInt16 DEFAULT e * 2, d2 String DEFAULT concat(e2, 'x'), m UInt16 MATERIALIZED e + 1)",
    "(k UInt8, e UInt8 EPHEMERAL k + 1, e2 EPHEMERAL 'q', d1 UInt16 DEFAULT e, d2 String DEFAULT e2, m UInt16 MATERIALIZED d1 + e)",
    "(e Nullable(Int16) EPHEMERAL, k UInt8 DEFAULT ifNull(e, 7), e2 LowCardinality(String) EPHEMERAL 'z', d1 UInt16 DEFAULT k, d2 String DEFAULT toString(e2), m UInt16 MATERIALIZED ifNull(e, 3))",
    "(k UInt8, e UInt8 EPHEMERAL, e2 String EPHEMERAL 5, d1 UInt16 DEFAULT length(e2), d2 String DEFAULT 'q', m UInt16 MATERIALIZED e, INDEX i e TYPE minmax)",
    "(k UInt8, e UInt8 EPHEMERAL, e2 FixedString(2) EPHEMERAL 'abcd', d1 UInt8, d2 UInt8, m UInt8)",
    "(e UInt8 EPHEMERAL)", "(k UInt8 MATERIALIZED e, e UInt8 EPHEMERAL)", "(k UInt8, e EPHEMERAL)", "(k UInt8, e UInt8 EPHEMERAL k2)",
]  # fmt: skip
INSERTS = [
    "(k) VALUES (1)", "(k, e) VALUES (2, 7), (3, 8)", "(k, e2) VALUES (3, 'qq')", "(k, e, d1) VALUES (4, 7, 9)", "(k, e, d1) VALUES (5, 7, DEFAULT), (6, 8, 1)", "VALUES (6, 1, 'w')",
    "(e) VALUES (6)", "(*) VALUES (6, 1, 'w')", "(k, e) SELECT 8, 9", "SELECT 8, 9, 'a'", '(k, e) FORMAT JSONEachRow {"k": 20, "e": 3}', "(e, k) FORMAT CSV 1,2\n", "(m) VALUES (1)",
    "(k, e) VALUES (1, 300 - 299)", "(* EXCEPT(e)) VALUES (1, 2, 'a')", "(k, e, e2, d2) VALUES (9, 1, 'x', DEFAULT)", "(k, e) VALUES (7, DEFAULT)",
]  # fmt: skip
READS = [
    "SELECT k, d1, d2, m FROM checked ORDER BY ALL", "SELECT * FROM checked ORDER BY ALL", "SELECT k FROM checked WHERE d1 > 3 ORDER BY k",
    "SELECT name, type, default_kind FROM system.columns WHERE table = 'checked' AND database = currentDatabase() ORDER BY position", "DESCRIBE TABLE checked",
]  # fmt: skip


def test_ephemeral_columns_are_given_and_never_stored_as_in_clickhouse(both: tuple[ml.Database, Any]) -> None:
    db, oracle = both
    for columns in EPHEMERAL:
        oracle.query("DROP TABLE IF EXISTS checked")
        db.sql("DROP TABLE IF EXISTS checked")
        order = "tuple()" if "k UInt8" not in columns else "k"
        create = f"CREATE TABLE checked {columns} ENGINE = MergeTree ORDER BY {order}"
        expected = code_of(oracle.query, create)
        assert code_of(db.sql, create) == expected, create
        if expected:
            continue
        for insert in INSERTS if "e2" in columns else ["(k) VALUES (1)", "(e) VALUES (3)"]:
            statement = f"INSERT INTO checked {insert}"
            assert code_of(db.sql, statement) == code_of(oracle.query, statement), (create, statement)
        for update in ("UPDATE e = 5 WHERE 1", "UPDATE d2 = 'new' WHERE k = 6", "UPDATE d1 = 100 WHERE k < 4"):
            statement = f"ALTER TABLE checked {update}"
            expected = code_of(oracle.query, f"{statement} SETTINGS mutations_sync = 1")
            assert code_of(db.sql, statement) == expected, statement
        for read in READS if "m UInt16" in columns else []:
            mine = "\n".join("\t".join(map(str, row)) for row in db.sql(read).rows())
            assert mine == str(oracle.query(read, "TSVRaw")).rstrip("\n").replace("\t\t\t\n", "\t\t\t\n"), (
                create,
                read,
            )
        db.sql("OPTIMIZE TABLE checked FINAL")
        stored = {column.id for column in db.table("checked").schema.stored}
        assert {c for part in db.table("checked").handle.log.state.parts() for c in part.manifest.columns} == stored


def test_nothing_reads_an_ephemeral_column(tmp_path: Path) -> None:
    with ml.connect(str(tmp_path)) as db:
        db.sql(
            "CREATE TABLE t (k UInt8, v UInt8, e UInt8 EPHEMERAL 3, m UInt16 MATERIALIZED v + e, n UInt16 MATERIALIZED v + 1) ENGINE = MergeTree ORDER BY k"
        )
        table = db.table("t")
        table.append({"k": [1, 2], "v": [1, 1], "e": [1, 9]})
        table.append({"k": [3], "v": [1]})
        with pytest.raises(MergelakeError, match="e"):
            db.sql("SELECT e FROM t")
        for read in (lambda: table.scan(["e"]).arrow(), lambda: table.scan(where="e = 1").arrow()):
            with pytest.raises(MergelakeError) as caught:
                read()
            assert caught.value.name in ("NO_SUCH_COLUMN_IN_TABLE", "UNKNOWN_IDENTIFIER")
        for change in (lambda: table.update({"v": "e"}, "1"), lambda: table.update({"v": "1"}, "e = 1"), lambda: table.delete("e = 1"), lambda: table.update({"e": "1"}, "1")):  # fmt: skip
            with refused(db, "NO_SUCH_COLUMN_IN_TABLE"):
                change()
        table.update({"v": "5"}, "1")  # as in ClickHouse a column that follows from `e` keeps its value
        expected = [(1, 5, 2, 6), (2, 5, 10, 6), (3, 5, 4, 6)]
        assert sorted(db.sql("SELECT k, v, m, n FROM t").rows()) == expected
        table.apply_mutations()
        assert sorted(table.scan(["k", "v", "m", "n"])) == expected
        with refused(db, "NOT_IMPLEMENTED", "EPHEMERAL"):
            table.merge({"k": [1], "v": [2]}, on="k", when_matched="update")
        table.merge({"k": [1], "v": [2], "e": [100]}, on="k")
        assert sorted(table.scan(["k", "v", "m", "n"])) == [(1, 2, 102, 3), *expected[1:]]
        with refused(db, "NO_SUCH_COLUMN_IN_TABLE", "a reads e"):
            db.sql("CREATE TABLE u (k UInt8, e UInt8 EPHEMERAL, a UInt8 ALIAS e) ENGINE = MergeTree ORDER BY k")


def test_ephemeral_columns_from_python(tmp_path: Path) -> None:
    with ml.connect(str(tmp_path)) as db:
        table = db.create_table("t", {"k": "UInt8"}, order_by="k")
        table.append({"k": [1]})
        table.add_column("e", "Int16", ephemeral="")
        table.add_column("f", "Int16", ephemeral="k + 1")
        table.add_column("d", "Int16", default="e * 10 + f")
        table.append({"k": [2], "e": [3]})
        table.append({"k": [3], "f": [100]})
        expected = [(1, 2), (2, 33), (3, 100)]
        assert list(table.scan(ordered=True)) == sorted(db.sql("SELECT * FROM t").rows()) == expected
        table.optimize(final=True)
        assert list(table.scan(ordered=True)) == expected
        table.modify_column("d", ephemeral="5")
        assert table.scan().arrow().column_names == ["k"]
        with refused(db, "BAD_ARGUMENTS"):
            table.add_column("g", "Int8", default="1", ephemeral="")
        table.add_column("h", "Int8", default="d")
        with refused(db, "ILLEGAL_COLUMN"):
            table.drop_column("d")
