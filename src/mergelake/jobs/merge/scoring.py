"""The simple selector's arithmetic: the best run of neighbouring parts of one range.

For each window `[begin, end)` of a range, in this order: the limits stop its growth, a ratio of sizes tells whether it
is balanced enough to be worth a merge, the score ranks it (bytes to write per part removed).
Young, uneven runs wait; age and crowding lower the bar from `base` to 2.

The input is numeric only, so a range of 1000 parts takes about a millisecond of compiled code.

Source: ClickHouse, `src/Storages/MergeTree/Compaction/MergeSelectors/SimpleMergeSelector.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p

import numpy as np
from numpy.typing import NDArray

from mergelake.core.jit.intrinsics import kernel
from mergelake.core.model.settings import TableSettings

_SIZE_FIXED_COST = 5.0 * (1 << 20)  # bytes that a part costs beyond its own, so that tiny parts still weigh something
_LOG_MIN_SIZE = log1p(1 << 20)
_LOG_MAX_SIZE = log1p(100 * (1 << 30))
_MIN_AGE = 10.0
_MAX_AGE_AT_MIN_SIZE = 3600.0
_MAX_AGE_AT_MAX_SIZE = 30.0 * 86400
_MIN_PARTS_TO_LOWER_BASE = 10.0
_MAX_PARTS_TO_LOWER_BASE = 50.0
_ALIGN_MIN_RATIO = 0.9
_ALIGN_MAX_POWERS_OF_TWO = 0.5
_ALIGN_MAX_ADJUSTMENT = 0.75
_TRIM_RATIO = 0.01
_ROUNDING = 1e-9
NO_LIMIT = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class SelectorSettings:
    """Parameters of the selector; field comments name the table setting."""

    base: float = 5.0
    """`merge_selector_base`; OPTIMIZE without FINAL uses 1."""
    parts_max: int = 100
    """`max_parts_to_merge_at_once`; 0 is no limit."""
    parts_min: int = 0
    """`min_parts_to_merge_at_once`; 0 is off."""
    window: int = 1000
    """`merge_selector_window_size`: only this many newest parts may begin a merge."""
    trim: bool = True
    """`merge_selector_enable_heuristic_to_remove_small_parts_at_right`."""
    align: bool = True
    """Prefer results about as large as the part on their left."""
    lower_width: bool = True
    """`merge_selector_enable_heuristic_to_lower_max_parts_to_merge_at_once`."""
    exponent: float = 5.0
    """`merge_selector_heuristic_to_lower_max_parts_to_merge_at_once_exponent`."""
    parts_to_throw: int = 3000
    """`parts_to_throw_insert`."""
    force_age_s: int = 0
    """`min_age_to_force_merge_seconds`, unless it is for whole partitions only; 0 is off."""
    force_partition_age_s: int = 0
    """Age of a partition's youngest part from which any of its runs may merge; 0 is off."""

    @staticmethod
    def from_table(settings: TableSettings) -> SelectorSettings:
        """The parameters from a table's settings."""
        whole_only = settings.integer("min_age_to_force_merge_on_partition_only") != 0
        prefix = "merge_selector_"
        return SelectorSettings(
            base=settings.number("merge_selector_base"),
            parts_max=settings.integer("max_parts_to_merge_at_once"),
            parts_min=settings.integer("min_parts_to_merge_at_once"),
            window=settings.integer("merge_selector_window_size"),
            trim=settings.integer(prefix + "enable_heuristic_to_remove_small_parts_at_right") != 0,
            lower_width=settings.integer(prefix + "enable_heuristic_to_lower_max_parts_to_merge_at_once") != 0,
            exponent=settings.number(prefix + "heuristic_to_lower_max_parts_to_merge_at_once_exponent"),
            parts_to_throw=settings.integer("parts_to_throw_insert"),
            force_age_s=0 if whole_only else settings.integer("min_age_to_force_merge_seconds"),
        )


