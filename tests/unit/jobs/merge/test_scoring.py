"""The selector's arithmetic, against the decisions of a real ClickHouse written down in tests/cases."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mergelake.core.model.settings import TableSettings
from mergelake.jobs.merge.scoring import MergeWindow, SelectorSettings, best_window, width_limit
from mergelake.jobs.merge.select import MergeSlots, merge_bytes_limit
from tests.helpers.work import bytecodes

CASES = Path(__file__).parents[3] / "cases"
FULL = 161061273600


def _table(name: str) -> Iterator[list[str]]:
    for line in (CASES / name).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.split()


def _cases() -> Iterator[pytest.param]:
    blocks = re.sub(r"#.*", "", (CASES / "merge_selection.txt").read_text()).split("case ")[1:]
    for block in blocks:
        name, *lines = [line.strip() for line in block.splitlines() if line.strip()]
        fields = dict(line.split(maxsplit=1) for line in lines)
        yield pytest.param(fields, id=name)


def _ask(
    parts: list[tuple[int, int]], settings: SelectorSettings | None = None, bytes_max: int = FULL
) -> MergeWindow | None:
    ages = np.array([age for _, age in parts], np.int64)
    return best_window(
        np.array([size for size, _ in parts], np.int64),
        ages,
        settings or SelectorSettings(),
        part_count=len(parts),
        partition_min_age=int(ages.min()),
        bytes_max=bytes_max,
    )


@pytest.mark.parametrize("case", list(_cases()))
def test_the_selector_chooses_as_clickhouse_does(case: dict[str, str]) -> None:
    # M-030, M-031
    parts = []
    for run in case["parts"].split():
        count, size, age = map(int, re.split("[x@]", run))
        parts += [(size, age)] * count
    over = dict(pair.split("=") for pair in case.get("over", "").split())
    values = {
        k: v == "true" if v in ("true", "false") else float(v) if k == "base" else int(v) for k, v in over.items()
    }
    found = _ask(parts, replace(SelectorSettings(), **values), int(case.get("limit", FULL)))
    if case["expect"] == "nothing":
        assert found is None
        return
    begin, end, score, count = re.fullmatch(r"\[(\d+),(\d+)\) score (\S+) of (\d+)", case["expect"]).groups()
    assert found is not None
    assert (found.begin, found.end, found.candidates) == (int(begin), int(end), int(count))
    assert found.score == pytest.approx(float(score), rel=1e-6)


@pytest.mark.parametrize("row", list(_table("merge_selection_age.txt")), ids=lambda row: row[0])
def test_equal_parts_merge_at_exactly_this_age(row: list[str]) -> None:
    size, *ages = map(int, row)
    for count, age in zip((2, 3, 4), ages, strict=True):
        assert _ask([(size, age)] * count) is not None
        assert _ask([(size, age - 1)] * count) is None


@pytest.mark.parametrize("row", list(_table("merge_selection_limit.txt")), ids=lambda row: "-".join(row))
def test_the_last_free_slots_take_only_small_merges(row: list[str]) -> None:
    # M-027
    total, busy, limit = map(int, row)
    assert merge_bytes_limit(TableSettings(), busy, MergeSlots(total=total)) == limit


@pytest.mark.parametrize(("count", "width"), [(5, 100), (50, 99), (1000, 99), (2000, 87), (2500, 61), (2999, 5)])
def test_merges_get_narrower_as_parts_pile_up(count: int, width: int) -> None:
    assert width_limit(SelectorSettings(), count) == width


def test_no_limit_of_sources_when_the_setting_is_zero() -> None:
    settings = SelectorSettings(parts_max=0, lower_width=False, trim=False)
    found = _ask([(1 << 20, 0)] * 300, settings)
    assert found is not None
    assert (found.begin, found.end) == (0, 300)


def test_only_the_newest_window_begins_a_merge() -> None:
    found = _ask([(1 << 20, 0)] * 5 + [(1 << 40, 0)] * 3, SelectorSettings(window=3))
    assert found is None


def test_the_work_of_judging_grows_no_faster_than_the_parts() -> None:
    few, many = ([(6_000_000 + i * 1000, 5) for i in range(count)] for count in (250, 1000))
    _ask(few)
    assert bytecodes(lambda: _ask(many)) < 4.5 * bytecodes(lambda: _ask(few))
