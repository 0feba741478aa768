"""Views as text: which levels, which conditions, and what is too long."""

from __future__ import annotations

import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.log.model.state import PendingMutation
from mergelake.table.pending.select import UNCHANGED, SourceText, View, view_of

COLUMNS = {"k": "UInt32", "a": "Int32", "b": "Int32", "c": "LowCardinality(String)", "t": "Tuple(x Int32)"}
SCHEMA = TableSchema(
    (
        *(Column(i, name, parse_type(kind)) for i, (name, kind) in enumerate(COLUMNS.items())),
        Column(9, "m", parse_type("Int64"), "MATERIALIZED", "a + 1"),
    ),
    order_by=("k",),
    primary_key=("k",),
)
TABLE = SourceText("parts")


def view(*commands: str, newest: int = 4, schema: TableSchema = SCHEMA) -> View:
    """The view of parts up to `newest` that lack mutations 5, 6, …."""
    mutations = [PendingMutation(str(at), 5 + at, text, None, 0, 0, 0) for at, text in enumerate(commands)]
    return view_of(mutations, schema, newest)


def test_a_view_of_nothing_is_the_table() -> None:
    source = SourceText("parts", final=True, sample="SAMPLE 1/2", where="w", prewhere="p")
    assert UNCHANGED.select(("k", "a b"), source) == "SELECT `k`, `a b` FROM parts FINAL SAMPLE 1/2 PREWHERE p WHERE w"


def test_only_what_columns_need_is_computed() -> None:
    seen = view("UPDATE a = 1 WHERE b > 2")
    assert seen.select(("k",), TABLE) == "SELECT _view.`k` AS `k` FROM parts AS _view"
    assert seen.select(("a",), TABLE) == (
        "SELECT multiIf(_view.`b` > 2, CAST(1, 'Int32'), _view.`a`) AS `a` FROM parts AS _view"
    )
    seen = view("UPDATE a = 1 WHERE b > 2", "DELETE WHERE a = 1")
    assert "NOT ifNull(_view.`a` = 1, 0)" in seen.select(("k",), TABLE)
    assert "CAST(1, 'Int32')" in seen.select(("k",), TABLE)


def test_commands_that_do_not_depend_on_one_another_are_in_one_level() -> None:
    alone = view(*(f"UPDATE a = {n} WHERE k = {n}" for n in range(30)), *(f"DELETE WHERE k = {n}" for n in range(9)))
    text = alone.select(("k", "a"), TABLE)
    assert text.count("SELECT") == 1
    assert text.index("CAST(29") < text.index("CAST(0")  # the last one counts
    assert view("UPDATE a = b WHERE k = 1", "UPDATE b = a WHERE k = 2").select(("a", "b"), TABLE).count("SELECT") == 2
    swapped = view("UPDATE a = b, b = a WHERE k = 1").select(("a", "b"), TABLE)
    assert swapped.count("SELECT") == 1
    assert "CAST(_view.`b`, 'Int32'), _view.`a`) AS `a`" in swapped


def test_types_stay_exact() -> None:
    text = view("UPDATE c = 'x' WHERE k = 1").select(("c",), TABLE)
    assert text.startswith("SELECT CAST(multiIf(_view.`k` = 1, CAST('x', 'LowCardinality(String)'), _view.`c`), 'LowC")


def test_a_subcolumn_is_part_of_its_column() -> None:
    text = view("UPDATE t = tuple(b) WHERE k = 1", "UPDATE a = 0 WHERE t.x = 3").select(("a",), TABLE)
    assert text.count("SELECT") == 2
    assert "getSubcolumn(_view.`t`, 'x') = 3" in text


def test_materialized_columns_follow() -> None:
    text = view("UPDATE a = b WHERE k = 1").select(("m",), TABLE)
    assert "multiIf(_view.`k` = 1, CAST(CAST(_view.`b`, 'Int32') + 1, 'Int64'), _view.`m`) AS `m`" in text


def test_parts_that_have_a_mutation_are_left_alone() -> None:
    assert "_part_data_version" not in view("DELETE WHERE k = 1", newest=4).select(("k",), TABLE)
    seen = view("DELETE WHERE k = 1", "UPDATE a = 1 IN PARTITION ID 'p' WHERE b = 1", newest=5)
    text = seen.select(("k", "a"), TABLE)
    assert "(_view.`_part_data_version` < 5) AND (_view.`k` = 1)" in text
    assert "_part_data_version` < 6" not in text
    assert "(_view.`_partition_id` = 'p') AND (_view.`b` = 1)" in text


def test_deleted_rows_do_not_replace_others() -> None:
    seen = view("UPDATE a = a + 1 WHERE k = 1", "DELETE WHERE a = 7")
    text = seen.select(("k", "a"), SourceText("parts", final=True, sample="SAMPLE 0.1", where="k < 5"))
    assert text == (
        "SELECT _view.`k` AS `k`, multiIf(_view.`k` = 1, CAST(_view.`a` + 1, 'Int32'), _view.`a`) AS `a` "
        "FROM parts AS _view FINAL SAMPLE 0.1 PREWHERE NOT ifNull(multiIf(_view.`k` = 1, CAST(_view.`a` + 1, 'Int32'), "
        "_view.`a`) = 7, 0) WHERE (k < 5)"
    )
    filtered = seen.select(("k",), SourceText("parts", final=True, prewhere="a > 3 OR b"))
    assert filtered.endswith("_view.`a`) > 3) OR _view.`b`)")


def test_no_column_has_the_name_of_a_level() -> None:
    columns = (*SCHEMA.columns, Column(20, "_view", parse_type("UInt8")))
    text = view("DELETE WHERE k = 1", schema=TableSchema(columns, order_by=("k",))).select(("_view",), TABLE)
    assert text == "SELECT _view_.`_view` AS `_view` FROM parts AS _view_ WHERE NOT ifNull(_view_.`k` = 1, 0)"


def test_what_grows_with_each_command_is_refused() -> None:
    chain = view(*(f"UPDATE a = a + {n} WHERE a % 3 = 1" for n in range(12)))
    with pytest.raises(MergelakeError, match="that depend on each other"):
        chain.select(("a",), TABLE)
    with pytest.raises(MergelakeError, match="that depend on each other"):
        view(*chain_of_deletes()).select(("k",), SourceText("parts", final=True))
    assert chain.select(("k", "b"), TABLE) == "SELECT _view.`k` AS `k`, _view.`b` AS `b` FROM parts AS _view"
    many = ", ".join(map(str, range(30_000)))
    with pytest.raises(MergelakeError, match="20000 nodes"):
        view(f"DELETE WHERE k IN ({many})")


def chain_of_deletes() -> list[str]:
    return [*(f"UPDATE a = a + {n} WHERE a % 3 = 1" for n in range(12)), "DELETE WHERE a = 1"]


def test_a_column_named_as_a_virtual_one_is_not_taken_for_it() -> None:
    columns = (*SCHEMA.columns, Column(20, "_partition_id", parse_type("UInt8")))
    schema = TableSchema(columns, order_by=("k",))
    with pytest.raises(MergelakeError, match="The table has a column _partition_id"):
        view("DELETE IN PARTITION ID 'p' WHERE k = 1", schema=schema)
    assert "_partition_id" not in view("DELETE WHERE k = 1", schema=schema).select(("k",), TABLE)
