"""What goes down to the scan, on a source that takes every predicate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from mergelake.core.types.types import DataType, parse_type
from mergelake.query.source import Layers, ReadRequest
from mergelake.query.statement.needs import wanted
from mergelake.query.statement.rewrite import rewrite
from mergelake.query.statement.select_parser import parse_select

COLUMNS = ("a", "b", "c", "d")


@dataclass
class Fake:
    columns: Mapping[str, DataType] = field(default_factory=lambda: dict.fromkeys(COLUMNS, parse_type("UInt8")))
    computed: Mapping[str, tuple[DataType, str]] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    version: int = 1

    def exact_rows(self) -> int | None:
        return 7

    def can_filter(self, predicate: str) -> bool:
        return True

    def plan(self, wanted: ReadRequest) -> object:
        raise AssertionError("nothing is read here")


def need(sql: str, index: int = 0, *, tables: tuple[str, ...] = ("t", "u"), source: Fake | None = None) -> ReadRequest:
    parsed = parse_select(sql)
    known = {"t": source or Fake(), "u": Fake(dict.fromkeys(("x", "y"), parse_type("UInt8")))}
    sources = {found: known[found.name] for found in parsed.references if found.name in tables}
    found = parsed.references[index]
    return wanted(parsed, found, sources[found], sources)  # type: ignore[arg-type]


def rewritten(sql: str, source: Fake | None = None) -> str:
    parsed = parse_select(sql)
    sources = {found: source or Fake() for found in parsed.references}
    return rewrite(parsed, sources).text({-1: 1000, 0: 7, 1: 7})  # type: ignore[arg-type]


def test_only_named_columns_are_wanted() -> None:
    assert need("SELECT a, sum(c) FROM t GROUP BY a").columns == ("a", "c")
    assert need("SELECT count(*) FROM t").columns == ()


def test_a_star_wants_all_unless_the_outer_select_says_which() -> None:
    assert need("SELECT * FROM t").columns == COLUMNS
    assert need("SELECT b FROM (SELECT * FROM t) WHERE d").columns == ("b", "d")
    assert need("SELECT b FROM (SELECT DISTINCT * FROM t)").columns == COLUMNS
    assert need("SELECT b FROM (SELECT * FROM t UNION ALL SELECT * FROM u)").columns == COLUMNS
    assert need("SELECT b FROM (SELECT * FROM (SELECT * FROM t))").columns == ("b",)
    assert need("WITH z AS (SELECT * FROM t) SELECT b FROM z").columns == COLUMNS
    assert need("SELECT COLUMNS('a') FROM t").columns == COLUMNS
    assert need("SELECT 1 FROM u WHERE x IN t", 1).columns == COLUMNS


def test_conditions_of_one_table_go_down_without_their_qualifier() -> None:
    sql = "SELECT 1 FROM t AS q JOIN u ON q.a = u.x WHERE q.b = 1 AND u.y = 2 AND q.c + u.x > 3"
    assert need(sql).where == "(b = 1)"
    assert need(sql, 1).where == "(y = 2)"


def test_and_between_is_not_a_conjunction() -> None:
    assert need("SELECT 1 FROM t WHERE a BETWEEN 1 AND 2 AND b = 3").where == "(a BETWEEN 1 AND 2) AND (b = 3)"


def test_a_disjunction_stays_whole() -> None:
    assert need("SELECT 1 FROM t WHERE a = 1 AND b = 2 OR c = 3").where == "(a = 1 AND b = 2 OR c = 3)"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a + 1 AS a FROM t WHERE a = 2",  # the alias wins over the column
        "SELECT b a FROM t WHERE a = 2",
        "WITH 5 AS a SELECT b FROM t WHERE a = 5",
        "SELECT a FROM t ARRAY JOIN b WHERE b = 1",  # the element, not the array
        "SELECT 1 FROM u LEFT JOIN t ON x = a WHERE t.a = 1 AND 1 IN (SELECT 1)",  # after the join it may be a default
        "SELECT 1 FROM t RIGHT JOIN u ON x = a WHERE t.a = 1",
        "SELECT 1 FROM t FULL JOIN u ON x = a WHERE t.a = 1",
        "SELECT 1 FROM t ANY INNER JOIN u ON x = a WHERE t.a = 1",  # which row is chosen may change
        "SELECT 1 FROM t, (SELECT 1 AS a) AS s WHERE a = 1",  # whose a?
        "SELECT 1 FROM t WHERE a = (SELECT max(x) FROM u)",
        "SELECT 1 FROM t WHERE arrayJoin([a, b]) = 1",
        "SELECT 1 FROM t WHERE a > now64()",
    ],
)
def test_conditions_that_mean_something_else_below_stay_above(sql: str) -> None:
    parsed = parse_select(sql)
    index = next(i for i, found in enumerate(parsed.references) if found.name == "t")
    assert need(sql, index).where == ""


def test_a_left_join_lets_conditions_of_its_left_side_down() -> None:
    assert need("SELECT 1 FROM t LEFT JOIN u ON x = a WHERE t.a = 1").where == "(a = 1)"


def test_prewhere_final_and_sample_leave_the_text() -> None:
    text = rewritten("SELECT a FROM t AS q SAMPLE 1/2 PREWHERE b = 1 WHERE c = 2 ORDER BY a")
    assert " ".join(text.split()) == (
        "SELECT a FROM (SELECT `a`, `b`, `c` FROM Python(ml_0)) AS q WHERE ( b = 1 ) AND ( c = 2) ORDER BY a"
    )


def test_prewhere_with_final_goes_to_the_table_itself() -> None:
    parsed = parse_select("SELECT a FROM t AS q FINAL SAMPLE 1/2 PREWHERE q.b = 1 AND c > now() WHERE c = 2 ORDER BY a")
    found = rewrite(parsed, {parsed.references[0]: Fake()})  # type: ignore[dict-item]
    (slot,) = found.slots
    assert "PREWHERE" not in found.text({}, {})
    read = slot.attached(Layers((("_mergelake.x", ()),)))
    assert read == "(SELECT `a`, `b`, `c` FROM _mergelake.x FINAL SAMPLE 1/2 PREWHERE (b = 1) AND (c > now()))"
    assert slot.refused is not None


def test_a_count_needs_no_scan() -> None:
    assert rewritten("SELECT count() FROM t") == "SELECT count() FROM (SELECT 1 FROM numbers(7)) AS `t`"


def test_now_in_a_filter_is_one_instant() -> None:
    assert "a > toDateTime(1000)" in rewritten("SELECT now(), a FROM t WHERE a > now()")


def test_database_and_table_before_a_column_lose_the_database() -> None:
    assert rewritten("SELECT db.t.a FROM db.t") == "SELECT t.a FROM (SELECT `a` FROM Python(ml_0)) AS `t`"


def test_materialized_columns_stay_out_of_a_star() -> None:
    source = Fake(hidden=frozenset("d"))
    assert "`d`" not in rewritten("SELECT * FROM t", source)
    assert "* EXCEPT (`d`), d FROM" in rewritten("SELECT *, d FROM t", source)


def test_alias_columns_are_computed_above_the_scan() -> None:
    source = Fake(computed={"e": (parse_type("UInt16"), "a + b")}, hidden=frozenset("e"))
    text = rewritten("SELECT e FROM t", source)
    assert "SELECT *, CAST(a + b AS UInt16) AS `e` FROM (SELECT `a`, `b` FROM Python(ml_0))" in text
