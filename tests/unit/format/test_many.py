"""Columns of many small parts at once are those that each part alone would have."""

from __future__ import annotations

import decimal
import random

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.convert.storage import to_storage
from mergelake.core.types.types import parse_type
from mergelake.format.codecs.codec import parse_codec
from mergelake.format.columns.many import encode_parts
from mergelake.format.columns.wide import ColumnWriter
from mergelake.format.files.profile import CLASSIC_PROFILE, Profile

VALUES = {
    "UInt8": lambda n: n % 200,
    "Int64": lambda n: -n,
    "Float64": lambda n: n / 7,
    "String": lambda n: "x" * (n % 90),
    "FixedString(3)": lambda n: "abc",
    "Nullable(Int32)": lambda n: None if n % 3 else n,
    "Nullable(String)": lambda n: None if n % 3 else str(n),
    "DateTime": lambda n: 1_700_000_000 + n,
    "Decimal(38, 4)": lambda n: None,
    "Enum8('a' = 1, 'b' = 2)": lambda n: "ab"[n % 2],
    "Bool": lambda n: n % 2 == 0,
}


def alone(kind, codec, piece):
    writer = ColumnWriter("c", kind, codec)
    writer.append(piece, np.array([len(piece)], np.int64))
    files = {}
    for name, data in [*writer.drain(), *writer.finish()]:
        files[name] = files.get(name, b"") + bytes(data)
    return {name: (files[name], found) for name, found in writer.digests().items()}


CASES = [
    *((text, codec) for text in VALUES for codec in ("LZ4", "ZSTD(3)", "NONE", "LZ4HC(9)")),
    *((text, codec) for text in ("Int64", "Nullable(Int32)", "DateTime") for codec in ("Delta, LZ4", "T64, ZSTD")),
]


@pytest.mark.parametrize(("text", "codec"), CASES)
def test_every_part_has_the_files_that_it_would_have_alone(text, codec):
    kind = parse_type(text)
    chance = random.Random(text + codec)
    ends = np.cumsum([chance.choice([1, 1, 2, 5, 40, 700]) for _ in range(30)])
    rows = int(ends[-1])
    if text.startswith("Decimal"):
        values = pa.array([decimal.Decimal(n).scaleb(-4) for n in range(rows)], pa.decimal128(38, 4))
    else:
        values = pa.array([VALUES[text](n) for n in range(rows)])
    array = to_storage(values, kind, "c")
    shifted = pa.concat_arrays([array.slice(0, 3), array]).slice(3)
    together = encode_parts("c", kind, parse_codec(codec), shifted, ends, CLASSIC_PROFILE, block_max=65536)
    pieces = [array.slice(begin, end - begin) for begin, end in zip([0, *ends], ends, strict=False)]
    assert together == [alone(kind, parse_codec(codec), piece) for piece in pieces]


def test_what_would_be_more_than_a_compressed_block_or_has_a_memory_is_left_alone():
    ends = np.array([1, 9], np.int64)
    words, numbers = pa.array([b"x" * 100] * 9, pa.binary()), pa.array(range(9), pa.int64())
    lz4, string, number = parse_codec("LZ4"), parse_type("String"), parse_type("Int64")
    assert encode_parts("c", string, lz4, words, ends, CLASSIC_PROFILE, block_max=808) is None
    assert encode_parts("c", string, lz4, words, ends, CLASSIC_PROFILE, block_max=809)
    assert encode_parts("c", number, lz4, numbers, ends, Profile(True, False), block_max=65536) is None
    for text in ("LowCardinality(String)", "Array(Int64)", "JSON"):
        assert encode_parts("c", parse_type(text), lz4, words, ends, CLASSIC_PROFILE, block_max=65536) is None
