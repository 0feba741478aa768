"""States of aggregate functions: the rules by which they are cut."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import AggregateFunction, parse_type
from mergelake.format.serializations.defaults import default_array
from mergelake.format.serializations.state_programs import state_program
from tests.helpers.columns import read, reader, written


def _kind(text: str) -> AggregateFunction:
    kind = parse_type(f"AggregateFunction({text})")
    assert isinstance(kind, AggregateFunction)
    return kind


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _room(room: int, count: int) -> bytes:
    return _u64(room) + _u64(count) + b"\3abc"


_RESERVOIR = _u64(8192) + _u64(0) + b"\x1c6364136223846793005 0 123459"
_SPARSE = b"\3" + _u64(7) + b"\5\0" + _u64(7) + (30000).to_bytes(2, "little")
_DENSE = b"\3" + _u64(5000) + bytes(2835 * 8)
STATES = {
    "count": [b"\x00", b"\x7f", b"\x80\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"],
    "sum, UInt8": [bytes(8), b"12345678"],
    "sum, Nullable(Float64)": [b"\0", b"\x01abcdefgh"],
    "avg, Decimal(9, 2)": [bytes(16) + b"\0", b"0123456789abcdef\x80\x02"],
    "max, Date": [b"\0", b"\1ab"],
    "any, String": [b"\xff\xff\xff\xff", b"\1\0\0\0\0", b"\4\0\0\0abc\0"],
    "argMin, String, UInt16": [b"\xff\xff\xff\xff\0", b"\2\0\0\0x\0\1ab"],
    "uniq, UInt64": [b"\0\0", b"\1\2aaaabbbb"],
    "uniqExact, String": [b"\0", b"\2" + bytes(32)],
    "groupArray, String": [b"\0", b"\2\1a\0"],
    "groupUniqArray, UInt16": [b"\0", b"\3aabbcc"],
    "stddevPop, Float32": [b"0123456789ab"],
    "sumIf, Int32, UInt8": [bytes(8)],
    "max, Array(String)": [b"\0", b"\1\0", b"\1\2\1a\2bc"],
    "any, Tuple(UInt8, Nullable(UInt16))": [b"\0", b"\1a\1", b"\1a\0bc"],
    "quantile(0.5), UInt8": [_RESERVOIR, _room(2, 1) + b"x", _room(2, 9) + b"xy"],
    "uniqCombined(12), UInt8": [b"\1\0", b"\2\1abcd", b"\3" + bytes(2650)],
    "uniqUpTo(2), UInt16": [b"\0", b"\2aabb", b"\3"],
    "quantileTiming(0.5), UInt8": [b"\1\0\0", b"\1\1\0ab", b"\2" + _u64(1) + b"ab", _SPARSE, _DENSE],
    "1, quantileDeterministic, UInt8, UInt64": [bytes(17), _u64(1) + _u64(5) + bytes(8) + b"\1"],
    "sumForEach, Array(UInt16)": [_u64(0), _u64(2) + bytes(16)],
    "sumMap, Map(String, UInt8)": [b"\0", b"\1\1a" + bytes(8)],
    "1, sumMap, Array(UInt8), Array(Float32)": [b"\0", b"\1a" + bytes(8)],
    "groupBitmap, UInt16": [b"\0\0", b"\0\1ab", b"\1\3abc"],
    "groupArrayOrNull, String": [b"\0\0", b"\1\1a\1"],
    "boundingRatio, UInt8, UInt8": [b"\1", b"\0" + bytes(32)],
    "rankCorr, UInt8, UInt8": [b"\0\0", b"\1\2" + bytes(24)],
    "topK(2), String": [b"\0\0", b"\1\1a\5\0\2\0\0"],
    "any_respect_nulls, Nullable(UInt8)": [b"\1", b"\2", b"\3\0a"],
    "sumResample(0, 2, 1), UInt8, UInt8": [bytes(16)],
}


@pytest.mark.parametrize("text", STATES)
def test_states_are_cut_where_they_end_and_written_back_unchanged(text: str) -> None:
    kind = _kind(text)
    array = pa.array(STATES[text] * 7)
    rows = len(array)
    files = written("s", kind, array, [rows - 3, 2, 1])
    column = reader("s", kind, files)
    assert read(column, files).equals(array)
    assert read(column, files, 1, 3).equals(array.slice(rows - 3))


@pytest.mark.parametrize("text", STATES)
def test_a_default_is_the_state_over_no_rows(text: str) -> None:
    kind = _kind(text)
    program = state_program(kind)
    assert program is not None
    assert default_array(kind, 2).to_pylist() == [program.empty] * 2
    written("s", kind, default_array(kind, 2), [2])


@pytest.mark.parametrize("text", STATES)
def test_half_a_state_or_two_are_refused_when_written(text: str) -> None:
    kind = _kind(text)
    whole = STATES[text][-1]
    for bad in (b"", whole[:-1], whole + whole, whole + b"\0"):
        with pytest.raises(MergelakeError, match="not one state"):
            written("s", kind, pa.array([whole, bad], pa.binary()), [2])


@pytest.mark.parametrize("text", STATES)
def test_random_bytes_are_states_or_a_coded_error(text: str) -> None:
    kind = _kind(text)
    rng = np.random.default_rng(len(text))
    for _ in range(20):
        raw = pa.array(rng.integers(0, 256, 200, dtype=np.uint8))
        files = written("s", parse_type("UInt8"), raw, [200])
        try:
            found = read(reader("s", kind, files), files)
        except MergelakeError:
            continue
        assert b"".join(found.to_pylist()) == np.asarray(raw).tobytes()


@pytest.mark.parametrize(
    "text",
    [
        "quantileDD(0.1), UInt8",
        "sumMap, Array(UInt8), Array(UInt8)",
        "sum, String",
        "2, sum, UInt8",
        "flameGraph, UInt8",
        "uniqCombined(;2), UInt8",  # as after a flipped bit in columns.txt
        "uniqUpTo(x), UInt8",
        "quantileGK(\u00b2), UInt8",
    ],
)
def test_states_that_are_not_known_are_refused_by_name(text: str) -> None:
    kind = _kind(text)
    assert state_program(kind) is None
    with pytest.raises(MergelakeError, match=kind.function.partition("(")[0]):
        written("s", kind, pa.array([b""]), [1])
