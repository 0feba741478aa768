# ruff: noqa: E501  (tables read best with one idea a line)
"""Random ClickHouse expressions over a fixed block, and the same block as a ClickHouse table."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.text_write import quoted_text, to_text
from mergelake.core.types.types import (
    DataType,
    DateTime,
    DateTime64,
    FixedString,
    LowCardinality,
    inner_type,
    parse_type,
)
from mergelake.expr import compile_expression
from mergelake.expr.values import arrow_value, constant_vec, to_arrow

TABLE = "expression_rows"
_RANDOM = np.random.default_rng(7)
ROWS = 24


def _ints(low: int, high: int) -> list[int]:
    edges = [low, high, 0, 1, min(2, high), max(low, -1), high - 1]
    return [
        *edges,
        *(
            _RANDOM.integers(low, high, ROWS - len(edges), endpoint=True, dtype=np.int64).tolist()
            if high < 2**63
            else _RANDOM.integers(low, high, ROWS - len(edges), endpoint=True, dtype=np.uint64).tolist()
        ),
    ]


def _nulls(values: list[Any]) -> list[Any]:
    return [None if i % 4 == 1 else value for i, value in enumerate(values)]


_WORDS = [
    b"",
    b"a",
    b"ab",
    b"abc",
    b"ABC",
    b"a%b",
    b"x_y",
    b"foo bar",
    "é".encode(),
    b"\xff\x00z",
    b"12",
    b"-7",
    b"2020-02-03",
]
_TEXTS = [_WORDS[i % len(_WORDS)] for i in range(ROWS)]
_STAMPS = [
    0,
    1,
    2**32 - 1,
    1582970400,
    1603587600,
    1603591200,
    1616893200,
    *_RANDOM.integers(0, 2**32, ROWS - 7).tolist(),
]
_LATER = [*_STAMPS[2:], 10_000_000, 2**31]  # dateDiff in days differs from ClickHouse on 1969-12-31 local
_FLOATS = [0.0, -0.0, 1.5, -2.5, 1e300, 1e-7, 1e21, float("inf"), float("-inf"), float("nan"), 0.1,
           *_RANDOM.normal(0, 1000, ROWS - 11).round(3).tolist()]  # fmt: skip
_SMALL_FLOATS = [struct.unpack("f", struct.pack("f", value if abs(value) < 1e30 else 3.5))[0] for value in _FLOATS]

COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "i8": ("Int8", _ints(-128, 127)),
    "i16": ("Int16", _ints(-(2**15), 2**15 - 1)),
    "i32": ("Int32", _ints(-(2**31), 2**31 - 1)),
    "i64": ("Int64", _ints(-(2**63), 2**63 - 1)),
    "u8": ("UInt8", _ints(0, 255)),
    "u16": ("UInt16", _ints(0, 2**16 - 1)),
    "u32": ("UInt32", _ints(0, 2**32 - 1)),
    "u64": ("UInt64", _ints(0, 2**64 - 1)),
    "ni": ("Nullable(Int32)", _nulls(_ints(-100, 100))),
    "nu": ("Nullable(UInt64)", _nulls(_ints(0, 2**64 - 1))),
    "f32": ("Float32", _SMALL_FLOATS),
    "f64": ("Float64", _FLOATS),
    "b": ("Bool", [int(i % 3 == 0) for i in range(ROWS)]),
    "nb": ("Nullable(Bool)", _nulls([int(i % 3 == 0) for i in range(ROWS)])),
    "s": ("String", _TEXTS),
    "ns": ("Nullable(String)", _nulls(_TEXTS[::-1])),
    "lc": ("LowCardinality(String)", [_WORDS[i % 5] for i in range(ROWS)]),
    "lcn": ("LowCardinality(Nullable(String))", _nulls([_WORDS[i % 7] for i in range(ROWS)])),
    "fs": ("FixedString(4)", [word[:4].ljust(4, b"\0") for word in _TEXTS]),
    "d": ("Date", [0, 1, 65535, 18321, *_RANDOM.integers(0, 65536, ROWS - 4).tolist()]),
    "d32": ("Date32", [-25567, 120529, 0, -1, *_RANDOM.integers(-25567, 120529, ROWS - 4).tolist()]),
    "nd": ("Nullable(Date)", _nulls(_RANDOM.integers(0, 65536, ROWS).tolist())),
    "ts": ("DateTime('UTC')", _STAMPS),
    "tb": ("DateTime('Europe/Berlin')", _STAMPS),
    "tn": ("DateTime('America/New_York')", _LATER[::-1]),
    "ti": ("DateTime('Asia/Kolkata')", _STAMPS),
    "t3": ("DateTime64(3, 'UTC')", [v * 1000 + v % 1000 for v in _STAMPS]),
    "t6": ("DateTime64(6, 'Asia/Tokyo')", [(v - 10**9) * 10**6 + v % 10**6 for v in _STAMPS]),
    "e": ("Enum8('x' = -1, 'y' = 0, 'z' = 5)", [(-1, 0, 5)[i % 3] for i in range(ROWS)]),
    "de": ("Decimal(9, 2)", _ints(-999999999, 999999999)),
    "dw": ("Decimal(18, 5)", _ints(-(10**17), 10**17)),
    "id": ("UUID", [bytes(_RANDOM.integers(0, 256, 16, dtype=np.uint8)) for _ in range(ROWS)]),
    "ip": ("IPv4", _STAMPS),
    "a": ("Array(Int32)", [[1, -2, 3][: i % 4] for i in range(ROWS)]),
    "as": ("Array(Nullable(String))", [[b"a", None, b"b"][: i % 4] for i in range(ROWS)]),
    "m": ("Map(String, UInt8)", [[(b"k", i), (b"j", 1)][: i % 3] for i in range(ROWS)]),
    "tu": ("Tuple(p UInt8, q String)", [(i, _WORDS[i % 9]) for i in range(ROWS)]),
}
"""Name -> type and storage values."""

TYPES: dict[str, DataType] = {name: parse_type(text) for name, (text, _) in COLUMNS.items()}


def block() -> pa.RecordBatch:
    """The rows in storage form."""
    return pa.record_batch({name: _column(values, TYPES[name]) for name, (_, values) in COLUMNS.items()})


def _column(values: list[Any], data_type: DataType) -> pa.Array:
    plain = data_type.inner if isinstance(data_type, LowCardinality) else data_type
    pieces = [to_arrow(constant_vec(value, plain), plain, 1) for value in values]
    found = pa.concat_arrays(pieces)
    return found.dictionary_encode() if isinstance(data_type, LowCardinality) else found


def create_table(session: Any) -> None:
    """The same rows as the ClickHouse table `TABLE`."""
    columns = ", ".join(f"`{name}` {text}" for name, (text, _) in COLUMNS.items())
    session.query(f"CREATE TABLE IF NOT EXISTS {TABLE} (`row` UInt32, {columns}) ENGINE = Memory")
    session.query(f"TRUNCATE TABLE {TABLE}")
    rows = []
    for i in range(ROWS):
        cells = [_cell(values[i], TYPES[name]) for name, (_, values) in COLUMNS.items()]
        rows.append(f"({i}, {', '.join(cells)})")
    session.query(f"INSERT INTO {TABLE} VALUES {', '.join(rows)}")


def _cell(value: Any, data_type: DataType) -> str:
    if isinstance(value, int) and isinstance(data_type, DateTime):
        return str(value)
    if isinstance(value, int) and isinstance(data_type, DateTime64):
        unit = {3: "Milli", 6: "Micro"}[data_type.precision]
        return f"fromUnixTimestamp64{unit}(toInt64({value}), '{data_type.timezone}')"
    if isinstance(value, bytes) and len(value) != 16:
        # The statement is text, so bytes that are not must be escaped.
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'"
    return quoted_text(arrow_value(value, data_type) if value is not None else None, data_type)


def theirs(session: Any, expression: str) -> tuple[str, list[bytes | None]] | str:
    """(type, texts of the values) as ClickHouse gives them, or its error's code as text."""
    query = f"SELECT toTypeName({expression}), hex(toString({expression})) FROM {TABLE} ORDER BY row"
    try:
        answer = str(session.query(f"{query} SETTINGS session_timezone = 'UTC'", "TSVRaw"))
    except Exception as failure:
        text = str(failure)
        return text.split("Code: ")[1].split(".")[0] if "Code: " in text else text
    cells = [line.split("\t") for line in answer.splitlines()]
    values = [None if cell == "\\N" else bytes.fromhex(cell) for _, cell in cells]
    return _without_low_cardinality(cells[0][0]), values


