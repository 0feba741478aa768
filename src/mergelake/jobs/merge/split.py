"""Where a merge is cut: keys at which about as many bytes of the sources begin. Pure.

The keys are values of the primary key at marks of the sources, each another one, so all rows with one primary key fall
into one slice, and so do all rows with one sorting key: an engine combines in slices what it would combine in the
whole. Slices one after another are the whole, row for row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.types.types import DataType
from mergelake.engines.order.merging import merge_runs
from mergelake.format.serializations.values import encode_values
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.merge.ttl import expiry_text

Key = Sequence[pa.Array]
"""Columns of the primary key of some rows, in storage form."""


def split_keys(
    marks: Sequence[Key],
    weights: Sequence[NDArray[np.int64]],
    types: Sequence[DataType],
    descending: Sequence[bool],
    slices: int,
) -> list[bytes]:
    """The keys with which up to `slices` slices begin, without the first, in order and in single value binary form.

    `marks[i]` are the keys at the marks of source i, sorted, and `weights[i]` the bytes of each of its granules.
    """
    steps = list(merge_runs([iter([key] if len(key[0]) else []) for key in marks], types, descending))
    runs = np.concatenate([step.runs for step in steps]) if steps else np.zeros(0, np.uint16)
    if not len(runs):
        return []
    keys = np.cumsum(~np.concatenate([step.repeats for step in steps])) - 1
    by_source = np.argsort(runs, kind="stable")
    place = np.empty(len(runs), np.int64)
    place[by_source] = np.concatenate([np.arange(len(each)) for each in weights])
    weight = np.empty(len(runs), np.int64)
    weight[by_source] = np.concatenate(weights)
    before = np.cumsum(weight) - weight
    wanted = int(weight.sum()) * np.arange(1, slices) // slices
    at = np.minimum(np.searchsorted(before, wanted), len(runs) - 1)
    _, first = np.unique(keys[at], return_index=True)
    return [
        encode_values([array.slice(int(place[i]), 1) for array in marks[runs[i]]], types)
        for i in at[first]
        if keys[i] > 0
    ]


def rows_before(rows: Key, keys: Key, types: Sequence[DataType], descending: Sequence[bool]) -> NDArray[np.int64]:
    """For each of the sorted `keys` how many of the sorted `rows` come before it; rows that equal it do not."""
    if not len(rows[0]):
        return np.zeros(len(keys[0]), np.int64)
    steps = merge_runs([iter([keys]), iter([rows])], types, descending)
    runs = np.concatenate([step.runs for step in steps])
    return np.flatnonzero(runs == 0) - np.arange(len(keys[0]))


def split_id(task: MergeTask, keys: Sequence[bytes]) -> str:
    """`Split.id`: the same whenever these parts, with these mutations applied, are merged in these slices."""
    sources = [[source.manifest.id, [mutation.id for mutation in source.lacks]] for source in task.sources]
    schema = json.dumps(task.schema.to_json(), sort_keys=True)
    merge = [task.directory, str(task.result), task.cleanup, sources, schema]
    merge += [text for text in (expiry_text(task),) if text]
    text = json.dumps([*merge, [key.hex() for key in keys]])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
