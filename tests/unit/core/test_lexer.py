from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mergelake.api.sql.script import split_statements
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.lexer import syntax_error, tokenize
from mergelake.core.base.text import quote_string


def parts(text: str) -> list[str]:
    return [text[start:end].strip() for start, end in split_statements(text)]


def test_statements_are_cut_at_semicolons_outside_of_strings_and_comments() -> None:
    assert parts("SELECT 'a;b'; -- x;y\nSELECT 2 /* ; */;;  ") == ["SELECT 'a;b'", "SELECT 2 /* ; */"]


def test_values_end_at_their_own_semicolon() -> None:
    assert parts("INSERT INTO t VALUES (1, 'a;'';b'), (2, ';'); SELECT 1") == [
        "INSERT INTO t VALUES (1, 'a;'';b'), (2, ';')",
        "SELECT 1",
    ]


def test_inline_data_of_a_format_ends_at_a_line_with_a_semicolon() -> None:
    text = 'INSERT INTO t FORMAT JSONEachRow {"a": ";"}\n{"a": 2}\n;\nSELECT 1'
    assert parts(text) == ['INSERT INTO t FORMAT JSONEachRow {"a": ";"}\n{"a": 2}', "SELECT 1"]
    assert parts("INSERT INTO t FORMAT CSV\n1;2\n3;4") == ["INSERT INTO t FORMAT CSV\n1;2\n3;4"]


def test_tuple_elements_are_not_numbers() -> None:
    assert [token.text for token in tokenize("t.1.2 + .5")][:-1] == ["t", ".", "1", ".", "2", "+", ".5"]


@pytest.mark.parametrize("text", ["SELECT 'abc", "SELECT `a", 'SELECT "a', "SELECT /* never"])
def test_an_open_quote_is_a_syntax_error_that_shows_the_place(text: str) -> None:
    with pytest.raises(MergelakeError, match="never closed") as caught:
        tokenize(text)
    assert caught.value.code == 62
    assert "^" in str(caught.value)


def test_a_syntax_error_points_at_line_and_column() -> None:
    shown = str(syntax_error("SELECT a\nFROM t WHER b", 16, "no"))
    assert "line 2, column 8 (position 17)" in shown
    assert shown.split("\n")[1:3] == ["  FROM t WHER b", "         ^"]


@given(st.lists(st.text(max_size=8), max_size=4))
def test_any_string_literal_is_one_token(texts: list[str]) -> None:
    sql = " + ".join(map(quote_string, texts))
    assert [token.kind for token in tokenize(sql)].count("string") == len(texts)
    assert len(split_statements(f"SELECT {sql}; SELECT 1")) == 2
