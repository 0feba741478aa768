"""Columns brought into a recorded order."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.jobs.merge.gather import gather_column
from mergelake.jobs.merge.order import RowOrder

TYPES = [
    *("UInt8", "Int16", "UInt32", "Float64", "String", "FixedString(3)", "UUID", "Int256"),
    *("Nullable(Int32)", "Nullable(String)", "Nullable(FixedString(5))", "LowCardinality(String)"),
    *("LowCardinality(Nullable(String))", "LowCardinality(UInt16)", "Array(String)", "Tuple(a UInt8, b Array(Int32))"),
]


def _value(kind: pa.DataType, random: np.random.Generator, nullable: bool) -> Any:
    if nullable and random.random() < 0.2:
        return None
    if pa.types.is_dictionary(kind):
        return b"v%d" % random.integers(0, 30) if pa.types.is_binary(kind.value_type) else int(random.integers(0, 30))
    if pa.types.is_list(kind):
        return [_value(kind.value_type, random, False) for _ in range(random.integers(0, 3))]
    if pa.types.is_struct(kind):
        return {f.name: _value(f.type, random, False) for f in kind}
    if pa.types.is_fixed_size_binary(kind):
        return random.bytes(kind.byte_width)
    if pa.types.is_binary(kind):
        return random.bytes(int(random.integers(0, 20)))
    return int(random.integers(0, 100))


def _batches(array: pa.Array, rows: int) -> Iterator[pa.Array]:
    for start in range(0, len(array), rows):
        yield array.slice(start, rows)


@pytest.mark.parametrize("text", TYPES)
@pytest.mark.parametrize("sources", [4, 200])
def test_gathering_puts_every_value_where_the_order_says(text: str, sources: int) -> None:
    data_type = parse_type(text)
    kind = storage_type(data_type)
    random = np.random.default_rng(sources)
    lengths = [0, *(int(n) for n in random.integers(1, 3000 // sources, sources - 1))]
    values = [[_value(kind, random, "Nullable" in text) for _ in range(n)] for n in lengths]
    if pa.types.is_dictionary(kind):
        arrays = [pa.array(v, kind.value_type).dictionary_encode().cast(kind) for v in values]
    else:
        arrays = [pa.array(v, kind) for v in values]
    order = np.repeat(np.arange(sources), lengths)
    random.shuffle(order)
    drop = random.random(len(order)) < 0.3
    dropped = 128 if sources <= 127 else 32768
    entries = (order + drop * dropped).astype(np.uint8 if sources <= 127 else np.uint16)
    expected = []
    cursors = [iter(v) for v in values]
    for source, gone in zip(order, drop, strict=True):
        value = next(cursors[source])
        if not gone:
            expected.append(value)
    row_order = RowOrder(entries, dropped, len(expected))
    found = list(gather_column(data_type, [_batches(a, 97) for a in arrays], row_order, 100))
    for array in found:
        array.validate(full=True)
        assert array.type == kind
    assert [value for array in found for value in array.to_pylist()] == expected


def test_the_dictionary_forgets_values_that_no_waiting_row_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mergelake.jobs.merge.gather._DICTIONARY_MAX", 50)
    kind = parse_type("LowCardinality(String)")
    values = [[b"%d-%d" % (source, i) for i in range(500)] for source in range(3)]
    arrays = [pa.array(v).dictionary_encode() for v in values]
    sources = [iter([a.slice(i, 40).cast(storage_type(kind)) for i in range(0, 500, 40)]) for a in arrays]
    batches = [iter([pa.array(b.to_pylist(), pa.binary()).dictionary_encode() for b in s]) for s in sources]
    order = RowOrder(np.tile(np.arange(3, dtype=np.uint8), 500), 128, 1500)
    found = list(gather_column(kind, batches, order, 64))
    assert [v for a in found for v in a.to_pylist()] == [values[i % 3][i // 3] for i in range(1500)]
    assert max(len(a.dictionary) for a in found) < 400


def test_a_span_of_strings_too_large_for_one_array_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mergelake.jobs.merge.gather.STRING_BYTES_MAX", 1000)
    values = [[b"%d-" % i * 50 for i in range(20)], [b"y"] * 30]
    order = np.array([0, 1] * 20 + [1] * 10, np.uint8)
    order[::7] |= 128
    sources = [_batches(pa.array(v, pa.binary()), 9) for v in values]
    found = list(gather_column(parse_type("String"), sources, RowOrder(order, 128, int((order < 128).sum())), 100))
    cursors = [iter(v) for v in values]
    rows = [(next(cursors[entry & 127]), entry < 128) for entry in order.tolist()]
    assert [v for a in found for v in a.to_pylist()] == [value for value, stays in rows if stays]
    assert len(found) > 1
