"""Random tables and predicates for tests of pruning; nothing here but numbers and text."""

from __future__ import annotations

import random
from typing import Any

from mergelake.core.model.schema import TableSchema
from tests.helpers.scans import Rows, make_schema

GRANULES = {"index_granularity": "4"}
TABLES: dict[str, tuple[TableSchema, dict[str, str]]] = {}


def table(name: str, columns: dict[str, str], **kwargs: Any) -> None:
    TABLES[name] = (make_schema(columns, settings={**GRANULES, "allow_nullable_key": "1"}, **kwargs), columns)


table("one_integer", {"k": "UInt32", "v": "Int32"}, order_by=("k",))
table("signed_pair", {"k": "Int16", "j": "Int64", "v": "UInt8"}, order_by=("k", "j"), partition_by=("intDiv(v, 8)",))
table("strings", {"s": "String", "u": "String", "n": "UInt64"}, order_by=("s", "u"))
table(
    "days",
    {"k": "UInt8", "ts": "DateTime('UTC')", "s": "String", "v": "Int32"},
    order_by=("k", "toDate(ts)", "s"),
    partition_by=("toYYYYMM(ts)",),
)
table("times", {"ts": "DateTime('UTC')", "k": "UInt16"}, order_by=("ts", "k"), partition_by=("toYYYYMM(ts)",))
table("dates", {"d": "Date", "f": "Float64", "k": "Int8"}, order_by=("d", "f"), partition_by=("k",))
table("nullable", {"a": "Nullable(Int32)", "s": "Nullable(String)", "v": "UInt8"}, order_by=("a", "s"))
table("low", {"s": "LowCardinality(String)", "k": "UInt64"}, order_by=("s", "k"), primary_key=("s",))
table("wide_key", {"a": "UInt8", "b": "UInt8", "c": "UInt8", "d": "UInt8"}, order_by=("a", "b", "c", "d"))
table("falling", {"a": "UInt8", "b": "Int32"}, order_by=("a", "b"), order_desc=(False, True))


def random_value(rng: random.Random, data_type: str) -> Any:
    if data_type.startswith("Nullable"):
        return None if rng.random() < 0.2 else random_value(rng, data_type[9:-1])
    if "String" in data_type:
        return rng.choice([b"", b"a", b"ab", b"abc", b"b", b"ba", b"c", b"zz", b"z", b"10", b"1"])
    if data_type == "Float64":
        return rng.choice([0.0, -1.5, 2.25, 1e9, -3.0, 7.0, 0.5])
    if data_type == "Date":
        return 19700 + rng.randrange(90)
    if data_type.startswith("DateTime"):
        return 1_704_067_200 + rng.randrange(90 * 86400)
    low, high = (-20, 20) if data_type.startswith("Int") else (0, 30)
    return rng.randrange(low, high)


def random_rows(rng: random.Random, columns: dict[str, str], count: int) -> Rows:
    return [{name: random_value(rng, text) for name, text in columns.items()} for _ in range(count)]


def random_literal(rng: random.Random, data_type: str) -> str:
    if data_type.startswith("Nullable"):
        data_type = data_type[9:-1]
    if "String" in data_type:
        return repr(random_value(rng, "String").decode())
    if data_type == "Date":
        return f"'2024-0{rng.randrange(1, 4)}-{rng.randrange(1, 28):02d}'"
    if data_type.startswith("DateTime"):
        hour = rng.choice(["00:00:00", f"{rng.randrange(24):02d}:30:15"])
        return f"'2024-0{rng.randrange(1, 4)}-{rng.randrange(1, 28):02d} {hour}'"
    if data_type == "Float64":
        return rng.choice(["0.", "2.25", "-3", "1", "100.5"])
    return rng.choice([str(rng.randrange(-25, 35)), str(rng.randrange(30)), f"{rng.randrange(30)}.5"])


def random_atom(rng: random.Random, columns: dict[str, str]) -> str:
    name = rng.choice(list(columns))
    kind = columns[name]
    plain = kind[9:-1] if kind.startswith("Nullable") else kind
    shape = rng.random()
    operator = rng.choice(["=", "!=", "<", "<=", ">", ">=", "=", "<", ">"])
    if kind.startswith("Nullable") and shape < 0.15:
        return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
    if shape < 0.25:
        members = ", ".join(
            random_literal(rng, "UInt8" if "Int" in plain else plain) for _ in range(rng.randrange(1, 5))
        )
        return f"{name} {rng.choice(['', 'NOT '])}IN ({members})"
    if "String" in plain and shape < 0.5:
        pattern = rng.choice(["a%", "ab%", "z%", "%b", "a_c%", "b"])
        return rng.choice([f"{name} LIKE '{pattern}'", f"{name} NOT LIKE '{pattern}'", f"startsWith({name}, 'a')"])
    if plain.startswith("DateTime") and shape < 0.6:
        day = random_literal(rng, "Date")
        return rng.choice(
            [
                f"toDate({name}) {operator} {day}",
                f"toYYYYMM({name}) {operator} 20240{rng.randrange(1, 4)}",
                f"toYear({name}) {operator} 2024",
                f"toStartOfMonth({name}) {operator} {day}",
                f"toHour({name}) {operator} {rng.randrange(24)}",
                f"toMonth({name}) {operator} {rng.randrange(1, 4)}",
            ]
        )
    if plain == "Date" and shape < 0.5:
        return rng.choice([f"toYYYYMM({name}) {operator} 202402", f"toMonday({name}) {operator} '2024-02-05'"])
    if "Int" in plain and shape < 0.4:
        return rng.choice(
            [
                f"{name} + 1 {operator} {rng.randrange(20)}",
                f"{name} - 3 {operator} {rng.randrange(20)}",
                f"-{name} {operator} {rng.randrange(-20, 5)}",
                f"intDiv({name}, 4) {operator} {rng.randrange(6)}",
                f"{name} % 3 {operator} {rng.randrange(3)}",
            ]
        )
    literal = random_literal(rng, kind)
    return f"{name} {operator} {literal}" if rng.random() < 0.85 else f"{literal} {operator} {name}"


def random_predicate(rng: random.Random, columns: dict[str, str], depth: int = 2) -> str:
    shape = rng.random()
    if depth == 0 or shape < 0.35:
        return random_atom(rng, columns)
    if shape < 0.75:
        return " AND ".join(f"({random_predicate(rng, columns, depth - 1)})" for _ in range(rng.choice([2, 2, 3])))
    if shape < 0.92:
        return " OR ".join(f"({random_predicate(rng, columns, depth - 1)})" for _ in range(2))
    return f"NOT ({random_predicate(rng, columns, depth - 1)})"
