"""Values that expressions cannot look at: functions of them are refused, so that ClickHouse evaluates conditions."""

from __future__ import annotations

import pytest

from mergelake.api.sql.database import connect
from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import parse_type
from mergelake.expr.compiled import compile_expression

TYPES = {
    "v": parse_type("Variant(String, UInt64)"),
    "y": parse_type("Dynamic"),
    "a": parse_type("Array(Dynamic)"),
    "t": parse_type("Tuple(x JSON, y UInt8)"),
}


@pytest.mark.parametrize(
    "text",
    ["v IS NULL", "isNull(y)", "CAST(y AS String)", "toString(v)", "toString(a)", "has(a, 1)", "t::String",
     "isNull(t.x)", "[v]", "tuple(1, y)"],
)  # fmt: skip
def test_functions_of_such_values_are_refused(text: str) -> None:
    with pytest.raises(MergelakeError, match="are not supported in expressions here") as raised:
        compile_expression(text, TYPES)
    assert raised.value.name == "NOT_IMPLEMENTED"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("y", "Dynamic"),
        ("CAST(y AS Dynamic)", "Dynamic"),
        ("length(a)", "UInt64"),
        ("t.y + 1", "UInt16"),
        ("t.x", "JSON"),
    ],
)
def test_what_holds_them_may_be_looked_at(text: str, kind: str) -> None:
    assert str(compile_expression(text, TYPES).type) == kind


def test_conditions_on_them_are_clickhouse_s() -> None:
    db = connect("memory://opaque")
    db.sql(
        "CREATE TABLE o (k UInt8, v Variant(String, UInt64), y Dynamic, c Dynamic ALIAS y) ENGINE MergeTree ORDER BY k"
    )
    db.sql("INSERT INTO o SELECT number, if(number % 2, NULL, number::Variant(String, UInt64)), 'x' FROM numbers(4)")
    assert db.sql("SELECT k FROM o WHERE v IS NULL ORDER BY k").rows() == [(1,), (3,)]
    assert db.sql("SELECT count() FROM o WHERE toString(y) = 'x' AND isNotNull(v)").scalar() == 2
    assert len(list(db.table("o").scan(columns=["k", "c"]))) == 4
    with pytest.raises(MergelakeError, match="UPDATE of the column y of type Dynamic is not supported"):
        db.table("o").update({"y": "y"}, "k = 1")
