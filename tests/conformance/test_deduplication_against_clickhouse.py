"""Repeated inserts: what is dropped and what is not, statement by statement as in ClickHouse."""

from __future__ import annotations

import random
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError

TABLE = "CREATE TABLE {} (k UInt8, v UInt8) ENGINE = MergeTree PARTITION BY {} ORDER BY k SETTINGS {} = {}"
WINDOW = "non_replicated_deduplication_window"


class Both:
    """The same statements here and there."""

    def __init__(self, oracle: Any, tmp_path: Any, name: str, partition: str = "tuple()", window: int = 100) -> None:
        self.oracle, self.db, self.name = oracle, ml.connect(str(tmp_path)), name
        oracle.query(f"DROP TABLE IF EXISTS default.{name}")
        self.run(TABLE.format(name, partition, WINDOW, window))

    def run(self, statement: str) -> None:
        self.db.sql(statement)
        self.oracle.query(statement.replace(self.name, f"default.{self.name}", 1))

    def insert(self, values: str, **settings: object) -> None:
        given = ", ".join(f"{name} = {value!r}" for name, value in settings.items())
        self.run(f"INSERT INTO {self.name} {f'SETTINGS {given} ' * bool(given)}{values}")
        query = f"SELECT k, v FROM {self.name} ORDER BY ALL"
        theirs = str(self.oracle.query(query.replace(self.name, f"default.{self.name}"), "TSV"))
        assert self.db.sql(query).rows() == [tuple(map(int, line.split())) for line in theirs.splitlines()]


def test_rows_and_tokens_by_partition(oracle: Any, tmp_path: Any) -> None:
    both = Both(oracle, tmp_path, "dedup_parts", "k")
    both.insert("VALUES (1,1),(2,2)", insert_deduplication_token="t1")
    both.insert("VALUES (1,1),(3,3)", insert_deduplication_token="t1")
    both.insert("VALUES (9,9)", insert_deduplication_token="t1")
    both.insert("VALUES (9,8)", insert_deduplication_token="t1")
    both.insert("VALUES (1,1),(2,2)")
    both.insert("VALUES (2,2),(1,1)")
    both.insert("VALUES (1,1),(2,2)")
    both.run("ALTER TABLE dedup_parts DROP PARTITION 1")
    both.insert("VALUES (1,1),(2,2)")
    both.insert("VALUES (1,1),(2,2)", insert_deduplication_token="t1")
    both.run("TRUNCATE TABLE dedup_parts")
    both.insert("VALUES (1,1),(2,2)")


def test_settings_and_selects(oracle: Any, tmp_path: Any) -> None:
    both = Both(oracle, tmp_path, "dedup_settings")
    for _ in range(2):
        both.insert("VALUES (1,1)")
        both.insert("VALUES (3,3)", deduplicate_insert="disable")
        both.insert("VALUES (4,4)", deduplicate_insert="disable", insert_deduplication_token="a")
        both.insert("VALUES (5,5)", insert_deduplicate=0)
        both.insert("SELECT 6, 6")
        both.insert("SELECT 7, 7 ORDER BY ALL")
        both.insert("SELECT 8, 8", insert_deduplication_token="s")
        both.insert("SELECT 9, 9", insert_deduplication_token="d", deduplicate_insert_select="disable")
        both.insert("VALUES (1,1)", insert_deduplication_token="z")
    with pytest.raises(MergelakeError) as refused:
        both.db.sql("INSERT INTO dedup_settings SETTINGS deduplicate_insert_select = 'force_enable' SELECT 4, 4")
    assert refused.value.code == 764


def test_a_window_is_first_in_first_out_and_a_hit_does_not_refresh(oracle: Any, tmp_path: Any) -> None:
    both = Both(oracle, tmp_path, "dedup_window", window=3)
    for value in (1, 2, 3, 1, 4, 1):
        both.insert(f"VALUES ({value},0)")
    chance = random.Random(5)
    for _ in range(40):
        both.insert(f"VALUES ({chance.randrange(6)},0)")


def test_rows_are_compared_as_sent(oracle: Any, tmp_path: Any) -> None:
    name = "dedup_sent"
    db = ml.connect(str(tmp_path))
    create = "CREATE TABLE {} (k UInt8, t DateTime64(9) DEFAULT now64(9)) ENGINE = MergeTree ORDER BY k SETTINGS {} = 9"
    oracle.query(f"DROP TABLE IF EXISTS default.{name}")
    for run, full in ((oracle.query, f"default.{name}"), (db.sql, name)):
        run(create.format(full, WINDOW))
        for _ in range(2):
            run(f"INSERT INTO {full} (k) VALUES (1)")
            run(f'INSERT INTO {full} (k) FORMAT JSONEachRow {{"k": 1}}')
    assert db.sql(f"SELECT count() FROM {name}").scalar() == 1
    assert str(oracle.query(f"SELECT count() FROM default.{name}", "TSV")).strip() == "1"


def test_a_token_of_append_names_the_whole_insert(tmp_path: Any) -> None:
    """As a streaming job wants it: what it names is there or not, whatever a repetition would bring."""
    db = ml.connect(str(tmp_path))
    db.sql(TABLE.format("t", "k", WINDOW, 0))
    table = db.table("t")
    assert table.append({"k": [1, 2], "v": [1, 2]}, dedup_token="batch").rows == 2
    assert table.append({"k": [1, 3], "v": [1, 3]}, dedup_token="batch").duplicate
    db.sql("ALTER TABLE t DROP PARTITION 1")
    assert table.append({"k": [1, 2], "v": [1, 2]}, dedup_token="batch").duplicate
