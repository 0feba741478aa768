"""Rows by every door of Python, of every type, under odd names: the same rows, or a refusal with a code."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.storage import to_public, to_storage
from mergelake.core.types.types import parse_type
from mergelake.format.serializations.values import encode_values
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from tests.helpers.random_arrays import random_array
from tests.helpers.random_types import LEAVES, random_type

NAMES = ("n.a", "x y", "Ü", "ü", "q`q", "a,b", "$1", "K", "SELECT", "k'", 'd"q', "日本")
NESTED = int(os.environ.get("DOOR_TYPES", "40"))


def pandas_frame(table: pa.Table) -> Any:
    return table.to_pandas(integer_object_nulls=True)


def polars_frame(table: pa.Table) -> Any:
    return pytest.importorskip("polars").from_arrow(table)


def of_dicts(value: Any, kind: pa.DataType) -> Any:
    """A Python value with dicts for maps, where no key comes twice."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = [(key, of_dicts(item, kind.item_type)) for key, item in value]
        return dict(pairs) if len(dict(pairs)) == len(pairs) else pairs
    if pa.types.is_list(kind):
        return [of_dicts(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: of_dicts(value[field.name], field.type) for field in kind}
    return value


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return [
        {name: of_dicts(row[name], table.schema.field(name).type) for name in table.column_names}
        for row in table.to_pylist()
    ]


DOORS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "chunks": lambda table: pa.concat_tables([table.slice(0, 3), table.slice(3)]),
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "reader": lambda table: table.to_reader(max_chunksize=4),
    "pandas": pandas_frame,
    "polars": polars_frame,
    "dict of lists": lambda table: {name: [row[name] for row in rows(table)] for name in table.column_names},
    "list of dicts": rows,
}
EXACT = ("table", "chunks", "batch", "reader")


def refusal(call: Callable[[], Any]) -> str:
    """The name of the error by which a call is refused; empty where it is not."""
    try:
        call()
    except MergelakeError as failure:
        return failure.name or "no name"
    return ""


def types() -> list[str]:
    rng = np.random.default_rng(21)
    return [*LEAVES, *(f"Map(String, {kind})" for kind in LEAVES[:20]), *(random_type(rng, 3) for _ in range(NESTED))]


@pytest.mark.parametrize("at", range(len(types())))
def test_rows_of_any_type_go_in_unchanged_or_are_refused(at: int) -> None:
    text = types()[at]
    kind, rng = parse_type(text), np.random.default_rng([3, at])
    name = NAMES[at % len(NAMES)]
    stored = random_array(rng, kind, 12, 0.1)
    warehouse = Warehouse(MemoryStore(), threads=1)
    try:
        schema = define({name: text, "k": "Int64"}, order_by="k")
        table = warehouse.create_table("t", schema)
    except MergelakeError:
        return  # no column of a table has this type
    wanted = encode_values([stored], [kind])
    given = pa.table({name: to_public(stored, kind), "k": pa.array(range(12), pa.int64())})
    for door, made in DOORS.items():
        if door == "pandas" and "Float" in text:
            continue  # there NaN is what is missing
        try:
            data = made(given)
        except BaseException:  # polars' panics are no Exceptions
            assert door not in EXACT, (text, door)
            continue  # this library has no such values
        if door in EXACT:
            table.append(data)
        elif refusal(lambda data=data: table.append(data)):
            continue
        found = table.scan([name], ordered=True).arrow()[name]
        assert encode_values([to_storage(found, kind)], [kind]) == wanted, (text, door)
        table.truncate()


def test_timestamps_of_pandas_keep_their_nanoseconds() -> None:
    table = Warehouse(MemoryStore(), threads=1).create_table(
        "t", define({"t": "DateTime64(9)", "m": "Map(String, DateTime64(9))"})
    )
    pandas = pytest.importorskip("pandas")
    value = pandas.Timestamp(1_234_567_891, tz="UTC")
    table.append({"t": [value], "m": [{"a": value}]})
    table.append([{"t": value, "m": {"a": value}}])
    table.append(pandas.DataFrame({"t": [value], "m": [{"a": value}]}))
    found = table.scan().arrow()
    assert found["t"].cast(pa.int64()).to_pylist() == [1_234_567_891] * 3
    assert [pairs[0][1].value for pairs in found["m"].to_pylist()] == [1_234_567_891] * 3


def test_structs_for_a_map_are_taken_where_they_say_which_keys_there_are() -> None:
    schema = define({"m": "Map(String, UInt8)", "n": "Map(UInt8, Nullable(String))"})
    table = Warehouse(MemoryStore(), threads=1).create_table("t", schema)
    table.append(pa.table({"m": [{"a": 1}, {"b": 2}, {}]}))
    table.append(pa.table({"n": [{"1": "x", "2": "y"}] * 2}).slice(1))
    table.append(pa.table({"m": pa.array([{}, {}], pa.struct([]))}))
    found = table.scan(ordered=True).arrow().to_pylist()
    assert [row["m"] for row in found] == [[("a", 1)], [("b", 2)], [], [], [], []]
    assert [row["n"] for row in found] == [[], [], [], [(1, "x"), (2, "y")], [], []]
    for bad, says in (
        ({"n": [{"1": "x"}, {"2": "y"}]}, "missing, or its value NULL"),
        ({"m": [{"a": 1}, None]}, "Cannot insert NULL"),
        ({"m": [{"a": 1, "b": "x"}]}, "Cannot convert"),
        ({"m": [{"a": 300}]}, "out of range"),
        ({"n": [{"x": "x"}]}, "Cannot parse"),
    ):
        with pytest.raises(MergelakeError, match=says):
            table.append(pa.table(bad))
