"""Where a merge is cut, and which rows of a source come before a cut."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from mergelake.core.types.types import parse_type
from mergelake.format.serializations.values import decode_values
from mergelake.jobs.merge.split import rows_before, split_keys

U32, TEXT = parse_type("UInt32"), parse_type("Nullable(String)")
KEYS = st.lists(st.tuples(st.integers(0, 20), st.sampled_from([b"", b"a", b"b", None])), max_size=30)


def columns(keys):
    return [pa.array([k for k, _ in keys], pa.uint32()), pa.array([s for _, s in keys], pa.binary())]


def place(key, descending):
    """A value whose order is that of the keys: NULL is greatest, also where the order is turned around."""
    number, text = key
    return (-number if descending else number), (text is None, text or b"")


@given(st.lists(KEYS, min_size=1, max_size=4), st.integers(1, 6), st.booleans())
def test_cuts_are_different_keys_of_marks_in_order(runs, slices, descending):
    desc = (descending, False)
    runs = [sorted(run, key=lambda key: place(key, descending)) for run in runs]
    weights = [np.full(len(run), 10, np.int64) for run in runs]
    cuts = split_keys([columns(run) for run in runs], weights, [U32, TEXT], desc, slices)
    decoded = [decode_values(cut, [U32, TEXT], 1) for cut in cuts]
    keys = [(number[0].as_py(), text[0].as_py()) for number, text in decoded]
    everything = sorted(place(key, descending) for run in runs for key in run)
    places = [place(key, descending) for key in keys]
    assert len(keys) < slices
    assert places == sorted(set(places))
    assert set(keys) <= {key for run in runs for key in run}
    assert all(each > everything[0] for each in places)
    for run in runs:
        wanted = [sum(place(key, descending) < each for key in run) for each in places]
        if keys:
            assert rows_before(columns(run), columns(keys), [U32, TEXT], desc).tolist() == wanted


def test_slices_have_about_as_many_bytes():
    rng = np.random.default_rng(7)
    runs = [np.sort(rng.integers(0, 1 << 30, 500)) for _ in range(3)]
    weights = [np.full(500, size, np.int64) for size in (100, 1000, 10)]
    marks = [[pa.array(run, pa.uint32())] for run in runs]
    cuts = split_keys(marks, weights, [U32], (False,), 5)
    bounds = [decode_values(cut, [U32], 1)[0][0].as_py() for cut in cuts]
    at = np.searchsorted(bounds, np.concatenate(runs), side="right")
    sizes = np.bincount(at, np.concatenate(weights), 5)
    assert sizes.max() - sizes.min() <= 2 * 1110


def test_one_key_for_all_rows_is_not_cut():
    marks = [[pa.array([7] * 50, pa.uint32())]] * 2
    assert split_keys(marks, [np.ones(50, np.int64)] * 2, [U32], (False,), 4) == []
    assert split_keys([[pa.array([], pa.uint32())]], [np.ones(0, np.int64)], [U32], (False,), 4) == []
