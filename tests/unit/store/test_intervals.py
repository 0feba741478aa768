"""Disjoint intervals: covers against a set of positions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hypothesis import given, strategies as st

from mergelake.store.cache.intervals import Intervals


@dataclass(frozen=True)
class Span:
    start: int
    end: int


SPANS = st.builds(lambda start, size: Span(start, start + size), st.integers(0, 60), st.integers(0, 12))


@given(st.lists(SPANS, max_size=30), SPANS, st.data())
def test_a_cover_is_the_interval_cut_where_what_is_held_begins_and_ends(added, wanted, data) -> None:
    intervals: Intervals[Span] = Intervals()
    owner: dict[int, Span] = {}
    for span in added:
        free = span.end > span.start and not any(at in owner for at in range(span.start, span.end))
        assert intervals.add(span) == free
        owner |= dict.fromkeys(range(span.start, span.end), span) if free else {}
    for span in set(owner.values()):
        if data.draw(st.booleans()):
            intervals.remove(span)
            owner = {at: each for at, each in owner.items() if each != span}
    assert list(intervals) == sorted(set(owner.values()), key=lambda span: span.start)
    assert len(intervals) == len(set(owner.values()))
    cover = intervals.cover(wanted.start, wanted.end)
    assert [at for start, end, _ in cover for at in range(start, end)] == list(range(wanted.start, wanted.end))
    for start, end, held in cover:
        assert {owner.get(at) for at in range(start, end)} == {held}
    assert all(a[2] is not b[2] for a, b in itertools.pairwise(cover))