def _without_low_cardinality(name: str) -> str:
    while name.startswith("LowCardinality("):
        name = name[len("LowCardinality(") : -1]
    return name


def ours(rows: pa.RecordBatch, expression: str) -> tuple[str, list[bytes | None]] | str:
    """The same from mergelake."""
    try:
        compiled = compile_expression(expression, TYPES)
        found = compiled.evaluate(rows)
    except MergelakeError as failure:
        return str(failure.code)
    found.validate(full=True)
    assert len(found) == rows.num_rows
    values = to_text(found, compiled.type).to_pylist()
    if isinstance(inner_type(compiled.type), FixedString):  # toString() drops the padding
        values = [None if value is None else value.rstrip(b"\0") for value in values]
    return _without_low_cardinality(str(compiled.type)), values


# --- strategies

_INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "ni", "nu"]
_INT_LITERALS = ["0", "1", "2", "3", "7", "-1", "-5", "100", "255", "256", "-129", "65536", "3000000000", "-9000000000"]
_TIMES = ["ts", "tb", "tn", "ti", "t3", "t6"]
_DAYS = ["d", "nd", "ts", "tb", "tn", "t3"]
_ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe"]


def _call(name: str, *args: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*args).map(lambda parts: f"{name}({', '.join(parts)})")


def _infix(left: Any, operators: list[str], right: Any) -> st.SearchStrategy[str]:
    return st.tuples(left, st.sampled_from(operators), right).map(lambda p: f"({p[0]} {p[1]} {p[2]})")


