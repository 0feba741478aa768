"""ReplacingMergeTree's row logic on blocks: what an insert keeps, what FINAL shows."""

import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import TableSchema
from mergelake.core.types.types import DataType, parse_type
from mergelake.engines.rules.modes import collapse_block, final_rows, mode_of
from mergelake.table.definition.define import define

COLUMNS = {"k": "UInt32", "v": "UInt8", "gone": "UInt8", "a": "String"}


def schema_of(engine: str, **arguments: object) -> TableSchema:
    return define(COLUMNS, **{"order_by": ["k"], "engine": engine, **arguments})  # type: ignore[arg-type]


def block(*rows: tuple[int, int, int, str]) -> pa.Table:
    types = (pa.uint32(), pa.uint8(), pa.uint8(), pa.binary())
    return pa.table([pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)], names=list(COLUMNS))


def texts(table: pa.Table) -> list[bytes]:
    found: list[bytes] = table.column("a").to_pylist()
    return found


def keys_of(table: pa.Table) -> tuple[list[pa.Array], list[DataType]]:
    return [table.column("k").combine_chunks()], [parse_type("UInt32")]


ROWS = block((1, 5, 0, "a"), (1, 7, 0, "b"), (1, 7, 0, "c"), (1, 6, 0, "d"), (2, 1, 0, "e"), (2, 3, 1, "f"))


@pytest.mark.parametrize(
    ("engine", "kept"),
    [
        ("MergeTree", [b"a", b"b", b"c", b"d", b"e", b"f"]),
        ("ReplacingMergeTree", [b"d", b"f"]),
        ("ReplacingMergeTree(v)", [b"c", b"f"]),
        ("ReplacingMergeTree(v, gone)", [b"c", b"f"]),
    ],
)
def test_an_insert_keeps_what_a_merge_would(engine: str, kept: list[bytes]) -> None:
    assert texts(collapse_block(ROWS, schema_of(engine))) == kept


def test_final_leaves_out_keys_whose_winner_is_a_tombstone() -> None:
    schema = schema_of("ReplacingMergeTree(v, gone)")
    assert texts(ROWS.filter(pa.array(final_rows(ROWS, schema, *keys_of(ROWS))))) == [b"c"]


def test_all_rows_have_one_key_without_a_sorting_key() -> None:
    schema = schema_of("ReplacingMergeTree(v)", order_by=[])
    assert texts(collapse_block(ROWS, schema)) == [b"c"]


def test_a_block_in_chunks_is_one_block() -> None:
    schema = schema_of("ReplacingMergeTree(v)")
    chunked = pa.concat_tables([ROWS.slice(0, 2), ROWS.slice(2)])
    assert texts(collapse_block(chunked, schema)) == [b"c", b"f"]


def test_a_tombstone_is_0_or_1() -> None:
    with pytest.raises(MergelakeError, match="is_deleted = 2") as caught:
        collapse_block(block((1, 1, 2, "a")), schema_of("ReplacingMergeTree(v, gone)"))
    assert caught.value.code == 117


def test_final_needs_an_engine_that_collapses() -> None:
    with pytest.raises(MergelakeError, match="MergeTree does not support FINAL") as caught:
        final_rows(ROWS, schema_of("MergeTree"), *keys_of(ROWS))
    assert caught.value.code == 181
    assert mode_of(schema_of("MergeTree")) is None


@pytest.mark.parametrize(
    ("arguments", "name"),
    [("a", "BAD_TYPE_OF_FIELD"), ("v, k", "BAD_TYPE_OF_FIELD"), ("nope", "NO_SUCH_COLUMN_IN_TABLE")],
)
def test_arguments_that_cannot_be_versions_are_refused(arguments: str, name: str) -> None:
    with pytest.raises(MergelakeError) as caught:
        schema_of(f"ReplacingMergeTree({arguments})")
    assert caught.value.name == name
