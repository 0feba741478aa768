"""checksums.txt, columns.txt, serialization.json, columns_substreams.txt, SipHash."""

from __future__ import annotations

import json

import pytest

from mergelake.core.base.errors import CorruptDataError, UnsupportedError
from mergelake.core.types.types import parse_type
from mergelake.format.codecs.hashes import FileDigest
from mergelake.format.files.checksums import decode_checksums, decode_payload, encode_checksums, encode_payload
from mergelake.format.files.columns_txt import decode_columns, encode_columns
from mergelake.format.serializations.serialization_json import decode_serialization, decode_substreams
from mergelake.format.serializations.siphash import siphash128

# The payload of a real part's checksums.txt: five files, two of them compressed.
PAYLOAD = bytes.fromhex(
    "0609636f756e742e7478740177b7950445b8f9bd2bab46cbff137bdb00056b2e62696e31333113cbdc0701e530bcd1060dc484850118"
    "a09b4879412ee6ed9ed22b9065d3a1fa066b2e6d726b323078010866ee66520ca7007d50c24ea332000b7072696d6172792e69647810"
    "478d7d2ae9f4822e45bef5260a4f5afc0005732e62696e20a727497095989c5a15e3343f5c5f8ef601073bb2f65e53b01d99bbdd56e9"
    "921aa75406732e6d726b32307499da3dc4d8f3673ea8ffdfcc8ac59f00"
)


def test_a_real_checksums_payload_comes_back_byte_for_byte() -> None:
    files = decode_payload(PAYLOAD)
    assert list(files) == ["count.txt", "k.bin", "k.mrk2", "primary.idx", "s.bin", "s.mrk2"]
    assert files["k.bin"] == FileDigest(49, "333113cbdc0701e530bcd1060dc48485", 24, "a09b4879412ee6ed9ed22b9065d3a1fa")
    assert files["count.txt"].uncompressed_size == -1
    assert encode_payload(files) == PAYLOAD
    assert decode_checksums(encode_checksums(files)) == files


def test_checksums_are_sorted_by_name() -> None:
    digest = FileDigest(1, "00" * 16)
    assert list(decode_checksums(encode_checksums({"b": digest, "a": digest, "é": digest}))) == ["a", "b", "é"]


def test_broken_checksums_are_refused() -> None:
    whole = encode_checksums(decode_payload(PAYLOAD))
    for cut in (0, 10, 30, len(whole) - 1):
        with pytest.raises(CorruptDataError):
            decode_checksums(whole[:cut])
    for cut in range(len(PAYLOAD)):
        with pytest.raises(CorruptDataError):
            decode_payload(PAYLOAD[:cut])
    flipped = bytearray(whole)
    flipped[-3] ^= 4
    with pytest.raises(CorruptDataError) as caught:
        decode_checksums(bytes(flipped))
    assert caught.value.offset == len("checksums format version: 4\n")
    with pytest.raises(UnsupportedError, match="version 5"):
        decode_checksums(b"checksums format version: 5\nwhatever")


def test_columns_have_clickhouses_spelling_and_come_back() -> None:
    columns = {
        "k": parse_type("UInt64"),
        "a`b\\c": parse_type("LowCardinality(Nullable(String))"),
        "nest.a": parse_type("Array(UInt8)"),
        "with\nnewline": parse_type("Enum8('a' = -1, 'b' = 5)"),
        "имя": parse_type("Tuple(x UInt8, y Array(String))"),
    }
    data = encode_columns(columns)
    assert data.startswith(b"columns format version: 1\n5 columns:\n`k` UInt64\n`a\\`b\\\\c` LowCardinality(")
    assert data.endswith(b"\n")
    assert decode_columns(data) == columns
    assert list(decode_columns(data)) == list(columns)


def test_cut_columns_are_refused() -> None:
    data = encode_columns({"k": parse_type("UInt64"), "s": parse_type("String")})
    for cut in range(len(data)):
        with pytest.raises(CorruptDataError):
            decode_columns(data[:cut])


def test_no_serialization_json_means_the_oldest_form() -> None:
    info = decode_serialization(None)
    assert (info.columns, info.string_sizes, info.string_sizes_nested) == ({}, False, False)


def test_serialization_json_of_newer_parts_is_read() -> None:
    raw = {
        "version": 1,
        "columns": [
            {"name": "a", "kind": "Sparse", "num_defaults": 9, "num_rows": 10},
            {"name": "t", "kind": "Default", "subcolumns": [{"name": "x", "kind": "Sparse"}]},
        ],
        "types_serialization_versions": {"string": 1},
        "propagate_types_serialization_versions_to_nested_types": True,
    }
    info = decode_serialization(json.dumps(raw).encode())
    assert info.columns["a"].sparse
    assert not info.columns["t"].sparse
    assert info.columns["t"].any_sparse
    assert info.string_sizes
    assert info.string_sizes_nested


@pytest.mark.parametrize(
    "raw",
    [
        {"version": 2, "columns": []},
        {"version": 1, "types_serialization_versions": {"nullable": 2}},
        {"version": 0, "columns": [{"name": "a", "kind": "Detached"}]},
    ],
)
def test_what_we_do_not_know_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(UnsupportedError):
        decode_serialization(json.dumps(raw).encode())


def test_broken_serialization_json_is_refused() -> None:
    for data in (b"", b"[]", b"{", b'{"columns": [{}]}'):
        with pytest.raises(CorruptDataError):
            decode_serialization(data)


def test_substreams_are_read_in_order() -> None:
    data = (
        b"columns substreams version: 1\n2 columns:\n1 substreams for column `k`:\n\tk\n"
        b"2 substreams for column `s`:\n\ts.size\n\ts\n"
    )
    assert decode_substreams(data) == {"k": ("k",), "s": ("s.size", "s")}
    for cut in (0, 20, len(data) - 1, len(data) - 4):
        with pytest.raises(CorruptDataError):
            decode_substreams(data[:cut])


def test_siphash_has_clickhouses_values() -> None:
    pattern = bytes((7 * i + 3) % 256 for i in range(100))
    assert siphash128(b"").hex() == "32b5c1db56a683e9e5b5b6a8cbed11f7"
    assert siphash128(b"hello").hex() == "54f0c4900581e097eda2332258dc211b"
    assert siphash128(pattern).hex() == "a6b33b5812888596d90da0e9f93e71de"
