"""Every type into ClickHouse and back: what it says the type and the text of each value are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.convert.storage import to_public, to_storage
from mergelake.core.types.arrow import arrow_type, storage_type
from mergelake.core.types.types import is_nullable, parse_type
from mergelake.expr import bind, parse
from mergelake.query.embedded import engine
from mergelake.query.embedded.arrow_bridge import exact_expression, parse_types, to_public as answer_to_public
from mergelake.scan.read.source import evaluate, joined

CASES = [
    ("UInt8", "[0, 255]"),
    ("Int64", "[-9223372036854775808, 5]"),
    ("UInt64", "[18446744073709551615]"),
    ("Int128", "[-170141183460469231731687303715884105728, 1]"),
    ("UInt256", "[1, 7]"),
    ("Float32", "[1.5, -inf]"),
    ("Bool", "[true, false]"),
    ("String", "['', 'abc', 'ü', unhex('ff00')]"),
    ("FixedString(3)", "['abc', 'x']"),
    ("LowCardinality(String)", "['a', 'b', 'a']"),
    ("LowCardinality(Nullable(String))", "['a', NULL]"),
    ("LowCardinality(DateTime('UTC'))", "[toDateTime(5, 'UTC')]"),
    ("Date", "['2020-02-29', '2149-06-06']"),
    ("Date32", "['1900-01-01', '2299-12-31']"),
    ("DateTime", "[1, 4294967295]"),
    ("DateTime('Europe/Berlin')", "[1, 1700000000]"),
    ("DateTime64(3, 'UTC')", "['2020-01-01 00:00:00.123']"),
    ("DateTime64(1, 'UTC')", "['2020-01-01 00:00:00.1']"),
    ("DateTime64(9, 'UTC')", "['2020-01-01 00:00:00.123456789']"),
    ("Enum8('a' = -1, 'b' = 2)", "['a', 'b']"),
    ("Enum16('x' = 1000)", "['x']"),
    ("UUID", "['61f0c404-5cb3-11e7-907b-a6006ad3dba0']"),
    ("IPv4", "['1.2.3.4']"),
    ("IPv6", "['::1', '2001:db8::1']"),
    ("Decimal(9, 2)", "[1.5, -0.01]"),
    ("Decimal(18, 4)", "[1.5]"),
    ("Decimal(38, 10)", "[1.5, -2]"),
    ("Decimal(76, 20)", "[1.5]"),
    ("Nullable(Int32)", "[1, NULL]"),
    ("Nullable(UUID)", "['61f0c404-5cb3-11e7-907b-a6006ad3dba0', NULL]"),
    ("Nullable(DateTime64(3, 'UTC'))", "['2020-01-01 00:00:00.123', NULL]"),
    ("Nullable(Decimal(18, 2))", "[1.5, NULL]"),
    ("Nullable(Bool)", "[true, NULL]"),
    ("Array(UInt16)", "[[1, 2], []]"),
    ("Array(UUID)", "[['61f0c404-5cb3-11e7-907b-a6006ad3dba0'], []]"),
    ("Array(Nullable(Date))", "[['2020-01-01', NULL]]"),
    ("Array(Array(Decimal(9, 1)))", "[[[1.5], []]]"),
    ("Tuple(Date, String)", "[('2020-01-01', 'x')]"),
    ("Tuple(a UUID, `b c` Nullable(Int8))", "[('61f0c404-5cb3-11e7-907b-a6006ad3dba0', NULL)]"),
    ("Map(String, Date)", "[map('a', '2020-01-01'), map()]"),
    ("Map(String, UUID)", "[map('a', '61f0c404-5cb3-11e7-907b-a6006ad3dba0')]"),
]

WORDS = "LowCardinality(Nullable(String))"


def answer(kind: str, values: str) -> tuple[pa.Table, list[tuple[str, str]]]:
    """A column of ClickHouse's own in the public form, and its values as text."""
    quoted = kind.replace("\\", "\\\\").replace("'", "\\'")
    sql = f"SELECT CAST(arrayJoin({values}), '{quoted}') AS c"
    table = answer_to_public(engine.run(sql).table(), parse_types([kind]))
    told = engine.run(f"SELECT toTypeName(c) AS t, toString(c) AS v FROM ({sql})").table()
    return table, list(zip(told["t"].to_pylist(), told["v"].cast(pa.binary()).to_pylist(), strict=True))


@pytest.mark.parametrize(("kind", "values"), CASES, ids=[kind for kind, _ in CASES])
def test_a_type_comes_out_in_the_public_form_and_goes_in_as_exactly_itself(kind: str, values: str) -> None:
    data_type = parse_type(kind)
    table, told = answer(kind, values)
    assert table["c"].type == arrow_type(data_type)
    storage = to_storage(table["c"].combine_chunks(), data_type, "c")
    assert storage.type == storage_type(data_type)
    field = pa.field("c", storage.type, nullable=is_nullable(data_type))
    given = pa.Table.from_arrays([storage], schema=pa.schema([field]))
    exact = f"(SELECT {exact_expression('c', data_type)} AS c FROM Python(x))"
    sql = f"SELECT toTypeName(c) AS t, toString(c) AS v FROM {exact}"
    found = engine.run(sql, {"x": given}).table()
    assert list(zip(found["t"].to_pylist(), found["v"].cast(pa.binary()).to_pylist(), strict=True)) == told
    assert _same(to_public(storage, data_type), table["c"])


@pytest.mark.parametrize("text", ["e", "upper(e)", "nullIf(e, 'a')", "coalesce(e, 'a')", "if(e = '', NULL, e)", "NULL"])
def test_what_is_computed_of_dictionaries_goes_in_as_it_is(text: str) -> None:
    rng, kind = np.random.default_rng(1), parse_type(WORDS)
    node = bind(parse(f"CAST({text}, '{WORDS}')"), {"e": kind})
    words = np.array([b"", b"a", b"A", b"b", b"c"])
    for _ in range(12):
        pieces, plain = [], []
        for rows in rng.integers(1, 9, rng.integers(1, 3)):
            dictionary = pa.array(rng.permutation(words)[: rng.integers(1, 6)], pa.binary())
            codes = rng.integers(-1, rng.integers(0, len(dictionary)), rows, np.int32, endpoint=True)
            given = pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), dictionary)
            plain += given.to_pylist()
            pieces.append(evaluate(node, {"e": given}, {"e": kind}, int(rows)))
            pieces[-1].validate(full=True)
        computed = pa.table({"e": joined(pieces)})
        assert not computed["e"].chunk(0).dictionary.null_count
        found = engine.run("SELECT CAST(e, 'Nullable(String)') AS e FROM Python(x)", {"x": computed}).table()
        sql = f"SELECT CAST({text}, 'Nullable(String)') AS e FROM (SELECT CAST(e, '{WORDS}') AS e FROM Python(x))"
        expected = engine.run(sql, {"x": pa.table({"e": pa.array(plain, pa.binary())})}).table()
        assert found == expected


def _same(one: Any, other: Any) -> bool:
    if pa.types.is_dictionary(one.type):
        one, other = one.cast(one.type.value_type), other.cast(one.type.value_type)
    if pa.types.is_string(one.type):  # not all are UTF-8
        return bool(one.cast(pa.binary()).to_pylist() == other.combine_chunks().cast(pa.binary()).to_pylist())
    return bool(one.to_pylist() == other.to_pylist())
