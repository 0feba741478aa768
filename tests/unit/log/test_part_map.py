"""Retired parts: which go is the same by runs as one by one; what a change costs does not grow with the table."""

from __future__ import annotations

import pickle
import random

import pytest

from mergelake.core.names import PartInfo
from mergelake.log.part_map import RUN_MAX, STEPS_MAX, Journal, Partitions, Retired
from mergelake.log.state import ActivePart, RetiredPart
from tests.helpers.manifests import manifest
from tests.helpers.work import bytecodes


def _retired(n: int, seed: int) -> list[RetiredPart]:
    draw = random.Random(seed)
    out, version = [], 5
    for number in range(n):
        version += draw.randrange(3)
        info = PartInfo("all", number, number, 0)
        # One in ten left long before it was given up: a part that had been detached.
        went = version if draw.random() < 0.9 else draw.randrange(3, version + 1)
        out.append(RetiredPart(f"{number:032x}", info, 1, 1, draw.randrange(1, went), went, 0))
    return out


@pytest.mark.parametrize("seed", range(20))
def test_runs_keep_what_each_part_by_itself_is_kept_for(seed: int) -> None:
    draw = random.Random(seed)
    parts = _retired(4 * RUN_MAX, seed)
    held, at = Retired(), 0
    while at < len(parts):
        step = draw.randrange(1, 700)
        held, at = held.plus(parts[at : at + step]), at + step
    assert tuple(held) == tuple(parts)
    for _ in range(5):
        history = draw.randrange(parts[-1].retired + 2)
        pinned = sorted(draw.sample(range(1, max(history, 2)), min(draw.randrange(3), max(history, 2) - 1)))
        left = [p for p in parts if p.retired > history or any(p.added <= v < p.retired for v in pinned)]
        after = held.still_shown(history, pinned)
        assert tuple(after) == tuple(left)
        assert after == Retired().plus(left)
        assert (after is held) == (len(left) == len(parts))
        assert {p.id for p in parts if after.get(p.id)} == {p.id for p in left}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_affordable_is_the_oldest_version_within_the_limit(seed: int) -> None:
    draw = random.Random(seed)
    parts, version = [], 2
    for number in range(1, 3 * RUN_MAX):
        version += draw.choice([0, 0, 1, 3])
        added = draw.randrange(1, version)
        info = PartInfo("all", number, number, 0)
        parts.append(RetiredPart(f"{number:032x}", info, 1, draw.randrange(1, 100), added, version, 0))
    held = Retired().plus(parts)
    assert held.bytes_on_disk == sum(part.bytes_on_disk for part in parts)
    for pinned in ([], sorted(draw.sample(range(1, version + 1), 3))):
        counted = [p for p in parts if not any(p.added <= v < p.retired for v in pinned)]
        for limit in (0, 1, draw.randrange(sum(p.bytes_on_disk for p in counted)), 10**9):
            found = held.oldest_within(limit, pinned)
            kept = sum(p.bytes_on_disk for p in counted if p.retired > found)
            assert kept <= limit
            one_more = sum(p.bytes_on_disk for p in counted if p.retired > found - 1)
            assert not found or one_more > limit
    assert Retired().oldest_within(0, []) == 0
    assert Retired().plus(parts[:1]).oldest_within(0, []) == parts[0].retired


def test_one_more_costs_the_same_behind_many_as_behind_few() -> None:
    few, many = (Retired().plus(_retired(runs * RUN_MAX + 10, 1)) for runs in (2, 100))
    new = _retired(100 * RUN_MAX + 11, 2)[-1:]
    assert bytecodes(lambda: many.plus(new)) < 1.2 * bytecodes(lambda: few.plus(new))
    assert bytecodes(lambda: many.still_shown(2, ())) < len(many) / 10


@pytest.mark.parametrize("seed", range(20))
def test_what_was_touched_covers_what_differs(seed: int) -> None:
    draw, number = random.Random(seed), 0
    states = [Partitions.of({})]
    for _ in range(60):
        before = draw.choice(states[-3:])  # also two changes of one value, of which neither knows the other
        changes: dict[str, list[ActivePart]] = {}
        gained, lost = [], []
        for name in draw.sample("abcdef", draw.randint(0, 3)):
            parts = list(before.get(name, ()))
            if parts and draw.random() < 0.4:
                lost.append(parts.pop(draw.randrange(len(parts))))
            elif draw.random() < 0.7:
                number += 1
                gained.append(ActivePart(PartInfo(name, number, number, 0), manifest(number, name), number, 0))
                parts.append(gained[-1])
            changes[name] = parts
        states.append(before.changed(changes, gained, lost))
    known = 0
    for older, newer in ((draw.choice(states), draw.choice(states)) for _ in range(300)):
        told = newer.touched_since(older)
        differ = {name for name in {*older, *newer} if older.get(name) != newer.get(name)}
        assert told is None or differ <= told
        known += told is not None
    assert known > 30
    assert states[-1].touched_since(states[-1]) == frozenset()
    assert pickle.loads(pickle.dumps(states[-1])).touched_since(states[-1]) is None


def test_a_journal_goes_back_only_so_far() -> None:
    first = journal = Journal()
    for number in range(STEPS_MAX):
        journal = journal.then([str(number)])
    assert journal.since(first) == {str(number) for number in range(STEPS_MAX)}
    assert journal.then(["x"]).since(first) is None
    assert journal.then([str(number) for number in range(10**4)]).since(journal) is None
    assert Journal().since(journal) is None


@pytest.mark.parametrize("seed", range(20))
def test_what_came_and_went_among_retired_parts_is_found_by_runs(seed: int) -> None:
    draw = random.Random(seed)
    parts = _retired(3 * RUN_MAX, seed)
    older = Retired().plus(parts[: draw.randrange(len(parts))])
    newer = older
    for at in range(len(older), len(parts), 300):
        newer = newer.plus(parts[at : at + 300]).still_shown(draw.randrange(parts[-1].retired), [])
    came, went = newer.since(older)
    assert {part.id for part in came} == {part.id for part in newer} - {part.id for part in older}
    assert {part.id for part in went} == {part.id for part in older} - {part.id for part in newer}
    assert older.since(older) == ([], [])
