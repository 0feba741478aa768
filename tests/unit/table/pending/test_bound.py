"""Commands bound to a table and applied to rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.log.model.state import PendingMutation
from mergelake.table.pending.bound import Steps, bind_command, bind_steps
from mergelake.table.pending.commands import parse_commands
from tests.helpers.random_mixed import mixed_array, random_mixed_type
from tests.helpers.random_types import random_type

COLUMNS = {
    "k": "UInt32", "a": "Int32", "b": "Int32", "n": "Nullable(Int32)", "s": "String", "u": "UInt8",
    "lc": "LowCardinality(String)", "ln": "LowCardinality(Nullable(String))", "ar": "Array(String)",
    "la": "Array(LowCardinality(String))", "tu": "Tuple(x Int32, y Nullable(String))", "m": "Map(String, UInt8)",
    "w": "UInt256", "id": "UUID",
}  # fmt: skip
COMPUTED = [
    Column(90, "ma", parse_type("Int64"), "MATERIALIZED", "a + 1"),
    Column(91, "mb", parse_type("Int64"), "MATERIALIZED", "ma * 10 + b"),
    Column(92, "de", parse_type("Int64"), "DEFAULT", "a + 1"),
    Column(93, "al", parse_type("Int64"), "ALIAS", "a * 100 + k"),
]
SCHEMA = TableSchema(
    (*(Column(i, name, parse_type(kind)) for i, (name, kind) in enumerate(COLUMNS.items())), *COMPUTED),
    order_by=("k",),
    primary_key=("k",),
)


def steps_of(*mutations: str, partition_id: str = "all") -> Steps:
    pending = [PendingMutation(str(i), i + 5, text, None, 0, 0, 0) for i, text in enumerate(mutations)]
    steps = bind_steps(pending, SCHEMA, partition_id)
    assert steps is not None
    return steps


def arrays_of(rows: int = 4, **columns: list[Any]) -> dict[str, pa.Array]:
    columns.setdefault("k", list(range(rows)))
    types = SCHEMA.types
    return {name: pa.array(values, storage_type(types[name])) for name, values in columns.items()}


def applied(steps: Steps, wanted: list[str], **columns: list[Any]) -> dict[str, list[Any]]:
    """The columns after the steps; what they need is all that they are given."""
    given = arrays_of(**columns)
    rows = len(given["k"])
    found, mask = steps.apply({name: given[name] for name in steps.base(wanted)}, rows, wanted)
    for name, array in found.items():
        array.validate(full=True)
        assert array.type == storage_type(SCHEMA.types[name])
        assert len(array) == (rows if mask is None else mask.sum())
    return {name: array.to_pylist() for name, array in found.items()}


# -- what has to be read


@pytest.mark.parametrize(
    ("commands", "wanted", "base"),
    [
        ("UPDATE a = b WHERE u", ["a"], {"a", "b", "u"}),
        ("UPDATE a = b WHERE u", ["b", "s"], {"b", "s"}),
        ("UPDATE a = b WHERE u", ["ma"], {"ma", "a", "b", "u"}),
        ("UPDATE a = b WHERE u", ["mb"], {"mb", "ma", "a", "b", "u"}),
        ("UPDATE a = b WHERE u", ["al"], {"a", "k", "b", "u"}),
        ("UPDATE a = b WHERE u", ["de"], {"de"}),
        ("UPDATE a = b WHERE u, UPDATE s = 'x' WHERE a = 1", ["s"], {"s", "a", "b", "u"}),
        ("UPDATE s = 'x' WHERE a = 1, UPDATE a = b WHERE u", ["s"], {"s", "a"}),
        ("DELETE WHERE u", ["s"], {"s", "u"}),
        ("UPDATE a = b WHERE k = 1, DELETE WHERE a = 1", ["s"], {"s", "a", "b", "k"}),
        ("UPDATE b = a WHERE k = 1, DELETE WHERE a = 1", ["s"], {"s", "a"}),
    ],
)
def test_only_what_is_needed_is_read(commands: str, wanted: list[str], base: set[str]) -> None:
    assert set(steps_of(commands).base(wanted)) == base


def test_the_columns_for_deletes_are_known() -> None:
    steps = steps_of("UPDATE a = b WHERE k = 1, DELETE WHERE a = 1, UPDATE s = 'x' WHERE 1")
    assert set(steps.for_deletes()) == {"a", "b", "k"}
    assert set(steps.base(["s"], deletes=False)) == {"s"}
    assert steps.touched == {"a", "s", "ma", "mb"}
    assert steps.deletes
    assert not steps_of("UPDATE a = 1 WHERE 1").for_deletes()


def test_commands_of_other_partitions_are_left_out() -> None:
    text = "UPDATE a = 1 IN PARTITION ID 'x' WHERE 1"
    assert bind_steps([PendingMutation("1", 5, text, ("x",), 0, 0, 0)], SCHEMA, "y") is None
    assert steps_of(text, partition_id="x").touched == {"a", "ma", "mb"}
    assert bind_steps([], SCHEMA, "all") is None


# -- what rows become


def test_all_right_sides_see_the_row_before_the_command() -> None:
    steps = steps_of("UPDATE a = b, b = a WHERE k < 2", "UPDATE a = a + 100, b = a WHERE a = 10")
    assert applied(steps, ["a", "b"], a=[1, 2, 3, 4], b=[10, 20, 30, 40]) == {
        "a": [110, 20, 3, 4],
        "b": [10, 2, 30, 40],
    }


def test_deleted_rows_are_not_seen_by_later_commands() -> None:
    steps = steps_of("DELETE WHERE k = 1, UPDATE a = intDiv(10, k - 1) WHERE 1, DELETE WHERE k = 3")
    assert applied(steps, ["k", "a"], a=[1, 2, 3, 4]) == {"k": [0, 2], "a": [-10, 10]}


def test_the_mask_tells_which_rows_stay() -> None:
    steps = steps_of("DELETE WHERE k = 1", "UPDATE k = k WHERE 1", "DELETE WHERE k = 3")
    mask = steps.apply(arrays_of(4), 4, [])[1]
    assert mask is not None
    assert mask.tolist() == [True, False, True, False]
    assert steps_of("DELETE WHERE k = 9").apply(arrays_of(4), 4, [])[1] is None


def test_null_is_no_match() -> None:
    n = [None, 1, 5, None]
    assert applied(steps_of("DELETE WHERE n > 2"), ["n"], n=n) == {"n": [None, 1, None]}
    assert applied(steps_of("UPDATE n = NULL WHERE n < 9"), ["n"], n=n) == {"n": [None] * 4}
    assert applied(steps_of("DELETE WHERE NULL"), ["n"], n=n) == {"n": n}


def test_values_wrap_as_cast_does() -> None:
    assert applied(steps_of("UPDATE u = 250 + k WHERE 1"), ["u"], k=[1, 10], u=[0, 0]) == {"u": [251, 4]}


def test_materialized_columns_follow_what_they_are_computed_from() -> None:
    steps = steps_of("UPDATE a = 7 WHERE k = 1")
    columns = {"a": [1, 2, 3], "b": [4, 5, 6], "ma": [0, 0, 0], "mb": [0, 0, 0], "k": [0, 1, 2], "de": [0, 0, 0]}
    assert applied(steps, ["ma", "mb", "de"], **columns) == {"ma": [0, 8, 0], "mb": [0, 85, 0], "de": [0, 0, 0]}
    assert applied(steps, ["mb"], **columns) == {"mb": [0, 85, 0]}
    assert applied(steps_of("UPDATE b = 9 WHERE k = 1"), ["ma", "mb"], **columns) == {"ma": [0] * 3, "mb": [0, 9, 0]}


def test_alias_columns_see_what_the_commands_leave() -> None:
    steps = steps_of("UPDATE a = 7 WHERE k = 1, DELETE WHERE k = 2")
    assert applied(steps, ["al"], a=[1, 2, 3, 4]) == {"al": [100, 701, 403]}


def test_an_expression_is_evaluated_for_rows_that_match() -> None:
    steps = steps_of("UPDATE a = toInt32(s) WHERE k != 1")
    assert applied(steps, ["a"], k=[0, 1, 2], a=[0, 0, 0], s=["12", "no number", "-3"]) == {"a": [12, 0, -3]}
    with pytest.raises(MergelakeError) as failed:
        applied(steps, ["a"], k=[0, 1, 2], a=[0, 0, 0], s=["12", "3", "no number"])
    assert failed.value.name == "CANNOT_PARSE_TEXT"
    assert applied(steps, ["s"], k=[0, 1, 2], a=[0, 0, 0], s=["12", "3", "no number"])["s"][2] == b"no number"


@pytest.mark.parametrize(
    ("column", "value", "old", "new"),
    [
        ("s", "'new'", [b"a", b"", b"c"], b"new"),
        ("lc", "'new'", [b"a", b"b", b"a"], b"new"),
        ("lc", "upper(lc)", [b"a", b"b", b"a"], b"B"),
        ("ln", "NULL", [b"a", b"b", b"a"], None),
        ("ln", "'new'", [None, None, None], b"new"),
        ("ln", "NULL", [None, b"b", None], None),
        ("ar", "['x', s]", [[b"a"], [], [b"b", b"c"]], [b"x", b"t"]),
        ("la", "['x', s]", [[b"a"], [], [b"b", b"c"]], [b"x", b"t"]),
        ("la", "[]", [[b"a"], [b"d"], [b"b", b"c"]], []),
        ("tu", "(k + 3, NULL)", [{"x": 1, "y": b"a"}, {"x": 2, "y": b"b"}, {"x": 3, "y": None}], {"x": 4, "y": None}),
        ("m", "map(s, 300)", [[], [{"keys": b"a", "values": 1}], []], [{"keys": b"t", "values": 44}]),
        ("w", "w + 1", [b"\0" * 32, b"\xff" * 32, b"\1" + b"\0" * 31], b"\0" * 32),
        ("id", "'00000000-0000-0000-0000-000000000000'", [b"a" * 16, b"b" * 16, b"c" * 16], b"\0" * 16),
    ],
)
def test_any_type_may_be_updated(column: str, value: str, old: list[Any], new: object) -> None:
    columns = {"k": [0, 1, 2], "s": [b"t"] * 3} | {column: old}
    steps = steps_of(f"UPDATE {column} = {value} WHERE k = 1")
    assert applied(steps, [column], **columns) == {column: [old[0], new, old[2]]}
    every = applied(steps_of(f"UPDATE {column} = {value} WHERE k < 9"), [column], **columns)[column]
    assert every[1] == new
    assert applied(steps_of(f"UPDATE {column} = {value} WHERE k > 9"), [column], **columns) == {column: old}


@pytest.mark.parametrize("column", ["lc", "ln"])
def test_dictionaries_have_no_value_twice(column: str) -> None:
    given = arrays_of(4, **{column: [b"a", b"A", None if column == "ln" else b"b", b"b"]})
    for where in ("1", "k > 0"):
        steps = steps_of(f"UPDATE {column} = upper({column}) WHERE {where}", f"UPDATE {column} = 'B' WHERE k = 0")
        found = steps.apply(given, 4, [column])[0][column]
        dictionary = found.dictionary.to_pylist()
        assert len(set(dictionary)) == len(dictionary)
        assert None not in dictionary
        assert found.to_pylist() == [b"B", b"A", None if column == "ln" else b"B", b"B"]


def test_slices_of_columns_are_read_as_they_are() -> None:
    whole = arrays_of(6, s=[b"a", b"b", b"c", b"d", b"e", b"f"], u=[0, 0, 1, 1, 0, 1])
    part = {name: array.slice(2, 3) for name, array in whole.items()}
    found, _ = steps_of("UPDATE s = concat(s, toString(k)) WHERE u").apply(part, 3, ["s"])
    assert found["s"].to_pylist() == [b"c2", b"d3", b"e"]


@pytest.mark.parametrize("commands", ["UPDATE a = b, lc = s WHERE u", "DELETE WHERE u", "UPDATE m = map() WHERE 1"])
def test_no_rows_stay_no_rows(commands: str) -> None:
    steps = steps_of(commands)
    given = {name: pa.array([], storage_type(kind)) for name, kind in SCHEMA.types.items()}
    found, mask = steps.apply(given, 0, ["a", "lc", "m", "ma", "al"])
    assert mask is None
    assert all(len(array) == 0 and array.type == storage_type(SCHEMA.types[name]) for name, array in found.items())
    assert [len(mask) for mask in steps.matches(given, 0)] == [0] * len(steps.steps)


def test_a_mutation_without_columns_counts_rows() -> None:
    assert applied(steps_of("DELETE WHERE 1"), ["k"]) == {"k": []}
    found, mask = steps_of("DELETE WHERE 0 = 0").apply({}, 3, [])
    assert (found, None if mask is None else mask.tolist()) == ({}, [False] * 3)


def test_known_matches_give_the_same_rows() -> None:
    rng = np.random.default_rng(3)
    rows = 50
    given = {
        n: pa.array(rng.integers(0, 5, rows), storage_type(SCHEMA.types[n])) for n in ("k", "a", "b", "u", "ma", "mb")
    }
    steps = steps_of(
        "UPDATE a = b + 1 WHERE u > 1", "DELETE WHERE a = 3", "UPDATE b = a, u = 9 WHERE a < 4 AND u < 3",
        "UPDATE a = a * 2 WHERE u = 9, DELETE WHERE a = 8 AND k = 1",
    )  # fmt: skip
    wanted = ["a", "b", "u", "ma", "mb", "al"]
    expected, mask = steps.apply(given, rows, wanted)
    assert mask is not None
    assert 0 < mask.sum() < rows
    matches = steps.matches({name: given[name] for name in steps.for_matches()}, rows)
    deleted = np.logical_or.reduce([m for m, step in zip(matches, steps.steps, strict=True) if step.deletes])
    assert (deleted == ~mask).all()
    alive = pa.array(np.flatnonzero(mask))
    left = {name: given[name].take(alive) for name in steps.sources(wanted)}
    found, _ = steps.apply(left, len(alive), wanted, known=[match[mask] for match in matches])
    assert found == expected
    again, _ = steps.apply(
        {n: given[n].take(alive) for n in steps.base(wanted, deletes=False)}, len(alive), wanted, deletes=False
    )
    assert again == expected


# -- binding


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("UPDATE a = nothing WHERE 1", "UNKNOWN_IDENTIFIER"),
        ("UPDATE a = 1 WHERE nothing", "UNKNOWN_IDENTIFIER"),
        ("DELETE WHERE a", "ILLEGAL_TYPE_OF_ARGUMENT"),
        ("DELETE WHERE s", "ILLEGAL_TYPE_OF_ARGUMENT"),
        ("UPDATE a = 'x' WHERE 1", "CANNOT_PARSE_TEXT"),
        ("UPDATE a = map('x', 1) WHERE 1", "ILLEGAL_TYPE_OF_ARGUMENT"),
        ("UPDATE a = rand() WHERE 1", "BAD_ARGUMENTS"),
    ],
)
def test_what_cannot_be_bound_is_refused(command: str, name: str) -> None:
    with pytest.raises(MergelakeError) as refused:
        bind_command(parse_commands(command)[0], SCHEMA)
    assert refused.value.name == name


@pytest.mark.parametrize("where", ["u", "n > 1", "NULL", "1", "u AND n", "al > 3"])
def test_conditions_may_be_null_and_read_alias_columns(where: str) -> None:
    (step,) = bind_command(parse_commands(f"DELETE WHERE {where}")[0], SCHEMA)
    assert step.deletes


@pytest.mark.parametrize("seed", range(80))
def test_columns_of_random_types_are_assigned_to_each_other(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    draw = random_mixed_type if seed % 4 == 0 else random_type
    kind = parse_type(draw(rng, int(rng.integers(1, 4))))
    schema = TableSchema(
        (Column(0, "k", parse_type("UInt8")), Column(1, "a", kind), Column(2, "b", kind)), order_by=("k",)
    )
    rows = int(rng.choice([1, 5, 40]))
    given = {
        "k": pa.array(rng.integers(0, 4, rows, np.uint8)),
        **{n: mixed_array(rng, kind, rows) for n in ("a", "b")},
    }
    text = "UPDATE a = b, b = a WHERE k = 1, DELETE WHERE k = 2, UPDATE a = b WHERE k = 3"
    steps = bind_steps([PendingMutation("1", 5, text, None, 0, 0, 0)], schema, "all")
    assert steps is not None
    found, mask = steps.apply(given, rows, ["a", "b"])
    k, a, b = (given[name].to_pylist() for name in ("k", "a", "b"))
    stay = [i for i in range(rows) if k[i] != 2]
    assert stay == (list(range(rows)) if mask is None else np.flatnonzero(mask).tolist())
    for name, expected in (
        ("a", [b[i] if k[i] in (1, 3) else a[i] for i in stay]),
        ("b", [a[i] if k[i] == 1 else b[i] for i in stay]),
    ):
        found[name].validate(full=True)
        assert found[name].type == storage_type(kind)
        assert repr(found[name].to_pylist()) == repr(expected)
