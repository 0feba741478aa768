"""`Table.merge`: what it does to rows, what it refuses before anything is written, and what it leaves in the log."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.api.python import Warehouse
from mergelake.core.base.errors import ConflictError, InvalidInputError
from mergelake.jobs.upsert import execute, keys
from mergelake.jobs.upsert.keys import KEYS_MAX
from mergelake.log.model.operations import AddParts, Mutation, RowsUnchanged
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define

COLUMNS = {"k": "UInt32", "s": "String", "n": "Nullable(Int64)"}


def new_table(columns=COLUMNS, *, order_by="k", store=None, **more):
    return Warehouse(store or MemoryStore()).create_table("t", define(dict(columns), order_by=order_by, **more))


@pytest.fixture
def table():
    table = new_table()
    table.append({"k": [1, 2, 3, 3], "s": ["a", "b", "c", "d"], "n": [1, 2, 3, None]})
    return table


def rows(table, **options):
    return sorted(table.scan(**options), key=repr)


def last_ops(table):
    (entry,) = table.handle.log.entries(table.version, table.version)
    return [type(op) for op in entry.ops]


def test_an_upsert_is_one_commit_that_reads_nothing(table):
    before = table.version
    commit = table.merge({"k": [3, 4], "s": ["x", "y"], "n": [30, 40]}, on="k")
    assert (commit.version, commit.rows, commit.duplicate) == (before + 1, 2, False)
    assert last_ops(table) == [Mutation, AddParts]
    assert rows(table) == [(1, "a", 1), (2, "b", 2), (3, "x", 30), (4, "y", 40)]
    assert rows(table, version=before) == [(1, "a", 1), (2, "b", 2), (3, "c", 3), (3, "d", None)]
    table.apply_mutations()
    assert rows(table) == [(1, "a", 1), (2, "b", 2), (3, "x", 30), (4, "y", 40)]
    table.optimize(final=True)
    assert rows(table) == [(1, "a", 1), (2, "b", 2), (3, "x", 30), (4, "y", 40)]


def test_columns_that_the_source_lacks_get_their_defaults_by_replace_and_stay_by_update():
    table = new_table({**COLUMNS, "m": "UInt64"}, order_by="k")
    table.append({"k": [1], "s": ["a"], "n": [1], "m": [7]})
    table.merge({"k": [1, 2], "s": ["x", "y"]}, on="k", when_matched="update")
    assert rows(table) == [(1, "x", 1, 7), (2, "y", None, 0)]
    table.merge({"k": [1], "n": [5]}, on="k")
    assert rows(table) == [(1, "", 5, 0), (2, "y", None, 0)]


def test_defaults_and_materialized_columns_are_computed():
    db = ml.connect("memory://merge-defaults")
    db.sql(
        "CREATE TABLE t (k UInt32, a UInt32 DEFAULT k * 10, m UInt32 MATERIALIZED a + 1, x UInt32 DEFAULT m + 5, "
        "l UInt32 ALIAS a * 2) ENGINE = MergeTree ORDER BY k"
    )
    table = db.table("t")
    table.append({"k": [1, 2], "a": [1, 2]})
    columns = ["k", "a", "m", "x"]
    table.merge({"k": [2, 3]}, on="k", when_matched={"a": "target.a + target.m"})
    assert rows(table, columns=columns) == [(1, 1, 2, 7), (2, 5, 6, 8), (3, 30, 31, 36)]
    table.merge({"k": [3], "a": [1]}, on="k")
    assert rows(table, columns=columns) == [(1, 1, 2, 7), (2, 5, 6, 8), (3, 1, 2, 7)]
    for refused in ({"m": "1"}, {"l": "1"}, {"none": "1"}):
        with pytest.raises(InvalidInputError):
            table.merge({"k": [1], "a": [1]}, on="k", when_matched=refused)
    for on in ("l", "m"):
        with pytest.raises(InvalidInputError):
            table.merge({"k": [1], "a": [1]}, on=on)


def test_null_matches_nothing(table):
    table.merge({"k": [8, 9], "s": ["x", "y"], "n": [None, 3]}, on="n")
    assert rows(table) == [(1, "a", 1), (2, "b", 2), (3, "d", None), (8, "x", None), (9, "y", 3)]
    before = table.version
    table.merge({"k": [7], "s": ["z"], "n": [None]}, on="n")
    assert last_ops(table) == [AddParts]
    assert table.version == before + 1


def test_zeros_match_each_other_and_nan_matches_nothing():
    nan = float("nan")
    table = new_table({"f": "Float64", "g": "Float32", "s": "String"}, order_by=())
    table.append({"f": [0.0, -0.0, nan, 1.5], "g": [-0.0, 0.0, 1.0, 2.0], "s": ["a", "b", "c", "d"]})
    source = {"f": [-0.0, nan, 1.5], "g": [0.0, 1.0, 2.0], "s": ["x", "y", "z"]}
    table.merge(source, on=["f", "g"])
    assert sorted(s for *_, s in table.scan()) == ["c", "x", "y", "z"]
    table.merge(source, on="f", when_matched={"s": "concat(target.s, source.s)"}, when_not_matched="ignore")
    assert sorted(s for *_, s in table.scan()) == ["c", "xx", "y", "zz"]


def test_keys_may_change_and_rows_move_to_other_partitions():
    table = new_table({"d": "Date", "k": "UInt32", "n": "UInt32"}, order_by="k", partition_by="toYYYYMM(d)")
    table.append({"d": [datetime.date(2026, 1, 5)] * 2, "k": [1, 2], "n": [1, 2]})
    source = {"d": [datetime.date(2026, 3, 1)], "k": [2], "n": [0]}
    table.merge(source, on="k", when_matched={"d": "source.d", "k": "target.k + 10", "n": "target.n"})
    assert rows(table) == [(datetime.date(2026, 1, 5), 1, 1), (datetime.date(2026, 3, 1), 12, 2)]


def test_only_partitions_that_can_hold_the_keys_are_mutated():
    table = new_table({"d": "Date", "k": "UInt32"}, order_by="k", partition_by="toYYYYMM(d)")
    days = [datetime.date(2026, month, 1) for month in (1, 2, 3)]
    table.append({"d": days, "k": [1, 1, 1]})

    def scope(on):
        table.merge({"d": days[:2], "k": [1, 2]}, on=on)
        return table.handle.log.state.mutations[-1].partition_ids

    assert scope(["d", "k"]) == ("202601", "202602")
    assert rows(table) == [(days[0], 1), (days[1], 1), (days[1], 2), (days[2], 1)]
    assert scope(["k"]) is None
    assert rows(table) == [(days[0], 1), (days[1], 2)]


def test_changes_with_a_mark_are_applied(table):
    """Change data capture: a column of the source alone tells what is deleted."""
    changes = [
        {"k": 1, "s": "x", "n": 10, "op": "U"},
        {"k": 2, "s": "", "n": None, "op": "D"},
        {"k": 5, "s": "y", "n": 50, "op": "I"},
        {"k": 6, "s": "", "n": None, "op": "D"},
    ]
    table.merge(changes, on="k", delete_if="source.op = 'D'")
    assert last_ops(table) == [Mutation, AddParts]
    assert rows(table) == [(1, "x", 10), (3, "c", 3), (3, "d", None), (5, "y", 50)]


@pytest.mark.parametrize("kind", ["dict", "rows", "arrow", "batch", "reader", "pandas", "polars"])
def test_any_source_may_have_columns_of_its_own(table, kind):
    data = {"k": [1, 9], "s": ["x", "y"], "n": [4, 5], "older": [None, 3]}
    arrow = pa.table(data)
    source = {
        "dict": lambda: data,
        "rows": lambda: arrow.to_pylist(),
        "arrow": lambda: arrow,
        "batch": lambda: arrow.to_batches()[0],
        "reader": lambda: arrow.to_reader(),
        "pandas": lambda: arrow.to_pandas(),
        "polars": lambda: pytest.importorskip("polars").from_arrow(arrow),
    }[kind]()
    table.merge(source, on="k", delete_if="ifNull(source.older, 0) > 2", matched_if="target.n < source.n")
    assert rows(table) == [(1, "x", 4), (2, "b", 2), (3, "c", 3), (3, "d", None)]
    with pytest.raises(InvalidInputError, match="older"):
        table.merge(data, on="k")


def test_a_merge_that_reads_says_from_which_version(table):
    table.merge({"k": [2], "n": [5]}, on="k", when_matched={"n": "target.n + source.n"}, when_not_matched="ignore")
    (entry,) = table.handle.log.entries(table.version, table.version)
    assert [type(op) for op in entry.ops] == [RowsUnchanged, Mutation, AddParts]
    assert entry.ops[0].since == table.version - 1
    assert rows(table) == [(1, "a", 1), (2, "b", 7), (3, "c", 3), (3, "d", None)]


def test_every_row_of_a_key_is_updated_and_kept_rows_come_again(table):
    table.merge({"k": [3], "n": [100]}, on="k", when_matched={"n": "source.n"}, matched_if="target.n = 3")
    assert rows(table) == [(1, "a", 1), (2, "b", 2), (3, "c", 100), (3, "d", None)]
    table.merge(
        {"k": [3], "n": [7]}, on="k", when_matched="delete", matched_if="target.s = 'd'", when_not_matched="ignore"
    )
    assert rows(table) == [(1, "a", 1), (2, "b", 2), (3, "c", 100)]


def test_where_nothing_changes_nothing_is_committed(table):
    before = table.version
    for form in (
        {"when_matched": "ignore"},
        {"when_matched": "update", "matched_if": "0"},
        {"when_matched": "delete", "matched_if": "NULL", "when_not_matched": "insert"},
    ):
        commit = table.merge({"k": [1], "s": ["x"], "n": [1]}, on="k", **form)
        assert (commit.version, commit.rows, commit.parts) == (before, 0, ())
    empty = pa.table({"k": pa.array([], pa.uint32()), "s": pa.array([], pa.string())})
    assert table.merge(empty, on="k").version == before
    assert table.merge(empty, on="k", when_matched="update").version == before
    assert table.version == before
    assert table.merge(empty, on="k", dedup_token="empty").version == before + 1
    assert table.merge({"k": [1], "s": ["x"]}, on="k", dedup_token="empty").duplicate


@pytest.mark.parametrize("form", [{}, {"when_matched": {"n": "target.n + source.n"}}])
def test_a_token_makes_a_merge_count_once(table, form):
    source = {"k": [1, 7], "s": ["x", "y"], "n": [10, 70]}
    first = table.merge(source, on="k", dedup_token="m", **form)
    once = rows(table)
    again = table.merge(source, on="k", dedup_token="m", **form)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (again.version, again.rows) == (first.version, 0)
    assert rows(table) == once
    assert table.append(source, dedup_token="m").duplicate  # one window for all inserts


def test_repeated_keys_are_refused_where_they_would_change_a_row(table):
    twice = {"k": [1, 5, 5], "s": ["x", "y", "z"], "n": [1, 2, 3]}
    before = table.version
    with pytest.raises(InvalidInputError, match="Rows 1 and 2 of the source have the same key: k = 5") as raised:
        table.merge(twice, on="k")
    assert raised.value.name == "BAD_ARGUMENTS"
    for matched in ("update", {"n": "1"}, "replace"):
        table.merge(twice, on="k", when_matched=matched, matched_if="source.n > 1", when_not_matched="ignore")
        with pytest.raises(InvalidInputError, match="Rows 0 and 2"):
            table.merge({"k": [3, 1, 3], "n": [1, 1, 2]}, on="k", when_matched=matched, when_not_matched="ignore")
    assert table.version == before
    table.merge(twice, on="k", when_matched="ignore")  # as INSERT does
    assert [row for row in rows(table) if row[0] == 5] == [(5, "y", 2), (5, "z", 3)]
    table.merge(twice, on="k", when_matched="delete", when_not_matched="ignore")
    assert rows(table) == [(2, "b", 2), (3, "c", 3), (3, "d", None)]


REFUSED = {
    "no columns": ({"on": []}, "BAD_ARGUMENTS"),
    "the same column twice": ({"on": ["k", "k"]}, "BAD_ARGUMENTS"),
    "an unknown column": ({"on": "q"}, "NO_SUCH_COLUMN_IN_TABLE"),
    "a column that the source lacks": ({"on": "n"}, "BAD_ARGUMENTS"),
    "an array": ({"on": "a"}, "BAD_ARGUMENTS"),
    "an unknown word": ({"when_matched": "upsert"}, "BAD_ARGUMENTS"),
    "another unknown word": ({"when_not_matched": "update"}, "BAD_ARGUMENTS"),
    "nothing to do": ({"when_matched": "ignore", "when_not_matched": "ignore"}, "BAD_ARGUMENTS"),
    "no new values": ({"when_matched": {}}, "TYPE_MISMATCH"),
    "a value that is no text": ({"when_matched": {"n": 1}}, "TYPE_MISMATCH"),
    "a condition that is no text": ({"matched_if": 1}, "TYPE_MISMATCH"),
    "a condition that is a number": ({"matched_if": "target.n"}, "ILLEGAL_TYPE_OF_ARGUMENT"),
    "a name without its side": ({"matched_if": "n > 1"}, "UNKNOWN_IDENTIFIER"),
    "an unknown name": ({"delete_if": "source.q = 1"}, "UNKNOWN_IDENTIFIER"),
    "a syntax error": ({"delete_if": "source.k ="}, "SYNTAX_ERROR"),
    "an unknown function": ({"when_matched": {"n": "f(source.k)"}}, "UNKNOWN_FUNCTION"),
    "a value that cannot be cast": ({"when_matched": {"s": "CAST('x', 'Int8')"}}, "CANNOT_PARSE_TEXT"),
    "a NULL for another column": ({"when_matched": {"s": "NULL"}}, "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"),
    "no token": ({"dedup_token": ""}, "BAD_ARGUMENTS"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_leaves_no_trace(what):
    options, name = REFUSED[what]
    table = new_table({**COLUMNS, "a": "Array(UInt8)"})
    table.append({"k": [1], "s": ["a"], "n": [1], "a": [[1]]})
    before, objects = table.version, [meta.key for meta in table.handle.store.list("")]
    with pytest.raises(ml.MergelakeError) as raised:
        table.merge({"k": [1, 2], "s": ["x", "y"], "a": [[1], [2]]}, **{"on": "k", **options})
    assert raised.value.name == name, raised.value
    assert [meta.key for meta in table.handle.store.list("")] == objects
    assert table.version == before


def test_rows_that_do_not_fit_leave_no_trace(table):
    before, objects = table.version, [meta.key for meta in table.handle.store.list("")]
    for source in ({"k": [1, -1]}, {"k": [1], "s": [None]}, {"k": [1], "q": [1]}):
        for matched in ("replace", "update"):
            with pytest.raises(InvalidInputError):
                table.merge(source, on="k", when_matched=matched)
    with pytest.raises(InvalidInputError, match="ILLEGAL_DIVISION"):
        table.merge({"k": [1], "n": [0]}, on="k", when_matched={"n": "intDiv(target.n, source.n)"})
    assert [meta.key for meta in table.handle.store.list("")] == objects
    assert table.version == before


def test_too_many_keys_are_refused_with_a_way_out(table, monkeypatch):
    objects = [meta.key for meta in table.handle.store.list("")]
    many = pa.table({"k": pa.array(range(KEYS_MAX + 1), pa.uint32())})
    monkeypatch.setattr(keys, "TEXT_MAX", 200)
    for source, text in ((many, "200,000 rows"), (many.slice(0, 100), "as text")):
        with pytest.raises(InvalidInputError, match=text) as raised:
            table.merge(source, on="k")
        assert raised.value.name == "SET_SIZE_LIMIT_EXCEEDED"
        assert "Split the source" in str(raised.value)
    assert [meta.key for meta in table.handle.store.list("")] == objects


def test_a_source_is_read_no_further_than_to_its_limit(table):
    read = []

    def batches():
        for n in range(100):
            read.append(n)
            yield pa.record_batch({"k": pa.array(range(50_000 * n, 50_000 * (n + 1)), pa.uint32())})

    source = pa.RecordBatchReader.from_batches(pa.schema([("k", pa.uint32())]), batches())
    with pytest.raises(InvalidInputError, match="Split the source"):
        table.merge(source, on="k")
    assert len(read) < 60  # a block of an insert is a million rows


def test_replacing_tables_are_merged_by_their_sorting_key():
    table = new_table(
        {"k": "UInt32", "v": "UInt32", "d": "UInt8", "s": "String"},
        order_by="k",
        engine="ReplacingMergeTree(v, d)",
    )
    table.append({"k": [1, 2, 3], "v": [1, 1, 9], "d": [0, 0, 1], "s": ["a", "b", "gone"]})
    table.append({"k": [1], "v": [5], "d": [0], "s": ["newer"]})
    # A row with a lower version takes the place of both.
    table.merge({"k": [1], "v": [2], "d": [0], "s": ["merged"]}, on="k")
    assert rows(table, final=True) == [(1, 2, 0, "merged"), (2, 1, 0, "b")]
    table.append({"k": [2], "v": [7], "d": [0], "s": ["current"]})
    # What is read is what FINAL shows: the older row of 2 is not updated, 3 is deleted and so matches nothing.
    source = {"k": [2, 3], "v": [1, 1], "d": [0, 0], "s": ["+", "new"]}
    table.merge(source, on="k", when_matched={"s": "concat(target.s, source.s)", "v": "target.v"})
    assert rows(table, final=True) == [(1, 2, 0, "merged"), (2, 7, 0, "current+"), (3, 1, 0, "new")]
    table.optimize(final=True)
    assert rows(table) == [(1, 2, 0, "merged"), (2, 7, 0, "current+"), (3, 1, 0, "new")]
    with pytest.raises(InvalidInputError, match="sorting key"):
        table.merge(source, on="s")


def test_a_merge_is_computed_again_if_rows_changed_meanwhile(monkeypatch):
    store = MemoryStore()
    table = new_table(store=store)
    table.append({"k": [1, 2], "n": [1, 2]})
    other = Warehouse(store).table("t")
    written = []
    write = execute._write

    def slow_write(*arguments):
        written.append(1)
        if len(written) == 1:
            other.append({"k": [1], "n": [10]})  # of the same key: it counts
        if len(written) == 2:
            other.append({"k": [9], "n": [90]})  # of another key: what was written is used again
            other.delete("k = 9")
        return write(*arguments)

    monkeypatch.setattr(execute, "_write", slow_write)
    table.merge({"k": [1, 3], "n": [100, 300]}, on="k", when_matched={"n": "target.n + source.n"})
    assert len(written) == 2
    assert rows(table) == [(1, "", 101), (1, "", 110), (2, "", 2), (3, "", 300)]
    kept = {part.manifest.id for part in table.handle.log.state.parts()}
    kept |= {part.id for part in table.handle.log.state.retired}
    shared = {meta.key.split("/")[1] for meta in store.list(table.handle.directory)} - {"_log"}
    assert len(shared) <= len(kept)


def test_a_merge_gives_up_if_rows_change_all_the_time(monkeypatch):
    store = MemoryStore()
    table = new_table(store=store)
    table.append({"k": [1], "n": [1]})
    other = Warehouse(store).table("t")
    monkeypatch.setattr(execute, "ATTEMPTS_MIN", 3)
    monkeypatch.setattr(execute, "PATIENCE_S", 0)
    commit = execute._Attempts._commit

    def late(self, deletion):
        other.append({"k": [1], "n": [1]})
        return commit(self, deletion)

    monkeypatch.setattr(execute._Attempts, "_commit", late)
    with pytest.raises(ConflictError, match="3 attempts"):
        table.merge({"k": [1], "n": [1]}, on="k", when_matched={"n": "target.n + source.n"})
    assert sorted(n for _, _, n in table.scan()) == [1, 1, 1, 1]
    table.merge({"k": [1], "n": [5]}, on="k")  # reads nothing, so nothing hinders it
    assert rows(table) == [(1, "", 5)]


def test_names_of_any_kind_are_quoted():
    names = ["my col", "a.b", "`x`", "IN", "1", "FORMAT"]
    table = new_table(dict.fromkeys(names, "String"), order_by=("IN", "my col"))
    table.append({name: ["a", "b"] for name in names})
    table.merge({name: ["b", "c"] for name in names}, on=names)
    assert rows(table) == [("a",) * 6, ("b",) * 6, ("c",) * 6]
    table.merge({"a.b": ["b"], "1": ["z"]}, on="a.b", when_matched="update")
    assert rows(table) == [("a",) * 6, ("b", "b", "b", "b", "z", "b"), ("c",) * 6]
    table.merge(
        {"a.b": ["b"], "my col": ["y"]}, on="a.b", when_matched={"my col": "concat(target.`my col`, source.`my col`)"}
    )
    assert rows(table)[1] == ("by", "b", "b", "b", "z", "b")


def test_too_many_unfinished_merges_are_refused_until_they_are_written_down():
    table = new_table(settings={"number_of_mutations_to_throw": 3})
    table.append({"k": [1, 2], "n": [1, 2]})
    for number in range(3):
        table.merge({"k": [1], "n": [number]}, on="k")
    before, objects = table.version, [meta.key for meta in table.handle.store.list("")]
    for form in ({}, {"when_matched": "update"}):
        with pytest.raises(InvalidInputError, match="TOO_MANY_MUTATIONS"):
            table.merge({"k": [1], "n": [9]}, on="k", **form)
    assert [meta.key for meta in table.handle.store.list("")] == objects
    assert table.version == before
    table.apply_mutations()
    table.merge({"k": [1], "n": [9]}, on="k")
    assert rows(table) == [(1, "", 9), (2, "", 2)]
