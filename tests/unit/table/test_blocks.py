"""Cutting batches into blocks, and completing them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.table.rows.blocks import BlockCompleter, cut_blocks


def batches(*sizes):
    start = 0
    for size in sizes:
        yield pa.record_batch({"k": pa.array(range(start, start + size), pa.int64())})
        start += size


@pytest.mark.parametrize("sizes", [(10,), (1,) * 10, (0, 3, 0, 7), (4, 6), ()])
@pytest.mark.parametrize("rows_max", [1, 3, 4, 10, 100, 0])
def test_blocks_hold_the_same_rows_in_order(sizes, rows_max):
    blocks = list(cut_blocks(batches(*sizes), rows_max, 0))
    assert [row for block in blocks for row in block["k"].to_pylist()] == list(range(sum(sizes)))
    limit = rows_max or 100
    assert all(0 < block.num_rows <= limit for block in blocks)
    assert all(block.num_rows == limit for block in blocks[:-1])


def test_blocks_are_cut_by_bytes_too():
    blocks = list(cut_blocks(batches(100, 100), 0, 160))
    assert max(block.num_rows for block in blocks) == 20
    assert sum(block.num_rows for block in blocks) == 200
    wide = pa.table({"s": pa.array([b"x" * 1000] * 3, pa.binary())})
    assert [block.num_rows for block in cut_blocks([wide], 0, 10)] == [1, 1, 1]


SCHEMA = TableSchema(
    (
        Column(0, "k", parse_type("Int64")),
        Column(1, "s", parse_type("String")),
        Column(2, "d", parse_type("UInt32"), "DEFAULT", "e * 2"),
        Column(3, "e", parse_type("Int64"), "MATERIALIZED", "k + 1"),
        Column(4, "n", parse_type("Nullable(Int8)")),
    ),
    order_by=("k",),
)


def complete(table):
    return BlockCompleter(SCHEMA, table.column_names, now_ms=0, seed=lambda: 0).complete(table)


def test_missing_columns_get_their_defaults_in_the_order_of_the_schema():
    out = complete(pa.table({"k": pa.array([1, 2], pa.int64())}))
    assert out.column_names == ["k", "s", "d", "e", "n"]
    assert out.to_pydict() == {"k": [1, 2], "s": [b"", b""], "d": [4, 6], "e": [2, 3], "n": [None, None]}
    assert out.schema.field("d").type == pa.uint32()


def test_a_given_column_is_not_computed():
    out = complete(pa.table({"d": pa.array([7], pa.uint32()), "k": pa.array([1], pa.int64())}))
    assert out["d"].to_pylist() == [7]


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (pa.table({"k": pa.array([1], pa.int64()), "kk": [1]}), "NO_SUCH_COLUMN_IN_TABLE"),
        (pa.table({"e": pa.array([1], pa.int64())}), "ILLEGAL_COLUMN"),
        (pa.table({"k": pa.array([1], pa.int32())}), "TYPE_MISMATCH"),
        (pa.table({}), "EMPTY_LIST_OF_COLUMNS_PASSED"),
        (pa.table([pa.array([1]), pa.array([1])], names=["k", "k"]), "DUPLICATE_COLUMN"),
    ],
)
def test_columns_that_cannot_be_given_are_refused(table, name):
    with pytest.raises(MergelakeError, match=name):
        complete(table)


def test_long_rows_that_lie_together_do_not_make_a_block_too_large():
    """Measured by the average row alone, all long rows came into one block: past 2 GiB Arrow cannot hold it."""
    table = pa.table({"s": pa.array([b"x" * 100_000] * 100 + [b""] * 100_000, pa.binary())})
    blocks = list(cut_blocks([table], 1 << 20, 1_000_000))
    assert max(block.nbytes for block in blocks) <= 3_000_000
    assert sum(block.num_rows for block in blocks) == table.num_rows
    assert pa.concat_tables(blocks).combine_chunks() == table
