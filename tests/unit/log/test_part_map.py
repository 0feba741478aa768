"""What changed between two sets of partitions is known, as far back as the journal goes."""

from __future__ import annotations

import pickle
import random

import pytest

from mergelake.core.model.names import PartInfo
from mergelake.log.model.part_map import STEPS_MAX, Journal, Partitions
from mergelake.log.model.parts import ActivePart
from tests.helpers.manifests import manifest


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
