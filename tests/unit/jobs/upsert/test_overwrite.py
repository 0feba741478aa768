"""Overwriting: what goes, what stays, what is refused, and that each is one commit."""

from __future__ import annotations

import random

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.log.model.operations import Mutation

TYPES = {"p": "Int8", "s": "Nullable(String)", "k": "Int64", "v": "Int64"}


def make(name: str, *, partition_by=("p", "s"), engine="MergeTree", **options):
    settings = {"allow_nullable_key": 1}
    return ml.connect(f"memory://overwrite-{name}").create_table(
        "t", TYPES, order_by="k", partition_by=partition_by, engine=engine, settings=settings, **options
    )


def data(rows):
    return {name: [row[at] for row in rows] for at, name in enumerate(TYPES)}


def rows(table, **at):
    return sorted(table.scan(**at), key=repr)


ROWS = [(1, "a", 1, 1), (1, None, 2, 2), (-2, "a", 3, 3), (-2, "b", 4, 4)]


def test_the_whole_table_is_replaced_in_one_entry():
    table = make("whole")
    table.append(data(ROWS))
    version = table.version
    done = table.overwrite(data([(7, "x", 9, 9)]))
    assert (done.version, done.rows, done.duplicate) == (version + 1, 1, False)
    assert rows(table) == [(7, "x", 9, 9)]
    assert rows(table, version=version) == sorted(ROWS, key=repr)
    assert table.overwrite(data([])).rows == 0
    assert rows(table) == []


def test_partitions_that_get_rows_are_replaced():
    table = make("dynamic")
    table.append(data(ROWS))
    table.overwrite(data([(1, None, 5, 5), (3, None, 6, 6)]), dynamic=True)
    left = [row for row in ROWS if row[:2] != (1, None)]
    assert rows(table) == sorted([*left, (1, None, 5, 5), (3, None, 6, 6)], key=repr)
    version = table.version
    table.overwrite(data([]), dynamic=True)
    assert table.version == version


@pytest.mark.parametrize(
    ("where", "drops"),
    {"p = 1": True, "s = 'a' OR p > 5": True, "s IS NULL": True, "p = 1 AND k < 2": False, "v > 2": False}.items(),
)
def test_a_condition_says_what_is_replaced(where, drops):
    table = make(f"where-{where}")
    table.append(data(ROWS))
    kept = {tuple(row) for row in table.scan()} - {tuple(row) for row in table.scan(where=where)}
    new = [(1, "a", 1, 100)] if "NULL" not in where else [(1, None, 1, 100)]
    table.overwrite(data(new), where)
    assert rows(table) == sorted([*kept, *new], key=repr)
    (entry,) = table.handle.log.entries(table.version, table.version)
    assert any(isinstance(op, Mutation) for op in entry.ops) != drops
    table.apply_mutations()
    table.optimize(final=True)
    assert rows(table) == sorted([*kept, *new], key=repr)


def test_rows_that_others_inserted_meanwhile_go_unless_nothing_may_have_changed():
    table = make("meanwhile")
    table.append(data(ROWS))
    other = ml.connect("memory://overwrite-meanwhile").table("t")

    def meanwhile():
        other.append(data([(1, "a", 50, 50), (9, "z", 51, 51)]))
        yield from [{"p": 1, "s": "a", "k": 60, "v": 60}]

    version = table.version
    with pytest.raises(MergelakeError, match=f"after version {version}"):
        table.overwrite([*meanwhile()], "p = 1", unchanged_since=version)
    assert len(rows(table)) == len(ROWS) + 2
    table.overwrite([*meanwhile()], "p = 1")
    assert [row[3] for row in rows(table)] == [3, 4, 60, 51, 51]


def test_a_repetition_does_nothing():
    table = make("token")
    table.append(data(ROWS))
    for where, dynamic in ((None, False), ("p = 1", False), ("v = 60", False), (None, True)):
        new = data([(1, "a", 60, 60)])
        done = table.overwrite(new, where, dynamic=dynamic, dedup_token=f"token {where} {dynamic}")
        table.append(data([(1, "a", 61, 61)]))
        before = rows(table)
        again = table.overwrite(new, where, dynamic=dynamic, dedup_token=f"token {where} {dynamic}")
        assert (done.duplicate, again.duplicate, rows(table)) == (False, True, before)


