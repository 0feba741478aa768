"""Which schemas are refused, and with which of ClickHouse's codes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import Column, SkipIndex, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.table.definition.define import check_schema, define

COLUMNS = {"k": "UInt64", "s": "String", "t": "DateTime", "n": "Nullable(Int32)", "f": "Float64", "d": "UInt8"}
ARRAY = {**COLUMNS, "a": "Array(Int8)"}


def test_a_plain_table_is_accepted_and_its_primary_key_spelled_out():
    schema = define(COLUMNS, order_by=["s", "t"], partition_by="toYYYYMM(t)")
    assert schema.primary_key == ("s", "t")
    assert schema.partition_by == ("toYYYYMM(t)",)
    assert check_schema(schema) == schema


@pytest.mark.parametrize(
    ("engine", "plain"),
    [
        ("ReplicatedMergeTree('/clickhouse/tables/{shard}/t', '{replica}')", ("MergeTree", ())),
        ("ReplicatedReplacingMergeTree('/t', 'r', t)", ("ReplacingMergeTree", ("t",))),
        ("ReplicatedReplacingMergeTree(t)", ("ReplacingMergeTree", ("t",))),
        ("SharedMergeTree", ("MergeTree", ())),
        ("SharedReplacingMergeTree('/t', 'r', t, d)", ("ReplacingMergeTree", ("t", "d"))),
        ("ReplicatedAggregatingMergeTree('/t', 'r')", ("AggregatingMergeTree", ())),
        ("SharedSummingMergeTree('/t', 'r', (t, d))", ("SummingMergeTree", ("(t, d)",))),
    ],
)
def test_replicated_and_shared_engines_are_the_plain_ones(engine, plain):
    schema = define(COLUMNS, order_by="k", engine=engine)
    assert (schema.engine, schema.engine_args) == plain


def test_an_engine_may_carry_arguments():
    schema = define(COLUMNS, order_by="k", engine="ReplacingMergeTree(t, d)")
    assert (schema.engine, schema.engine_args) == ("ReplacingMergeTree", ("t", "d"))


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ({"order_by": "nobody"}, 47, "nobody"),
        ({"order_by": "lenght(s)"}, 46, "lenght"),
        ({"order_by": ["k", "k"]}, 36, "duplicate"),
        ({"order_by": "n"}, 44, "allow_nullable_key"),
        ({"order_by": "1"}, 44, "constants"),
        ({"order_by": ["k", "s"], "primary_key": "s"}, 36, "prefix"),
        ({"order_by": "k", "primary_key": ["k", "s"]}, 36, "prefix"),
        ({"order_by": "k", "partition_by": "f"}, 36, "Floating point"),
        ({"order_by": "k", "partition_by": "n"}, 44, "allow_nullable_key"),
        ({"order_by": "k", "engine": "MergeTee"}, 56, "Supported are MergeTree, ReplacingMergeTree"),
        ({"order_by": "k", "engine": "GraphiteMergeTree('x')"}, 48, "not supported"),
        ({"order_by": "k", "engine": "ReplicatedMergeTree('/t')"}, 42, "or neither"),
        ({"order_by": "k", "engine": "MergeTree(k)"}, 42, "no arguments"),
        ({"order_by": "k", "engine": "ReplacingMergeTree(s)"}, 169, "version column s"),
        ({"order_by": "k", "engine": "ReplacingMergeTree(n)"}, 169, "version column n"),
        ({"order_by": "k", "engine": "ReplacingMergeTree(t, k)"}, 169, "UInt8"),
        ({"order_by": "k", "engine": "ReplacingMergeTree(nobody)"}, 16, "nobody"),
        ({"order_by": "k", "settings": {"index_granularty": 1}}, 115, "index_granularity"),
        ({"order_by": "k", "settings": {"merge_upload_policy": "sometimes"}}, 36, "'direct'"),
        ({"order_by": "k", "settings": {"storage_policy": "tiered"}}, 478, "tiered"),
        ({"order_by": "k", "settings": {"default_compression_codec": "LZ5"}}, 432, "LZ5"),
    ],
)
def test_what_cannot_be_a_table_is_refused_by_code(arguments, code, says):
    with pytest.raises(MergelakeError) as caught:
        define(COLUMNS, **arguments)
    assert caught.value.code == code, caught.value
    assert says in str(caught.value)


def test_arrays_and_maps_order_rows_and_values_of_any_type_do_not():
    assert define(ARRAY, order_by="a").order_by == ("a",)
    for kind in ("Dynamic", "Array(Variant(UInt8, String))", "SimpleAggregateFunction(sum, UInt64)"):
        with pytest.raises(MergelakeError, match="DATA_TYPE_CANNOT_BE_USED_IN_KEY"):
            define({"a": kind}, order_by="a")


def test_nullable_keys_are_allowed_by_setting():
    define(COLUMNS, order_by="n", partition_by="n", settings={"allow_nullable_key": 1})


def test_no_columns_make_no_table():
    with pytest.raises(MergelakeError, match="EMPTY_LIST_OF_COLUMNS_PASSED"):
        define({})


def column(number, name, kind="UInt64", **fields):
    return Column(number, name, parse_type(kind), **fields)


def test_defaults_are_checked_before_a_table_is_made():
    fine = TableSchema((column(0, "k"), column(1, "d", default_kind="DEFAULT", default="k + 1")), order_by=("k",))
    assert check_schema(fine)
    for default, code in (("k + nobody", 47), ("nothing(k)", 46), ("k +", 62)):
        wrong = replace(fine, columns=(fine.columns[0], replace(fine.columns[1], default=default)))
        with pytest.raises(MergelakeError) as caught:
            check_schema(wrong)
        assert caught.value.code == code
    circle = TableSchema(
        (
            column(0, "k"),
            column(1, "a", default_kind="DEFAULT", default="b"),
            column(2, "b", default_kind="DEFAULT", default="a"),
        ),
        order_by=("k",),
    )
    with pytest.raises(MergelakeError, match="Cyclic alias"):
        check_schema(circle)


def test_what_comes_later_is_refused_by_name():
    plain = define(COLUMNS, order_by="k")
    with pytest.raises(MergelakeError, match="NOT_IMPLEMENTED"):
        check_schema(replace(plain, indices=(SkipIndex("i", "k", "vector_similarity"),)))


def test_a_sampling_key_is_unsigned_and_in_the_primary_key():
    assert check_schema(replace(define(COLUMNS, order_by="k"), sample_by="k")).sample_by == "k"
    with pytest.raises(MergelakeError, match="primary key"):
        check_schema(replace(define(COLUMNS, order_by="k"), sample_by="d"))
    with pytest.raises(MergelakeError, match="unsigned"):
        check_schema(replace(define(COLUMNS, order_by="t"), sample_by="t"))
