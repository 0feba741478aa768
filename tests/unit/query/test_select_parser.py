from __future__ import annotations

from mergelake.query.statement.select_parser import parse_select


def names(sql: str) -> list[str]:
    return [".".join(filter(None, (found.database, found.name))) for found in parse_select(sql).references]


def test_every_place_that_names_a_table_is_found_once() -> None:
    inner = "k IN (SELECT k FROM e) AND v = (SELECT max(v) FROM f)"
    sql = f"SELECT * FROM a JOIN db.b ON a.x = b.x, c WHERE k IN d AND {inner}"
    assert names(sql) == ["a", "db.b", "c", "d", "e", "f"]


def test_from_inside_a_function_is_no_table() -> None:
    assert names("SELECT extract(YEAR FROM d), trim(BOTH ' ' FROM s), substring(s FROM 2) FROM t") == ["t"]


def test_a_table_function_is_no_table() -> None:
    assert names("SELECT * FROM numbers(10), s3('x', 'CSV') AS s, view(SELECT * FROM inner_table)") == ["inner_table"]


def test_a_cte_hides_a_table_only_after_its_own_definition() -> None:
    assert names("WITH t AS (SELECT * FROM t) SELECT * FROM t JOIN u USING k") == ["t", "u"]
    assert names("WITH x AS (SELECT 1) SELECT * FROM (SELECT * FROM x) WHERE a IN x") == []


def test_set_operations_and_doubled_brackets_are_walked() -> None:
    parsed = parse_select("((SELECT a FROM t) UNION ALL (SELECT * EXCEPT (b) FROM u)) EXCEPT SELECT a FROM v")
    assert [found.name for found in parsed.references] == ["t", "u", "v"]
    assert all(scope.in_set_operation for scope in parsed.scopes)


def test_alias_final_and_sample_stand_where_clickhouse_wants_them() -> None:
    parsed = parse_select("SELECT 1 FROM db.`my table` AS m FINAL SAMPLE 1/10 OFFSET 1/2 PREWHERE a WHERE b")
    (found,) = parsed.references
    assert (found.database, found.name, found.alias) == ("db", "my table", "m")
    assert found.final is not None
    assert (found.sample_ratio, found.sample_offset) == ("1/10", "1/2")


def test_array_join_is_no_join_of_tables() -> None:
    parsed = parse_select("SELECT x FROM t LEFT ARRAY JOIN xs AS x, ys AS y ASOF LEFT JOIN u ON t.a = u.a")
    assert [(found.name, found.join) for found in parsed.references] == [("t", ""), ("u", "ASOF LEFT")]
    assert [parsed.slice(*place) for place in parsed.scopes[0].array_join] == ["xs AS x, ys AS y"]


def test_clauses_are_cut_at_their_keywords_and_not_at_columns_of_those_names() -> None:
    sql = "SELECT t.format, t.final FROM t WHERE settings = 1 AND t.offset > 2 GROUP BY a ORDER BY b LIMIT 5 FORMAT CSV"
    parsed = parse_select(sql)
    scope = parsed.scopes[0]
    assert {clause: parsed.slice(*place) for clause, place in scope.clauses.items()} == {
        "SELECT": "t.format, t.final",
        "FROM": "t",
        "WHERE": "settings = 1 AND t.offset > 2",
        "GROUP": "a",
        "ORDER": "b",
        "LIMIT": "5",
        "FORMAT": "CSV",
    }
    assert parsed.format == "CSV"


def test_strings_and_comments_hide_what_looks_like_sql() -> None:
    assert names("SELECT 'FROM x' /* FROM y */ FROM t -- FROM z\nWHERE a = 'it''s FROM w'") == ["t"]


def test_from_may_come_first() -> None:
    assert names("FROM t SELECT a WHERE b") == ["t"]
