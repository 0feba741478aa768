"""Columns of the drawn tables: their types, what these are changed to, and values of them as ClickHouse text."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mergelake.core.base.text import quote_identifier_if_needed, quote_string
from tests.helpers.mutations.kinds import LITERALS, without_wrappers

ENUM = "Enum8('a' = -1, 'b' = 0, 'c' = 7)"
PLAIN = (
    "UInt8", "Int16", "Int32", "UInt64", "Int64", "Float64", "Decimal(9, 2)", "String", "FixedString(3)", "Date",
    "DateTime('UTC')", ENUM, "Nullable(Int32)", "Nullable(String)", "Array(Int32)", "LowCardinality(String)",
    "Tuple(x Int32, y Nullable(String))", "Map(String, UInt8)", "Bool", "UUID", "IPv4", "Date32", "Decimal(38, 6)",
    "DateTime64(3, 'UTC')", "Nullable(Date)", "Nullable(UUID)", "Nullable(Decimal(9, 2))", "Int128", "Float32",
    "LowCardinality(Nullable(String))", "Array(Nullable(String))", "Array(LowCardinality(String))",
    "Array(Tuple(UInt8, String))", "Map(String, Array(String))", "Array(Array(UInt8))",
)  # fmt: skip
CHANGES: Mapping[str, tuple[str, ...]] = {
    "UInt8": ("UInt16", "Int32", "UInt64", "Nullable(UInt8)", "Float64", "Decimal(9, 2)"),
    "Int16": ("Int32", "Int64", "UInt8", "Nullable(Int16)", "Date", "Nullable(Int64)"),
    "Int32": ("Int64", "Nullable(Int32)", "UInt8", "Decimal(18, 4)", "DateTime('UTC')", "Array(Int32)", "UUID"),
    "UInt64": ("Int64", "Nullable(UInt64)", "UInt8", "Int128"),
    "Int64": ("Int32", "Nullable(Int64)", "DateTime64(3, 'UTC')"),
    "Int128": ("Int64", "Nullable(Int128)", "UInt256"),
    "Float64": ("Int32", "Float32", "Nullable(Float64)", "Decimal(9, 2)"),
    "Float32": ("Float64", "Int64"),
    "Decimal(9, 2)": ("Decimal(18, 4)", "Float64", "Int32", "Nullable(Decimal(18, 4))", "Decimal(9, 1)"),
    "Decimal(38, 6)": ("Decimal(18, 4)", "Nullable(Decimal(38, 6))"),
    "String": (
        "LowCardinality(String)", "Nullable(String)", "UInt32", "Date", "FixedString(5)", "Nullable(Int32)",
        "Nullable(Date)", "LowCardinality(Nullable(String))", "Nullable(Decimal(9, 2))", "Nullable(UUID)",
        "Nullable(FixedString(2))", "Array(String)",
    ),
    "FixedString(3)": ("FixedString(5)", "FixedString(2)", "Nullable(String)", "UInt8"),
    "Date": ("Date32", "DateTime('UTC')", "UInt16", "Nullable(Date)", "DateTime64(3, 'UTC')"),
    "Date32": ("Date", "DateTime64(3, 'UTC')", "Int32"),
    "DateTime('UTC')": ("DateTime64(3, 'UTC')", "UInt32", "Date", "DateTime", "Nullable(DateTime('UTC'))"),
    "DateTime64(3, 'UTC')": ("DateTime('UTC')", "DateTime64(6, 'UTC')", "Date", "Int64"),
    ENUM: (
        "Enum8('a' = -1, 'b' = 0, 'c' = 7, 'd' = 9)", "Int8", "Int16", "LowCardinality(String)",
        "Enum16('a' = -1, 'b' = 0, 'c' = 7, 'd' = 900)", f"Nullable({ENUM})",
    ),
    "Nullable(Int32)": ("Int32", "Nullable(Int64)", "Int64 DEFAULT 5", "UInt8 DEFAULT 300"),
    "Nullable(Date)": ("Date DEFAULT '2020-02-02'", "Nullable(DateTime('UTC'))"),
    "Nullable(UUID)": ("UUID DEFAULT '61f0c404-5cb3-11e7-907b-a6006ad3dba0'",),
    "Nullable(Decimal(9, 2))": ("Nullable(Int32)", "Decimal(18, 4) DEFAULT 1.5"),
    "Nullable(String)": ("LowCardinality(Nullable(String))", "String DEFAULT 'none'", "Nullable(Int32)"),
    "LowCardinality(String)": ("LowCardinality(Nullable(String))", "Nullable(Int64)", "FixedString(4)"),
    "LowCardinality(Nullable(String))": ("Nullable(String)", "LowCardinality(String) DEFAULT 'q'"),
    "Array(Int32)": ("Array(Int64)", "Array(String)", "Array(Nullable(UInt8))", "Int32"),
    "Array(Nullable(String))": ("Array(Nullable(Int32))", "Array(String)", "Array(LowCardinality(Nullable(String)))"),
    "Array(LowCardinality(String))": ("Array(String)", "Array(Nullable(UInt8))"),
    "Array(Tuple(UInt8, String))": ("Array(Tuple(UInt16, Nullable(Int32)))", "Map(UInt8, String)"),
    "Array(Array(UInt8))": ("Array(Array(Int32))",),
    "Map(String, UInt8)": ("Map(String, Int64)", "Map(LowCardinality(String), Nullable(String))"),
    "Map(String, Array(String))": ("Map(FixedString(2), Array(String))",),
    "Tuple(x Int32, y Nullable(String))": (
        "Tuple(x Int64, y Nullable(String), z Date)", "Tuple(y String, x Int8)", "Tuple(z UInt8)", "Tuple(x Int32)",
    ),
    "Bool": ("UInt8", "Int32", "Nullable(Bool)"),
    "UUID": ("Nullable(UUID)", "Int32"),
    "IPv4": ("UInt32", "Nullable(IPv4)"),
}  # fmt: skip
"""What the type of a column is changed to, beside String; some values, or all, cannot be.