@dataclass(frozen=True, slots=True)
class MergeWindow:
    """The best window of one range."""

    begin: int
    end: int
    """Exclusive."""
    score: float
    """Lower is better; comparable between ranges."""
    candidates: int
    """How many windows were allowed; for explaining a decision."""
    bytes: int
    """The smallest limit that allows it: more than its bytes, if it was trimmed."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The best window now, and for how long it stays the best if the parts do not change."""

    window: MergeWindow | None
    still_s: float
    """Whole seconds, at least one, of aging after which it may change; infinity if age has no effect."""


def width_limit(settings: SelectorSettings, part_count: int) -> int:
    """Maximum number of sources of a merge in a partition of `part_count` parts: smaller near the limit of inserts.

    >>> [width_limit(SelectorSettings(), c) for c in (5, 50, 2000, 2500, 2900, 3000)]
    [100, 99, 87, 61, 19, 5]
    """
    parts_max = settings.parts_max or NO_LIMIT
    if not settings.lower_width or part_count < settings.base:
        return parts_max
    if part_count >= settings.parts_to_throw:
        return max(2, int(settings.base))
    crowding = (part_count - settings.base) / (settings.parts_to_throw - settings.base)
    # Truncation is ClickHouse's: it makes 99 of 100 as soon as there are six parts.
    return int(settings.base + (parts_max - settings.base) * (1 - crowding**settings.exponent))


def best_window(
    sizes: NDArray[np.int64],
    ages: NDArray[np.int64],
    settings: SelectorSettings,
    *,
    part_count: int,
    partition_min_age: int,
    bytes_max: int,
    taken: NDArray[np.bool_] | None = None,
) -> MergeWindow | None:
    """The best merge of one range, or None: `outlook` without the time."""
    return outlook(
        sizes, ages, settings,
        part_count=part_count, partition_min_age=partition_min_age, bytes_max=bytes_max, taken=taken,
    ).window  # fmt: skip


def outlook(
    sizes: NDArray[np.int64],
    ages: NDArray[np.int64],
    settings: SelectorSettings,
    *,
    part_count: int,
    partition_min_age: int,
    bytes_max: int,
    taken: NDArray[np.bool_] | None = None,
) -> Outlook:
    """The best merge of one range, and how long it stays the best.

    `sizes` (bytes) and `ages` (seconds), int64 of shape (parts,), are in order of block number; `part_count` and
    `partition_min_age` are of the whole partition. Windows with a `taken` part are skipped, but the range does not
    end there.
    """
    if len(sizes) < 2:
        return Outlook(None, float("inf"))
    forced = 0 < settings.force_partition_age_s <= partition_min_age
    begin, end, score, candidates, needs, still_s = _best_window(
        sizes,
        ages,
        np.zeros(len(sizes), np.bool_) if taken is None else taken,
        width_limit(settings, part_count),
        bytes_max,
        settings.window or NO_LIMIT,
        settings.base,
        settings.parts_min,
        settings.force_age_s,
        forced,
        settings.trim,
        settings.align,
    )
    if settings.force_partition_age_s and not forced:
        still_s = min(still_s, float(settings.force_partition_age_s - partition_min_age))
    return Outlook(MergeWindow(begin, end, score, candidates, needs) if candidates else None, still_s)


@kernel
def _unit(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low)))


@kernel
def _lowered_base(total: float, age: float, parts: int, base: float) -> float:
    size = _unit(np.log1p(total), _LOG_MIN_SIZE, _LOG_MAX_SIZE)
    age_max = _MAX_AGE_AT_MIN_SIZE + (_MAX_AGE_AT_MAX_SIZE - _MAX_AGE_AT_MIN_SIZE) * size
    crowding = _unit(parts, _MIN_PARTS_TO_LOWER_BASE, _MAX_PARTS_TO_LOWER_BASE)
    return float(base + (2.0 - base) * min(1.0, _unit(age, _MIN_AGE, age_max) + crowding))


