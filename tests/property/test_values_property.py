"""The single value binary form, on random columns of every type."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.types.types import parse_type
from mergelake.format.serializations.values import decode_values, encode_values, value_cells
from tests.helpers.random_arrays import TYPES, equal, random_array

kinds = st.lists(st.sampled_from(TYPES).map(parse_type), min_size=1, max_size=4)


@given(kinds, st.integers(0, 40), st.integers(0, 2**32))
def test_rows_come_back_and_each_row_stands_alone(types: list, rows: int, seed: int) -> None:  # type: ignore[type-arg]
    rng = np.random.default_rng(seed)
    arrays = [random_array(rng, kind, rows) for kind in types]
    cells = value_cells(arrays, types)
    data = encode_values(arrays, types)
    assert data == cells.tobytes()
    for array, back in zip(arrays, decode_values(data, types, rows), strict=True):
        assert equal(array, back)
    for row in range(min(rows, 3)):
        assert cells.row(row) == encode_values([array.slice(row, 1) for array in arrays], types)


@given(kinds, st.integers(1, 10), st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(types: list, rows: int, data: bytes) -> None:  # type: ignore[type-arg]
    try:
        columns = decode_values(data, types, rows)
    except CorruptDataError:
        return
    assert all(len(column) == rows for column in columns)
