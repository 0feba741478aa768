"""The merge order of sorted runs, and which rows of a key stay."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.names import PartInfo
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.engines.order.merging import MergeStep, merge_runs
from mergelake.engines.rules.replacing import WinnerStream, winners
from mergelake.jobs.merge.order import record_order
from mergelake.jobs.merge.plan import SOURCES_MAX, plan_merge
from mergelake.log.model.parts import ActivePart
from tests.helpers.manifests import SCHEMA, manifest


def _run(rows: Sequence[tuple[object, ...]], types: Sequence[str], batch: int) -> Iterator[list[pa.Array]]:
    for start in range(0, len(rows), batch):
        piece = rows[start : start + batch]
        yield [pa.array([row[i] for row in piece], storage_type(parse_type(name))) for i, name in enumerate(types)]


def _order(runs: Sequence[Sequence[tuple[object, ...]]], types: Sequence[str], batch: int = 7) -> list[int]:
    steps = merge_runs([_run(r, types, batch) for r in runs], [parse_type(name) for name in types])
    return [int(run) for step in steps for run in step.runs]


@pytest.mark.parametrize("seed", range(5))
def test_merged_rows_are_in_key_order_and_ties_in_part_order(seed: int) -> None:
    random = np.random.default_rng(seed)
    runs = [
        sorted(
            (int(random.integers(-2, 3)), bytes(random.integers(97, 99, random.integers(0, 12)).astype(np.uint8)))
            for _ in range(n)
        )
        for n in (100, 0, 33, 250, 1)
    ]
    expected = sorted((key, run, row) for run, keys in enumerate(runs) for row, key in enumerate(keys))
    assert _order(runs, ["Int8", "String"]) == [run for _, run, _ in expected]


def test_repeats_are_seen_across_batches_and_steps() -> None:
    runs = [[(b"aaaaaaaaaaa",)] * 5 + [(b"aaaaaaaaaab",)], [(b"aaaaaaaaaaa",)] * 3 + [(b"b",)]]
    steps = list(merge_runs([_run(r, ["String"], 2) for r in runs], [parse_type("String")]))
    assert np.concatenate([s.repeats for s in steps]).tolist() == [False] + [True] * 7 + [False] * 2


def test_strings_with_zero_bytes_sort_by_their_length() -> None:
    runs = [[(b"a\0",), (b"a\0\0",)], [(b"a",), (b"a\0",), (b"b",)]]
    assert _order(runs, ["String"]) == [1, 0, 1, 0, 1]


def _steps(groups: Sequence[tuple[int, int]], cuts: Sequence[int]) -> Iterator[MergeStep]:
    keys = np.array([key for key, _ in groups])
    ranks = np.array([rank for _, rank in groups], np.uint64)
    repeats = np.zeros(len(keys), np.bool_)
    repeats[1:] = keys[1:] == keys[:-1]
    edges = [0, *cuts, len(keys)]
    for start, end in itertools.pairwise(edges):
        yield MergeStep(np.zeros(end - start, np.uint16), repeats[start:end], ranks[start:end])


@pytest.mark.parametrize("seed", range(30))
def test_the_winner_of_a_key_does_not_depend_on_where_blocks_end(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 60))
    groups = sorted(
        ((int(random.integers(0, 12)), int(random.integers(0, 4))) for _ in range(n)), key=lambda pair: pair[0]
    )
    expected = {}
    for row, (key, rank) in enumerate(groups):
        if key not in expected or rank >= groups[expected[key]][1]:
            expected[key] = row
    keep = [row in expected.values() for row in range(n)]
    cuts = sorted(random.integers(0, n + 1, 6).tolist())
    order = record_order(_steps(groups, cuts), 1, WinnerStream())
    assert (order.entries < order.dropped).tolist() == keep
    assert order.rows == len(expected)
    [whole] = _steps(groups, [])
    assert winners(whole.repeats, whole.ranks).tolist() == keep


def test_one_key_in_every_row_keeps_only_its_best() -> None:
    stream = WinnerStream()
    blocks = []
    for block in range(5):
        repeats = np.ones(10, np.bool_)
        repeats[0] = block > 0
        blocks += stream.push(repeats, np.full(10, 9 if block == 1 else block, np.uint64))
    kept = np.concatenate([*blocks, *stream.finish()])
    assert np.flatnonzero(kept).tolist() == [19]


def test_a_long_order_goes_to_a_file_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mergelake.jobs.merge.order._MEMORY_BYTES", 100)
    steps = [MergeStep(np.arange(50, dtype=np.uint16), np.zeros(50, np.bool_), np.zeros(50, np.uint64))] * 9
    for sources in (50, 200):
        order = record_order(iter(steps), sources)
        assert isinstance(order.entries, np.memmap)
        assert order.entries.tolist() == list(range(50)) * 9


def test_a_merge_of_more_parts_than_an_order_can_name_is_refused():
    part = manifest(1)
    parts = [ActivePart(PartInfo("all", n, n, 0), part, n, 0) for n in range(1, SOURCES_MAX + 2)]
    assert len(plan_merge("t", SCHEMA, parts[:-1]).sources) == SOURCES_MAX
    with pytest.raises(MergelakeError, match="TOO_MANY_PARTS"):
        plan_merge("t", SCHEMA, parts)
