"""SimpleAggregateFunction columns of AggregatingMergeTree and SummingMergeTree: all functions, random rows."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from mergelake.api.sql.database import connect
from mergelake.core.base.errors import MergelakeError
from tests.helpers.attached import attach_at_once
from tests.helpers.mutations.kinds import LITERALS, without_wrappers

pytestmark = pytest.mark.chdb

NUMBERS = {
    "BFloat16": ("0", "1.5", "-2", "nan"),
    "Float32": ("0", "-0.", "1.5", "-2", "nan", "inf", "16777216"),
    "Float64": ("0", "-0.", "1.5", "-2", "nan", "inf", "1e16", "1"),
    "Decimal(38, 2)": ("0", "1.5", "-2.25", "99999999999999999999999999999999"),
    "Decimal(76, 3)": ("0", "1.5", "-2.25"),
    "LowCardinality(UInt64)": ("0", "1", "2", "18446744073709551615"),
    "LowCardinality(Nullable(Int64))": ("NULL", "1", "-2"),
    "Nullable(Float64)": ("NULL", "0", "1.5", "nan"),
    "Nullable(Decimal(38, 2))": ("NULL", "1.5", "-2.25"),
    "Nullable(Int64)": ("NULL", "0", "5", "-5", "9223372036854775807"),
    "Nullable(UInt8)": ("NULL", "0", "5", "255"),
    "Nullable(UInt256)": ("NULL", "7", "12"),
}
OTHERS = {
    "IPv6": ("'::1'", "'ff::'", "'::'"),
    "LowCardinality(Nullable(Int16))": ("NULL", "-3", "3"),
    "Array(Nullable(Int8))": ("[]", "[NULL]", "[1, NULL]"),
    "Array(Float64)": ("[]", "[0., -0.]", "[nan, 1]", "[nan]"),
    "Array(UUID)": ("[]", "['61f0c404-5cb3-11e7-907b-a6006ad3dba0']"),
    "Array(Tuple(UInt8, Nullable(String)))": ("[]", "[(1, NULL)]", "[(1, 'a'), (1, NULL)]"),
    "Array(Int128)": ("[]", "[1, -1]", "[1, 1]"),
    "Array(FixedString(2))": ("[]", "['a', 'b']", "['a']"),
    "Variant(String, UInt8)": ("NULL", "1", "'a'"),
}
VALUES = {**LITERALS, **NUMBERS, **OTHERS}
NO_MERGES = "max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1"
"""Of ClickHouse, but by OPTIMIZE."""
NESTED = ("Array", "Map", "Tuple", "Variant")


def _functions(kind: str) -> list[str]:
    """The functions that both sides take of a type."""
    plain = without_wrappers(kind)
    found = ["any_respect_nulls", "anyLast_respect_nulls", "any", "anyLast"]
    integer = re.fullmatch(r"U?Int\d+", plain) is not None
    if not plain.startswith(NESTED) or plain in (
        "Array(Int32)",
        "Array(String)",
        "Tuple(UInt8, String)",
        "Array(UUID)",
    ):
        found += ["min", "max"]
    if integer or plain == "Bool":
        found += ["groupBitAnd", "groupBitOr", "groupBitXor"]
    if integer or plain.startswith(("Float", "Decimal")):
        found += ["sumWithOverflow"]
    if re.fullmatch(r"U?Int(64|128|256)|Float64|Decimal\((38|76), \d\)", plain):
        found += ["sum"]
    if plain.startswith("Array") and "(Nullable" not in plain.removeprefix("Array(Tuple"):
        found += ["groupArrayArray", "groupUniqArrayArray"]
    return found


PAIRS = [(function, kind) for kind in VALUES if "LowCardinality" not in kind[1:] for function in _functions(kind)]
COLUMNS = {f"c{at}": pair for at, pair in enumerate(PAIRS)}


def _table(engine: str, names: list[str], more: str = "", settings: str = "") -> str:
    columns = ", ".join(f"{name} SimpleAggregateFunction({COLUMNS[name][0]}, {COLUMNS[name][1]})" for name in names)
    given = f" SETTINGS {settings}" if settings else ""
    return f"CREATE TABLE {{}} (k UInt8, p UInt8, {more}{columns}) ENGINE = {engine} PARTITION BY p ORDER BY k{given}"


def _rows(rng: random.Random, names: list[str], more: int = 0) -> str:
    rows = []
    for _ in range(rng.choice((1, 4, 12))):
        cells = [str(rng.randrange(5)), str(rng.randrange(2)), *(str(rng.choice((-1, 0, 1))) for _ in range(more))]
        cells += [rng.choice(VALUES[COLUMNS[name][1]]) for name in names]
        rows.append(f"({', '.join(cells)})")
    return ", ".join(rows)


def _query(names: list[str], final: str, more: tuple[str, ...] = ()) -> str:
    shown = []
    for name in names:
        function, kind = COLUMNS[name]
        if function.startswith("groupUniq"):  # in ClickHouse in any order; here in that of the rows
            name = f"arraySort(arrayMap(e -> toString(e), {name}))"
        shown.append(f"toString({name})" if kind.startswith("Variant") else name)
    return f"SELECT k, p, {', '.join([*more, *shown])} FROM {{}}{final} ORDER BY ALL"


@pytest.mark.parametrize(
    ("engine", "number"),
    [*(("AggregatingMergeTree", at) for at in range(6)), *(("SummingMergeTree", at) for at in (0, 3))],
)
def test_functions_combine_as_in_clickhouse(engine: str, number: int, oracle: Any, tmp_path: Path) -> None:
    rng = random.Random(f"{engine} {number}")
    names = [name for at, name in enumerate(COLUMNS) if at % 6 == number]
    on_insert, more = number % 2, "a Int8, n Nullable(Int64), " if engine.startswith("Summing") else ""
    added = ("a", "n") if more else ()
    db, theirs = connect(str(tmp_path)), f"default.aggregating_{number}"
    settings = f"optimize_on_insert = {on_insert}, merge_max_chunk_bytes = {rng.choice((1000, 1 << 20))}"
    db.sql(_table(engine, names, more, settings).format("t"))
    oracle.query(f"DROP TABLE IF EXISTS {theirs}")
    oracle.query("SET allow_suspicious_low_cardinality_types = 1")
    oracle.query(_table(engine, names, more).format(theirs))
    oracle.query(f"SYSTEM STOP MERGES {theirs}")
    try:
        for _ in range(4):
            rows = _rows(rng, names, len(added))
            db.sql(f"INSERT INTO t VALUES {rows}")
            oracle.query(f"INSERT INTO {theirs} SETTINGS optimize_on_insert = {on_insert} VALUES {rows}")
        expected = str(oracle.query(_query(names, " FINAL", added).format(theirs), "TSV"))
        assert db.sql(_query(names, " FINAL", added).format("t")).text("TSV") == expected
        stored = _query(names, "", added)
        if on_insert:
            assert db.sql(stored.format("t")).text("TSV") == str(oracle.query(stored.format(theirs), "TSV"))
        assert sum(1 for _ in db.table("t").scan(final=True)) == expected.count("\n")
        oracle.query(f"SYSTEM START MERGES {theirs}")
        for _ in range(2):
            oracle.query(f"OPTIMIZE TABLE {theirs} FINAL")
            db.sql("OPTIMIZE TABLE t FINAL")
            assert db.sql(stored.format("t")).text("TSV") == str(oracle.query(stored.format(theirs), "TSV"))
            rows = _rows(rng, names, len(added))
            db.sql(f"INSERT INTO t VALUES {rows}")
            oracle.query(f"INSERT INTO {theirs} SETTINGS optimize_on_insert = {on_insert} VALUES {rows}")
    finally:
        oracle.query(f"DROP TABLE {theirs}")


TYPES = "k UInt8, d UInt8, e Date, v SimpleAggregateFunction(max, UInt64)"
DEFINITIONS = [
    f"({TYPES}) ENGINE = AggregatingMergeTree ORDER BY k",
    f"({TYPES}) ENGINE = AggregatingMergeTree PARTITION BY e ORDER BY (k, d + 1)",
    f"({TYPES}) ENGINE = AggregatingMergeTree PARTITION BY (toYYYYMM(e), d) ORDER BY k",
    f"({TYPES}) ENGINE = AggregatingMergeTree ORDER BY k SETTINGS allow_dimensions_outside_sorting_key = 1",
    f"({TYPES}) ENGINE = AggregatingMergeTree ORDER BY (k, d, e) PRIMARY KEY k",
    f"({TYPES}) ENGINE = AggregatingMergeTree(v) ORDER BY (k, d, e)",
    f"({TYPES}) ENGINE = AggregatingMergeTree ORDER BY (k, d, e, v)",
    f"({TYPES}) ENGINE = SummingMergeTree ORDER BY k",
    f"({TYPES}) ENGINE = SummingMergeTree((d, v)) ORDER BY k",
    f"({TYPES}) ENGINE = SummingMergeTree(v) PARTITION BY v ORDER BY k",
    f"({TYPES}, m UInt8 MATERIALIZED k) ENGINE = AggregatingMergeTree ORDER BY (k, d, e)",
    f"({TYPES}, m UInt8 ALIAS k) ENGINE = AggregatingMergeTree ORDER BY (k, d, e)",
    f"({TYPES}, m UInt8 DEFAULT k) ENGINE = AggregatingMergeTree ORDER BY (k, d, e)",
    "(k UInt8, d UInt8) ENGINE = AggregatingMergeTree ORDER BY k",
    "(k UInt8, d Array(SimpleAggregateFunction(max, UInt8))) ENGINE = AggregatingMergeTree ORDER BY k",
    f"({TYPES}) ENGINE = AggregatingMergeTree ORDER BY tuple()",
    "(v SimpleAggregateFunction(max, UInt8)) ENGINE = AggregatingMergeTree ORDER BY tuple()",
]
BAD_COLUMNS = [
    ("sum", "UInt8"), ("sum", "Float32"), ("sum", "Decimal(9, 2)"), ("sum", "Bool"), ("sum", "String"), ("sum", "Date"),
    ("sum", "Nullable(Int8)"), ("sum", "BFloat16"), ("sum", "Enum8('a' = 1)"), ("sumWithOverflow", "DateTime"),
    ("sumWithOverflow", "Enum8('a' = 1)"), ("groupBitOr", "Float64"), ("groupBitAnd", "Date"),
    ("groupArrayArray", "UInt8"), ("groupArrayArray", "Array(Nullable(String))"),
    ("any", "Array(LowCardinality(String))"),
    ("groupUniqArrayArray", "Map(UInt8, UInt8)"), ("groupUniqArrayArray", "Array(Nullable(UInt8))"),
    ("min", "Variant(UInt8, String)"), ("max", "Dynamic"), ("max", "Array(LowCardinality(String))"),
]  # fmt: skip
DEFINITIONS += [
    f"(k UInt8, v SimpleAggregateFunction({function}, {kind})) ENGINE = {engine} ORDER BY k"
    for function, kind in BAD_COLUMNS
    for engine in ("AggregatingMergeTree", "SummingMergeTree")
]


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_definitions_are_refused_with_the_code_of_clickhouse(definition: str, oracle: Any) -> None:
    ours = theirs = 0
    oracle.query("DROP TABLE IF EXISTS default.defined")
    try:
        oracle.query(f"CREATE TABLE default.defined {definition}")
    except RuntimeError as refused:
        theirs = int(re.findall(r"Code: (\d+)", str(refused))[0])
    try:
        connect(f"memory://defined{random.random()}").sql(f"CREATE TABLE defined {definition}")
    except MergelakeError as problem:
        ours = problem.code
    oracle.query("DROP TABLE IF EXISTS default.defined")
    assert ours == theirs


@pytest.mark.parametrize("engine", ["AggregatingMergeTree", "SummingMergeTree"])
def test_a_published_table_answers_final_as_it_does_here(engine: str, oracle: Any, tmp_path: Path) -> None:
    rng, published = random.Random(engine), f"default.published_{engine.lower()}"
    wanted = [("sum", "Nullable(Int64)"), ("anyLast", "Nullable(String)"), ("max", "LowCardinality(String)"),
              ("groupBitXor", "UInt32"), ("groupArrayArray", "Array(String)"), ("min", "Decimal(18, 4)")]  # fmt: skip
    names = [next(name for name, pair in COLUMNS.items() if pair == given) for given in wanted]
    db = connect(str(tmp_path))
    db.sql(_table(engine, names, "a Int8, ", "allow_dimensions_outside_sorting_key = 1").format("t"))
    for step in range(5):
        db.sql(f"INSERT INTO t VALUES {_rows(rng, names, 1)}")
        if step == 2:
            db.sql("OPTIMIZE TABLE t PARTITION 0 FINAL")
        if step == 3:
            db.sql(f"ALTER TABLE t UPDATE {names[0]} = 7, a = 3 WHERE k > 2, DELETE WHERE k = 1 AND {names[1]} = 'a'")
    table = db.table("t")
    table.publish()
    oracle.query(f"DROP TABLE IF EXISTS {published}")
    oracle.query(table.attach_statement(published))
    try:
        for final in ("", " FINAL"):
            query = _query(names, final, ("a",))
            assert str(oracle.query(query.format(published), "TSV")) == db.sql(query.format("t")).text("TSV")
        db.sql("OPTIMIZE TABLE t FINAL")
        if engine == "AggregatingMergeTree":  # FINAL across partitions is more than merging
            query = f"SELECT k, sum({names[0]}) FROM {{}} GROUP BY k ORDER BY k"
            assert str(oracle.query(query.format(published), "TSV")) == db.sql(query.format("t")).text("TSV")
    finally:
        oracle.query(f"DROP TABLE {published}")


@pytest.mark.parametrize("engine", ["AggregatingMergeTree", "CoalescingMergeTree"])
def test_mutations_come_before_final_where_parts_are_attached(engine: str, oracle: Any, tmp_path: Path) -> None:
    number = "SimpleAggregateFunction(max, Nullable(UInt8))" if engine.startswith("Agg") else "Nullable(UInt8)"
    create = f"CREATE TABLE {{}} (k UInt8, v {number}) ENGINE = {engine} ORDER BY k"
    db, theirs = connect(str(tmp_path)), "default.before_final"
    db.sql(create.format("t"))
    oracle.query(f"DROP TABLE IF EXISTS {theirs}")
    oracle.query(f"{create.format(theirs)} SETTINGS {NO_MERGES}")
    with pytest.MonkeyPatch.context() as patch:
        attach_at_once(patch)
        for statement in ("VALUES (1, 3), (2, 5), (3, 1)", "VALUES (1, 1), (2, 4), (3, NULL)"):
            db.sql(f"INSERT INTO t {statement}")
            oracle.query(f"INSERT INTO {theirs} {statement}")
        for command in ("UPDATE v = v + 10 WHERE v = 1 OR v = 4", "DELETE WHERE v = 14"):
            db.sql(f"ALTER TABLE t {command}")
            oracle.query(f"ALTER TABLE {theirs} {command} SETTINGS mutations_sync = 2")
        oracle.query(f"OPTIMIZE TABLE {theirs} FINAL")
        expected = str(oracle.query(f"SELECT * FROM {theirs} ORDER BY k", "TSV"))
        for _ in range(2):
            assert db.sql("SELECT * FROM t FINAL ORDER BY k").text("TSV") == expected
    oracle.query(f"DROP TABLE {theirs}")