def test_bad_input_changes_nothing():
    table, replacing = make("bad"), make("bad-replacing", engine="ReplacingMergeTree")
    for each in (table, replacing):
        each.append(data(ROWS))
    for target, new, where, options, name in [
        (table, [(2, "a", 1, 1)], "p = 1", {}, "VIOLATED_CONSTRAINT"),
        (table, [(1, None, 1, 1)], "s = 'a'", {}, "VIOLATED_CONSTRAINT"),
        (table, [(1, "a", 1, 1)], "nothing = 1", {}, "UNKNOWN_IDENTIFIER"),
        (table, [(1, "a", 1, 1)], "s", {}, "ILLEGAL_TYPE_OF_ARGUMENT"),
        (table, [(1, "a", 1, 1)], "rand() = 1", {}, "BAD_ARGUMENTS"),
        (table, [(1, "a", 1, 1)], "p = ", {}, "SYNTAX_ERROR"),
        (table, [(1, "a", 1, 1)], "p = 1", {"dynamic": True}, "BAD_ARGUMENTS"),
        (table, [(1, "a", 1, 1)], 1, {}, "TYPE_MISMATCH"),
        (table, [("x", "a", 1, 1)], "p = 1", {}, "CANNOT_PARSE_TEXT"),
        (replacing, [(1, "a", 1, 1)], "v = 1", {}, "BAD_ARGUMENTS"),
    ]:
        version, objects = target.version, {meta.key for meta in target.handle.store.list("")}
        with pytest.raises(MergelakeError) as refused:
            target.overwrite(data(new), where, **options)
        assert refused.value.name == name, (where, refused.value)
        assert target.refresh() == version
        assert {meta.key for meta in target.handle.store.list("")} == objects
    replacing.overwrite(data([(1, "a", 1, 7)]), "k < 3 AND p = 1")
    assert [row[3] for row in rows(replacing)] == [3, 4, 7]


@pytest.mark.parametrize("seed", range(4))
def test_random_overwrites_are_as_on_a_list_of_rows(seed):
    draw = random.Random(seed)
    partition_by = draw.choice([(), ("p",), ("p", "s"), ("k % 3",)])
    table, model = make(f"random-{seed}", partition_by=partition_by), []

    def some(count):
        return [
            (draw.choice([1, 2, -3]), draw.choice(["a", "b", None]), draw.randrange(9), draw.randrange(5))
            for _ in range(count)
        ]

    conditions = {
        "p = 1": lambda row: row[0] == 1,
        "s = 'a'": lambda row: row[1] == "a",
        "p IN (1, 2) AND s IS NULL": lambda row: row[0] in (1, 2) and row[1] is None,
        "k < 4": lambda row: row[2] < 4,
        "v % 2 = 1 AND p < 2": lambda row: row[3] % 2 == 1 and row[0] < 2,
    }
    keys = {(): lambda row: 0, ("p",): lambda row: row[0], ("k % 3",): lambda row: row[2] % 3}
    key = keys.get(partition_by, lambda row: row[:2])
    for _ in range(25):
        match draw.randrange(7):
            case 0 | 1:
                new = some(4)
                table.append(data(new))
                model += new
            case 2 | 3:
                where, holds = draw.choice([*conditions.items()])
                new = [row for row in some(6) if holds(row)]
                table.overwrite(data(new), where)
                model = [row for row in model if not holds(row)] + new
            case 4:
                new = some(2)
                table.overwrite(data(new), dynamic=True)
                model = [row for row in model if key(row) not in {*map(key, new)}] + new
            case 5:
                new = some(3)
                table.overwrite(data(new))
                model = new
            case _:
                draw.choice([table.apply_mutations, lambda: table.optimize(final=True)])()
        assert rows(table) == sorted(model, key=repr)