def _strategies() -> dict[str, st.SearchStrategy[str]]:
    pick = st.sampled_from
    integers: Any = st.deferred(
        lambda: st.one_of(
            pick(_INTEGERS), pick(_INTEGERS), pick(_INT_LITERALS),
            _infix(integers, ["+", "-", "*"], integers),
            _infix(integers, ["%", "DIV"], pick(["2", "3", "7", "-3", "1000", "u8", "i8"])),
            pick(["negate", "abs"]).flatmap(lambda f: _call(f, integers)),
            pick([f"to{u}Int{b}" for u in ("", "U") for b in (8, 16, 32, 64)]).flatmap(lambda f: _call(f, integers)),
            pick(["intHash32", "intHash64"]).flatmap(lambda f: _call(f, pick(_INTEGERS))),
            _call("length", texts), _call("position", texts, pick(["'a'", "'b'", "''"])),
            pick(["toYear", "toMonth", "toDayOfMonth", "toDayOfWeek", "toYYYYMM", "toYYYYMMDD", "toQuarter", "toDayOfYear"])
            .flatmap(lambda f: _call(f, dates)),
            pick(["toHour", "toMinute", "toSecond", "toYYYYMMDDhhmmss", "toUnixTimestamp"]).flatmap(lambda f: _call(f, pick(_TIMES))),
            _call("toHour", pick(_TIMES), pick([f"'{zone}'" for zone in _ZONES])),
            _call("cityHash64", st.one_of(pick(["s", "fs", "id", "d", "ts", "lc"]), integers_plain)),
            _call("sipHash64", st.one_of(pick(["s", "fs", "id", "d", "ts", "lc"]), integers_plain)),
            _call("dateDiff", pick(["'day'", "'month'", "'year'", "'week'", "'quarter'"]), pick(_TIMES), pick(_TIMES)),
            _call("dateDiff", pick(["'hour'", "'minute'", "'second'"]), pick(["ts", "t3"]), pick(["ts", "t3"])),
            _call("if", booleans, integers, pick(["u8", "i8", "1", "300"])),
            _call("multiIf", booleans, pick(["u8", "1"]), booleans, pick(["i16", "-1", "NULL"]), pick(["u8", "7"])),
            _call("ifNull", pick(["ni"]), pick(["0", "u8", "ni", "-7"])), _call("ifNull", pick(["nu"]), pick(["0", "u8", "nu"])),
            _call("coalesce", pick(["ni", "i16"]), pick(["ni", "i8", "NULL"]), pick(["1", "ni"])),
            _call("nullIf", pick(_INTEGERS), pick(_INT_LITERALS)),
            _call("arrayElement", pick(["a"]), pick(["1", "-1", "5", "u8"])), pick(["m['k']", "m['zz']", "tu.p", "tu.1"]),
            _call("bitAnd", pick(_INTEGERS), pick(_INTEGERS)), _call("bitXor", pick(_INTEGERS), pick(_INT_LITERALS)),
        )
    )  # fmt: skip
    integers_plain = pick(["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
    floats = st.one_of(
        pick(["f32", "f64", "1.5", "-0.1", "1e10"]), _infix(pick(["f32", "f64"]), ["+", "-", "*", "/", "%"], integers_plain),
        _infix(integers_plain, ["/"], pick([*_INTEGERS, "3", "0"])), _call("toFloat64", integers), _call("toFloat32", pick(_INTEGERS)),
        _call("abs", pick(["f32", "f64"])),
    )  # fmt: skip
    texts: Any = st.deferred(
        lambda: st.one_of(
            pick(["s", "ns", "lc", "lcn", "'ab'", "''", "'12'"]), pick(["s", "lc", "ns"]),
            pick(["lower", "upper", "reverse", "trimBoth"]).flatmap(lambda f: _call(f, texts)),
            _call("substring", texts, pick(["1", "2", "-2", "0", "i8", "10"])),
            _call("substring", texts, pick(["1", "2", "-2", "i8"]), pick(["1", "2", "0", "-1", "u8"])),
            _infix(texts, ["||"], texts), _call("concat", texts, pick(["i8", "'-'", "d", "f32", "e"]), texts),
            _call("toString", st.one_of(integers, floats, dates, pick(["e", "b", "id", "ip", "de", "dw", "fs", "t3", "t6"]))),
            _call("if", booleans, texts, texts), _call("ifNull", pick(["ns", "lcn"]), texts),
        )
    )  # fmt: skip
    dates: Any = st.deferred(
        lambda: st.one_of(
            pick(_DAYS), pick(_DAYS),
            pick(["toDate", "toMonday", "toStartOfMonth", "toStartOfQuarter", "toStartOfYear", "toStartOfWeek", "toStartOfDay"])
            .flatmap(lambda f: _call(f, pick(_DAYS))),
            _call("toDate", pick(["ts", "t3"]), pick([f"'{zone}'" for zone in _ZONES])),
            pick(["toStartOfHour", "toStartOfMinute", "toStartOfFiveMinutes", "toStartOfFifteenMinutes"])
            .flatmap(lambda f: _call(f, pick(_TIMES))),
            st.tuples(pick(["d", "ts", "tb", "ti"]), st.integers(1, 40), pick(["MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]))
            .filter(lambda p: p[0] != "d" or p[2] not in ("MINUTE", "HOUR"))
            .map(lambda p: f"toStartOfInterval({p[0]}, INTERVAL {p[1]} {p[2]})"),
            st.tuples(pick(["d", "ts", "tb", "t3"]), pick(["+", "-"]), st.integers(0, 40), pick(["SECOND", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]))
            .map(lambda p: f"({p[0]} {p[1]} INTERVAL {p[2]} {p[3]})"),
            _infix(pick(["d", "ts", "tb"]), ["+", "-"], pick(["1", "100", "u8"])),
            _call("toDateTime", pick(["ts", "d", "tb", "u32"])),
        )
    )  # fmt: skip
    comparisons = ["=", "!=", "<", "<=", ">", ">="]
    booleans: Any = st.deferred(
        lambda: st.one_of(
            _infix(st.one_of(integers, floats), comparisons, st.one_of(integers, floats)),
            _infix(texts, comparisons, texts), _infix(pick(["s", "fs"]), comparisons, pick(["fs", "'ab'", "'a'", "s"])),
            _infix(dates, comparisons, dates), _infix(pick(["d", "ts", "tb", "tn", "t3", "nd"]), comparisons, pick(["'2020-02-29'", "'2020-10-25'"])),
            _infix(pick(["ts", "tb", "t3", "t6"]), comparisons, pick(["'2020-10-25 01:00:00'", "'1970-01-01 00:00:00'"])),
            _infix(pick(["de", "dw"]), comparisons, pick(["de", "dw", "0", "i8", "u8", "1.5", "'1.5'"])),
            _infix(pick(["e"]), comparisons, pick(["'x'", "'z'", "e"])), _infix(pick(["id"]), comparisons, pick(["id", "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'"])),
            _infix(pick(["ip"]), comparisons, pick(["'10.0.0.1'", "ip"])),
            _infix(booleans, ["AND", "OR"], booleans), _infix(booleans, ["AND", "OR"], pick(["ni", "b", "nb", "u8", "NULL", "1", "0"])),
            booleans.map(lambda x: f"(NOT {x})"), _call("xor", booleans, booleans),
            st.tuples(texts, pick(["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"]), pick(["'%a%'", "'a%'", "'%b'", "'a_c'", "'%'", "''", "'a\\\\%b'", "'%o%b%'", "'_'"]))
            .map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            _call("match", texts, pick(["'^a'", "'b$'", "'[0-9]+'", "'.'"])),
            pick(["startsWith", "endsWith"]).flatmap(lambda f: _call(f, texts, pick(["'a'", "'b'", "''", "lc"]))),
            pick(["empty", "notEmpty"]).flatmap(lambda f: _call(f, texts)), pick(["isNull", "isNotNull"]).flatmap(lambda f: _call(f, st.one_of(texts, integers))),
            _infix(integers, ["IN", "NOT IN"], pick(["(1, 2, 3)", "(0, -1, 255, 256, 65536)", "(1, NULL)", "(7)", "(1.5, 2)", "[1, 2]"])),
            _infix(texts, ["IN", "NOT IN"], pick(["('a', 'ab', '')", "('12')", "('a', NULL)"])),
            _infix(pick(["d", "nd"]), ["IN", "NOT IN"], pick(["('2020-02-29', '1970-01-01')"])),
            _infix(pick(["(i8, s)", "(u8, lc)"]), ["IN", "NOT IN"], pick(["((1, 'a'), (-1, 'abc'))", "((0, ''), (1, 'a'), (2, 'zz'))"])),
            _infix(pick(["(i8, u64)", "(u8, i16)"]), comparisons, pick(["(1, 2)", "(i16, u8)"])),
            st.tuples(integers, pick(["BETWEEN", "NOT BETWEEN"]), pick(_INT_LITERALS), pick(_INTEGERS)).map(lambda p: f"({p[0]} {p[1]} {p[2]} AND {p[3]})"),
            _call("has", pick(["a"]), pick(["1", "3", "-2", "300"])), _call("has", pick(["as"]), pick(["'a'", "'c'"])), _call("mapContains", pick(["m"]), pick(["'k'", "'x'"])),
        )
    )  # fmt: skip
    return {"integers": integers, "floats": floats, "texts": texts, "dates": dates, "booleans": booleans}


def expressions() -> st.SearchStrategy[str]:
    """ClickHouse expressions of all families over the columns of `COLUMNS`."""
    return st.one_of(*_strategies().values())
