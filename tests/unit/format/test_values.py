"""The single value binary form: bytes, both ways, and what broken bytes do."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.format.serializations.values import decode_prefix, decode_values, encode_values, plain_type

CASES = [
    ("UInt8", [1, 255, 0], "01ff00"),
    ("Int32", [-7, 1], "f9ffffff01000000"),
    ("String", [b"", b"hello"], "0005" + b"hello".hex()),
    ("String", [b"x" * 200], "c801" + b"x".hex() * 200),
    ("FixedString(2)", [b"ab", b"cd"], "61626364"),
    ("Nullable(UInt16)", [7, None, 0], "000700" + "01" + "000000"),
    ("Nullable(String)", [None, b"a"], "01" + "000161"),
    ("LowCardinality(String)", [b"a", b"b", b"a"], "016101620161"),
    ("LowCardinality(Nullable(String))", [b"a", None], "00016101"),
    ("Array(UInt8)", [[1, 2], [], [3]], "020102" + "00" + "0103"),
    ("Array(String)", [[b"a"], [b"", b"bc"]], "010161" + "0200026263"),
    ("Tuple(UInt8, String)", [{"1": 1, "2": b"a"}, {"1": 2, "2": b""}], "010161" + "0200"),
    ("Map(String, UInt8)", [[{"keys": b"k", "values": 3}]], "01016b03"),
    ("Array(Array(UInt8))", [[[1], []], []], "02010100" + "00"),
]


@pytest.mark.parametrize(("text", "values", "expected"), CASES, ids=lambda value: str(value)[:30])
def test_values_have_clickhouses_bytes_and_come_back(text: str, values: list[object], expected: str) -> None:
    kind = parse_type(text)
    array = pa.array(values, storage_type(kind))
    data = encode_values([array], [kind])
    assert data.hex() == expected
    (back,) = decode_values(data, [kind], len(values))
    assert back.type == storage_type(plain_type(kind))
    assert back.to_pylist() == array.to_pylist()


def test_rows_of_several_columns_stand_one_behind_the_other() -> None:
    kinds = [parse_type("UInt16"), parse_type("String"), parse_type("Nullable(Int8)")]
    arrays = [
        pa.array([1, 2, 3], pa.uint16()),
        pa.array([b"a", b"", b"ccc"], pa.binary()),
        pa.array([None, 5, 6], pa.int8()),
    ]
    data = encode_values(arrays, kinds)
    assert data.hex() == "0100016101" + "0200000005" + "0300036363630006"
    assert [a.to_pylist() for a in decode_values(data, kinds, 3)] == [a.to_pylist() for a in arrays]


def test_slices_encode_only_their_rows() -> None:
    kinds = [parse_type("Array(String)"), parse_type("Int64"), parse_type("String")]
    arrays = [
        pa.array([[b"no"], [b"a", b"b"], [], [b"no"]], storage_type(kinds[0])),
        pa.array([9, 1, 2, 9], pa.int64()),
        pa.array([b"nn", b"x", b"yy", b"nn"], pa.binary()),
    ]
    sliced = [array.slice(1, 2) for array in arrays]
    back = decode_values(encode_values(sliced, kinds), kinds, 2)
    assert [a.to_pylist() for a in back] == [a.to_pylist() for a in sliced]


def test_no_rows_are_no_bytes() -> None:
    kinds = [parse_type("String"), parse_type("Nullable(UInt8)"), parse_type("UUID")]
    arrays = [pa.array([], storage_type(kind)) for kind in kinds]
    assert encode_values(arrays, kinds) == b""
    assert [len(a) for a in decode_values(b"", kinds, 0)] == [0, 0, 0]


@pytest.mark.parametrize("text", ["UInt32", "String", "Nullable(UInt32)", "Array(UInt32)", "Tuple(UInt8, String)"])
def test_cut_values_are_refused_and_never_read_past_the_end(text: str) -> None:
    kind = parse_type(text)
    value: object = {"U": 7, "S": b"hello", "N": 7, "A": [1, 2], "T": {"1": 1, "2": b"hello"}}[text[0]]
    data = encode_values([pa.array([value], storage_type(kind))], [kind])
    for length in range(len(data)):
        with pytest.raises(CorruptDataError):
            decode_values(data[:length], [kind], 1)
    with pytest.raises(CorruptDataError, match="followed by something else"):
        decode_values(data + b"\0", [kind], 1)
    assert decode_prefix(data + b"more", [kind], 1)[1] == len(data)


def test_a_string_length_beyond_64_bits_is_refused() -> None:
    with pytest.raises(CorruptDataError):
        decode_values(b"\xff" * 20, [parse_type("String")], 1)
