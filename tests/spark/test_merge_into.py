"""Merging Spark DataFrames: tasks write parts and return keys; one commit, once, or none; the page's example."""

from __future__ import annotations

import json

import pytest

import mergelake as ml
from mergelake.api.python.merge_into import merge_into
from mergelake.core.base.errors import InvalidInputError, UnsupportedError
from mergelake.jobs.upsert import keys
from tests.helpers.pages import Reader, snippets
from tests.spark.test_streams import forget_last_batch

PAGE = "docs/merge-into.md"


@pytest.fixture
def table(tmp_path, spark):
    db = ml.connect(str(tmp_path / "warehouse"), spark=spark)
    table = db.create_table(
        "t", {"k": "UInt64", "s": "LowCardinality(String)", "n": "Nullable(Int64)"}, order_by="k", partition_by="k % 3"
    )
    table.append({"k": range(20), "s": ["old"] * 20, "n": range(20)})
    return table


def frame_of(spark, rows, schema="k BIGINT, s STRING, n BIGINT", slices=4):
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, slices), schema)


def objects(table):
    return sorted(meta.key for meta in table.handle.store.list(table.handle.directory) if "/_log/" not in meta.key)


def test_a_frame_replaces_and_adds_rows_in_one_commit(table, spark):
    before = table.version
    frame = frame_of(spark, [(k, "new", None if k % 5 else k) for k in range(15, 40)])
    commit = table.merge(frame, on="k")
    assert (commit.version, commit.rows) == (before + 1, 25)
    expected = [(k, "old", k) for k in range(15)] + [(k, "new", None if k % 5 else k) for k in range(15, 40)]
    assert sorted(table.scan()) == expected
    table.apply_mutations()
    assert sorted(table.scan()) == expected


def test_a_frame_may_be_another_each_time_and_its_keys_are_those_of_its_rows(table, spark):
    frame = frame_of(spark, [(k, "new", k) for k in range(200)]).where("rand() < 0.5")
    commit = table.merge(frame, on="k")
    rows = list(table.scan())
    new = [k for k, s, _ in rows if s == "new"]
    assert len(new) == len(set(new)) == commit.rows
    assert sorted(k for k, *_ in rows) == sorted({*range(20), *new})


def test_every_form_takes_a_frame_and_columns_of_its_own(table, spark):
    schema = "k BIGINT, s STRING, n BIGINT, op STRING"
    frame = frame_of(spark, [(1, "x", 10, "U"), (2, "", None, "D"), (50, "y", 5, "I"), (60, "", None, "D")], schema)
    merge_into(frame, table, on="k", delete_if="source.op = 'D'")
    changed = {k: (s, n) for k, s, n in table.scan()}
    assert (changed[1], changed.get(2), changed[50], changed.get(60)) == (("x", 10), None, ("y", 5), None)
    merge_into(
        frame.select("k", "n"),
        table,
        on=["k"],
        when_matched={"n": "target.n + ifNull(source.n, 1)"},
        when_not_matched="ignore",
        matched_if="target.s != 'old'",
    )
    changed = {k: (s, n) for k, s, n in table.scan()}
    assert (changed[1], changed[50], len(changed)) == (("x", 20), ("y", 10), 20)
    merge_into(frame.select("k"), table, on="k", when_matched="delete", when_not_matched="ignore")
    assert sorted(k for k, *_ in table.scan()) == [0, *range(3, 20)]


def test_a_path_and_a_token(table, spark):
    frame = frame_of(spark, [(1, "x", 1), (30, "y", 2)])
    results = [merge_into(frame, table.path, "k", dedup_token="m-1") for _ in range(2)]
    assert [(commit.rows, commit.duplicate) for commit in results] == [(2, False), (0, True)]
    table.refresh()
    assert len(list(table.scan())) == 21
    for token in ("", 5):
        with pytest.raises(InvalidInputError, match="token"):
            merge_into(frame, table.path, "k", dedup_token=token)


def test_what_is_refused_leaves_no_objects(table, spark, monkeypatch):
    before, version = objects(table), table.version
    twice = frame_of(spark, [(1, "a", 1), (2, "b", 1), (3, "c", 1), (1, "d", 1)])
    with pytest.raises(InvalidInputError, match="the same key: k = 1"):
        table.merge(twice, on="k")
    with pytest.raises(InvalidInputError, match="s"):  # a NULL in one of four tasks
        table.merge(frame_of(spark, [(1, "a", 1), (2, "b", 1), (3, None, 1), (4, "d", 1)]), on="k")
    with pytest.raises(InvalidInputError, match="q"):
        table.merge(frame_of(spark, [(1, "a")], "k BIGINT, q STRING"), on="k")
    with pytest.raises(InvalidInputError, match="SET_SIZE_LIMIT_EXCEEDED"):
        table.merge(spark.range(keys.KEYS_MAX + 1).selectExpr("id AS k", "'' AS s"), on="k")
    with pytest.raises(InvalidInputError, match="SET_SIZE_LIMIT_EXCEEDED"):
        table.merge(spark.range(keys.KEYS_MAX + 1).selectExpr("id AS k", "'' AS s"), on="k", when_matched="update")
    with pytest.raises(UnsupportedError, match="streaming"):
        table.merge(spark.readStream.format("rate").load().selectExpr("value AS k"), on="k")
    with pytest.raises(InvalidInputError, match="Cannot"):
        merge_into({"k": [1]}, table.path, on="k")
    assert objects(table) == before
    assert table.refresh() == version


def test_the_examples_of_the_page(tmp_path, spark):
    reader = Reader(tmp_path, {"/data": str(tmp_path)})
    incoming = tmp_path / "incoming"
    incoming.mkdir()

    def put(name, rows):
        (incoming / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    examples = snippets(PAGE)
    put("a.json", [{"id": 3, "name": "cyd", "visits": 2}, {"id": 4, "name": "dot", "visits": 1}])
    for example in examples:
        reader.follow(example)
    expected = [(1, "ada", 5), (3, "cyd", 2), (4, "dot", 1), (9, "", 1)]
    users = ml.connect(str(tmp_path / "warehouse")).table("users")
    assert sorted(users.scan()) == expected
    version = users.version

    stream = next(example for example in examples if "foreachBatch" in example.text)
    forget_last_batch(tmp_path / "checkpoints" / "users-from-files")
    reader.follow(stream)  # Spark gives the batch again
    users.refresh()
    assert (sorted(users.scan()), users.version) == (expected, version)
    put("b.json", [{"id": 4, "name": "dot", "visits": 9}])
    reader.follow(stream)
    assert sorted(users.scan()) == [*expected[:2], (4, "dot", 9), expected[3]]