@kernel
def _bar_passes_s(total: float, age: float, parts: int, base: float, ratio: float) -> float:
    """Seconds, rounded down and at least one, until `_lowered_base` passes `ratio` on its way from `base` to 2.

    The bar moves in one direction only: a ratio that it has passed stays passed.
    """
    if base == 2.0:
        return float(np.inf)
    size = _unit(np.log1p(total), _LOG_MIN_SIZE, _LOG_MAX_SIZE)
    age_max = _MAX_AGE_AT_MIN_SIZE + (_MAX_AGE_AT_MAX_SIZE - _MAX_AGE_AT_MIN_SIZE) * size
    crowding = _unit(parts, _MIN_PARTS_TO_LOWER_BASE, _MAX_PARTS_TO_LOWER_BASE)
    part_of_way = (base - ratio) / (base - 2.0)
    if part_of_way > 1.0 + _ROUNDING:
        return float(np.inf)
    reached = _MIN_AGE + min(1.0, part_of_way - crowding) * (age_max - _MIN_AGE)
    return max(1.0, float(int(reached - age)))


@kernel
def _score(begin: int, kept: int, kept_total: int, sizes: NDArray[np.int64], align: bool) -> float:
    score = (kept_total + _SIZE_FIXED_COST * kept) / (kept - 1.9)
    left = sizes[begin - 1] if begin > 0 else 0
    if align and left > _ALIGN_MIN_RATIO * kept_total:
        apart = abs(np.log2(kept_total / left))
        if apart < _ALIGN_MAX_POWERS_OF_TWO:
            closeness = apart / _ALIGN_MAX_POWERS_OF_TWO
            score *= _ALIGN_MAX_ADJUSTMENT + (1.0 - _ALIGN_MAX_ADJUSTMENT) * closeness
    return score


@kernel
def _best_window(
    sizes: NDArray[np.int64],
    ages: NDArray[np.int64],
    taken: NDArray[np.bool_],
    width: int,
    bytes_max: int,
    window: int,
    base: float,
    parts_min: int,
    force_age: int,
    forced: bool,
    trim: bool,
    align: bool,
) -> tuple[int, int, float, int, int, float]:
    n = len(sizes)
    best_begin, best_end, best_score, candidates, needs, still_s = -1, -1, np.inf, 0, 0, np.inf
    for begin in range(max(0, n - window), n):
        total, largest, youngest = 0, 0, NO_LIMIT
        for last in range(begin, n):
            if taken[last] or last + 1 - begin > width:
                break
            total += sizes[last]
            largest = max(largest, sizes[last])
            youngest = min(youngest, ages[last])
            count = last + 1 - begin
            if total > bytes_max:
                break
            if count < 2:
                continue
            allowed, passes_s = True, np.inf
            if not (forced or (force_age > 0 and youngest >= force_age)):
                ratio = (total + count * _SIZE_FIXED_COST) / (largest + _SIZE_FIXED_COST)
                allowed = count >= parts_min and ratio >= _lowered_base(total, youngest, n, base)
                if count >= parts_min and allowed == (base < 2.0):
                    passes_s = _bar_passes_s(total, youngest, n, base, ratio)
                if force_age > 0 and not allowed:
                    passes_s = min(passes_s, float(force_age - youngest))
            if not allowed and (passes_s >= still_s):
                continue
            kept, kept_total = count, total
            if trim:
                while kept >= 3 and sizes[begin + kept - 1] < _TRIM_RATIO * total:
                    kept_total -= sizes[begin + kept - 1]
                    kept -= 1
            score = _score(begin, kept, kept_total, sizes, align)
            if not allowed:
                # Only a window that would be the best is waited for.
                if score <= best_score:
                    still_s = passes_s
                continue
            candidates += 1
            still_s = min(still_s, passes_s)
            # Equal scores: the newer window wins.
            if score < best_score or (score == best_score and begin > best_begin):
                best_begin, best_end, best_score, needs = begin, begin + kept, score, total
    return best_begin, best_end, best_score, candidates, needs, still_s