Not UInt8 to Bool: ClickHouse keeps a 255 as it is, shows it as `true`, and remembers it at the next change of the type.
"""
CODECS = ("ZSTD(3)", "LZ4HC(4)", "NONE", "Delta, ZSTD", "T64, LZ4", "Gorilla, ZSTD(1)", "Default")


@dataclass(frozen=True)
class Shown:
    """A column as DESCRIBE shows it."""

    name: str
    type: str
    default_kind: str = ""
    default: str = ""

    @property
    def quoted(self) -> str:
        """The name in a statement."""
        return quoted(self.name)

    @property
    def is_key(self) -> bool:
        """Whether it is one of those that are never altered."""
        return self.name in ("p", "k", "s", "o")

    @property
    def is_readable(self) -> bool:
        """Whether a SELECT may name it."""
        return self.default_kind != "EPHEMERAL"

    @property
    def is_written(self) -> bool:
        """Whether an INSERT may name it."""
        return self.default_kind not in ("MATERIALIZED", "ALIAS")


def quoted(name: str) -> str:
    """A name as ClickHouse writes it."""
    return quote_identifier_if_needed(name)


def cast(literal: str, kind: str) -> str:
    """A cast as ClickHouse writes it down."""
    plain = literal.replace("t''s", "ts")
    return f"CAST({plain}, {quote_string(kind)})"


def literals(column: Shown) -> Sequence[str]:
    """A few values of the column's type, as ClickHouse text."""
    if column.name == "p":
        return ("-2", "-1", "0", "1", "3")
    if column.name == "k":
        return ("-3", "-1", "0", "1", "2", "7", "100")
    found = LITERALS.get(column.type)
    if found is not None:
        return found
    if column.type.startswith(("Array", "Map")):
        return ("[]",) if column.type.startswith("Array") else ("map()",)
    if column.type.startswith("Tuple"):
        return (f"CAST(defaultValueOfTypeName({quote_string(column.type)}), {quote_string(column.type)})",)
    for kind, like in (("Nullable(", "NULL"), ("String", "''"), ("Date", "'2024-01-05'"), ("Enum", "'a'")):
        if kind in column.type:
            return (like,)
    return ("0", "1", "5")


def condition(rng: random.Random, columns: Sequence[Shown]) -> str:
    """A condition over the columns of a table; it may be NULL."""
    choices = ["k > 0", f"k = {rng.choice((-3, 0, 1, 2, 7))}", "s = 'a'", "p < 0", "s >= 'b' AND k < 3", "k % 2 = 1"]
    able = [c for c in columns if c.is_readable and not c.is_key and comparable(c.type)]
    if not able or rng.random() < 0.5:
        return rng.choice(choices)
    column = rng.choice(able)
    value = f"CAST({rng.choice(literals(column))}, {quote_string(column.type)})"
    choices = [f"{column.quoted} = {value}", f"{column.quoted} != {value}"]
    if column.type not in ("Bool", "UUID") and "Enum" not in column.type:
        choices += [f"{column.quoted} > {value}", f"{column.quoted} <= {value} AND k != 1"]
    if column.type.startswith("Nullable"):
        choices += [f"{column.quoted} IS NULL", f"{column.quoted} IS NOT NULL"]
    return rng.choice(choices)


def comparable(kind: str) -> bool:
    """Whether values are compared with one another in any order, alike on both sides."""
    return "(" not in without_wrappers(kind) or without_wrappers(kind).startswith(("Decimal", "Date", "Fixed", "Enum"))
