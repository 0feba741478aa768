"""Every family of types with every kind of argument: taken as ClickHouse takes it, refused with its code."""

from __future__ import annotations

import re

import pytest

from mergelake.api.sql.parser import parse_one
from mergelake.core.base.errors import MergelakeError
from tests.helpers.oracle import oracle

_ARGUMENTS = (
    "", "()", "( )", "(1)", "('UTC')", "(NULL)", "(3, 'UTC')", "(UInt8, String)", "(1, 2)", "(-1)", "(0)", "(99)",
    "('a' = 1)", "('nowhere')", "(3.5)", "(a UInt8)",
)  # fmt: skip
_LEFT = re.compile(r"(Map|LowCardinality|Nullable|Array|Variant|(?i:enum(8|16)?))(\('a' = 1\)|\(a UInt8\))")
"""What is refused by both, for another reason."""
_SPELLED = ("Point", "Ring", "LineString", "MultiLineString", "Polygon", "MultiPolygon", "MultiPoint", "Geometry")


def _families() -> list[str]:
    """ClickHouse's families of types without types inside, and their other names."""
    text = """SELECT name FROM system.data_type_families
        WHERE name NOT IN ('AggregateFunction', 'SimpleAggregateFunction', 'Nested', 'QBit', 'Object', 'JSON', 'Tuple')
        AND name NOT LIKE '%num%' AND name != 'Nothing' AND lower(name) != 'geometry' ORDER BY name"""
    return str(oracle().query(text, "TSVRaw")).split("\n")[:-1]


def _theirs(kind: str) -> str | int:
    try:
        oracle().query("DROP TABLE IF EXISTS spelled")
        oracle().query(f"CREATE TABLE spelled (x {kind}) ENGINE = Memory")
        text = "SELECT type FROM system.columns WHERE table = 'spelled' AND database = currentDatabase()"
        return str(oracle().query(text, "TSVRaw")).rstrip("\n")
    except RuntimeError as failure:
        return int(re.findall(r"Code: (\d+)", str(failure))[-1])


def _ours(kind: str) -> str | int:
    try:
        statement = parse_one(f"CREATE TABLE t (x {kind}) ENGINE = MergeTree ORDER BY tuple()")
        return str(statement.schema.columns[0].type)  # type: ignore[union-attr]
    except MergelakeError as failure:
        return int(failure.code or 0)


@pytest.mark.parametrize("family", _families())
def test_a_type_is_spelled_as_in_clickhouse(family: str) -> None:
    for arguments in _ARGUMENTS:
        kind = f"{family}{arguments}"
        theirs, ours = _theirs(kind), _ours(kind)
        if family in _SPELLED and isinstance(theirs, str):
            assert isinstance(ours, str), kind
        elif _LEFT.fullmatch(kind) and isinstance(theirs, int):
            assert isinstance(ours, int), kind
        else:
            assert ours == theirs, kind
