"""The write amplification budget: which partitions are due, which merges of settled parts are worth their bytes."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from mergelake.core.model.settings import TableSettings
from mergelake.jobs.merge.budget import BudgetRules, Outlines, best_window, finish, outline
from mergelake.log.model.state import WrittenBytes
from tests.helpers.manifests import schema_with
from tests.helpers.volatile import MIB, Shared

RULES = BudgetRules.of(TableSettings())
LEAST = RULES.parts_min


def parts_of(shared: Shared, partition: str = "all"):
    return shared.state.partitions[partition]


def merged(shared: Shared, count: int, size: int = 0) -> None:
    """`count` inserts, and their merge in the store."""
    first = len(shared.state.partitions.get("all", ()))
    shared.insert(count)
    live = shared.intend(first, first + count)
    made = shared.publish(live)
    assert made.id


def test_a_partition_is_due_once_it_has_as_many_fresh_parts_as_settled_ones():
    shared = Shared()
    for _ in range(LEAST + 3):
        merged(shared, 2)
    shared.insert(LEAST + 2)
    assert not outline(parts_of(shared), RULES, shared.now_ms).is_due(RULES)
    shared.insert(1)
    known = outline(parts_of(shared), RULES, shared.now_ms)
    assert (known.fresh, known.settled) == (LEAST + 3, LEAST + 3)
    assert known.is_due(RULES)
    assert not known.is_due(RULES, sent=1)  # one of them is being uploaded


def test_few_fresh_parts_wait_and_many_bytes_do_not():
    shared = Shared()
    shared.insert(LEAST - 1)
    assert not outline(parts_of(shared), RULES, shared.now_ms).is_due(RULES)
    shared.insert(2, size=RULES.disk // 3)
    assert outline(parts_of(shared), RULES, shared.now_ms).is_due(RULES)


@pytest.mark.parametrize("every_s", [1, 60, 1200])
def test_a_partition_rests_by_its_own_pace(every_s):
    shared = Shared()
    for _ in range(5):
        shared.insert(1)
        shared.pass_s(every_s)
    rests_s = (outline(parts_of(shared), RULES, shared.now_ms).rests_ms - shared.now_ms) / 1000 + every_s
    assert rests_s == max(600, 4 * every_s)
    shared.pass_s(rests_s)
    assert outline(parts_of(shared), RULES, shared.now_ms).is_due(RULES)


def test_what_the_target_leaves_is_spent_on_what_is_written():
    rules = replace(RULES, target=1.5)
    written = WrittenBytes(inserted=1000, merged=300)
    assert written.amplification == 1.3
    assert rules.uploads_left(written, 100) == pytest.approx(1.5 * 1.02 * 1000 - 1000 - 300 - 100)
    assert rules.merges_left(written, 100, fresh=200) == pytest.approx(500 - 300 - 100 - 100)
    rules = replace(RULES, target=2.5)
    assert rules.merges_left(written, 100, fresh=200) == pytest.approx(1500 - 300 - 100 - 200)
    assert WrittenBytes().amplification == 1


@given(st.integers(0, 2**32))
def test_the_best_window_is_the_one_that_a_look_at_all_of_them_finds(seed):
    draw = random.Random(seed)
    shared = Shared()
    for _ in range(draw.randint(2, 9)):
        shared.insert(1, size=draw.randint(1, 50) * MIB)
    parts = parts_of(shared)
    rules = replace(RULES, target=draw.choice([2.1, 2.3, 3.0]), disk=MIB)  # so that all are settled
    limit = draw.randint(1, 200) * MIB
    busy = {draw.choice(parts).manifest.id} if draw.random() < 0.5 else set()
    least = max(2, -int(-rules.share * len(parts) // 1))
    assert rules.least_width(len(parts), pressed=False) == least
    found = best_window(parts, rules, least, busy=busy, bytes_max=limit)
    allowed = []
    for begin in range(len(parts)):
        for end in range(begin + least, len(parts) + 1):
            window = parts[begin:end]
            size = sum(part.manifest.bytes_on_disk for part in window)
            if size <= limit and not busy & {part.manifest.id for part in window}:
                allowed.append((len(window) - 1) / size)
    if found is None:
        assert not allowed
    else:
        assert found.worth == pytest.approx(max(allowed))
        assert outline(parts, rules, shared.now_ms).least_bytes <= found.bytes


def test_a_rested_partition_is_merged_whole_where_that_can_be_had():
    shared = Shared()
    for _ in range(6):
        merged(shared, 2)
    parts = parts_of(shared)
    whole = sum(part.manifest.bytes_on_disk for part in parts)
    found = best_window(parts, RULES, RULES.least_width(6, pressed=False), busy=(), rested=True)
    assert found is not None
    assert len(found.parts) == 6
    less = best_window(parts, RULES, RULES.least_width(6, pressed=False), busy=(), rested=True, bytes_max=whole - 1)
    assert less is not None
    assert 2 <= len(less.parts) < 6


def test_fresh_parts_become_one_part_which_is_uploaded_without_the_latest():
    shared = Shared()
    shared.insert(12)
    elements = parts_of(shared)

    def ask(counts: dict[str, int], busy: frozenset[str] = frozenset()):
        return finish(elements, RULES, barriers=(), busy=busy, leaf_count=lambda p: counts.get(p.manifest.id, 1))

    first = elements[0].manifest.id
    assert ask({}).merges == [tuple(elements)]
    assert ask({first: 30}).merges == [tuple(elements)]  # the others are more than a quarter
    assert ask({first: 33}).uploads == [first]
    assert ask({first: 33}, busy=frozenset({first})).uploads == []  # most of it is being built


def test_pieces_of_an_upload_keep_within_the_disk():
    shared = Shared()
    shared.insert(7, size=300 * MIB)
    rules = replace(RULES, disk=1000 * MIB)
    asked = finish(parts_of(shared), rules, barriers=(), busy=(), leaf_count=lambda _: 1)
    assert [len(merge) for merge in asked.merges] == [3, 3]  # each is of full size; the last part waits for more
    shared = Shared()
    shared.insert(4, size=300 * MIB)
    asked = finish(parts_of(shared), rules, barriers=(), busy=(), leaf_count=lambda _: 1)
    assert [len(merge) for merge in asked.merges] == [3]


@given(st.integers(0, 2**32))
def test_outlines_that_are_kept_are_those_drawn_anew(seed):
    draw = random.Random(seed)
    shared = Shared(schema_with(merge_upload_policy="volatile", parts_to_upload_volatile=8))
    rules = BudgetRules.of(TableSettings(shared.state.schema.settings))
    kept = Outlines(rules)
    before = shared.state.partitions
    for _ in range(25):
        name = draw.choice("ab")
        elements = shared.elements(name) if name in shared.state.partitions else []
        if draw.random() < 0.7 or len(elements) < 3:
            shared.insert(draw.randint(1, 4), draw.choice([1, MIB]), name)
        else:
            begin = draw.randrange(len(elements) - 2)
            shared.publish(shared.intend(begin, begin + draw.randint(2, 3), partition=name))
        shared.pass_s(draw.choice([0, 1, 700]))
        partitions = shared.state.partitions
        kept.update(partitions.touched_since(before) or partitions, lambda n, p=partitions: p.get(n, ()), shared.now_ms)
        before = partitions
        anew = Outlines(rules)
        anew.update(partitions, lambda n, p=partitions: p.get(n, ()), shared.now_ms)
        assert (kept.due, kept.fresh_bytes, kept.filling) == (anew.due, anew.fresh_bytes, anew.filling)
        assert list(kept.by_worth()) == list(anew.by_worth())
        worths = [kept[n].window.worth for n in kept.by_worth()]  # type: ignore[union-attr]
        assert all(left >= right for left, right in pairwise(worths))
