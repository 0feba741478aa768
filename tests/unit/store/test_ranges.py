"""Coalescing of ranges."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from mergelake.store.interface.keys import check_key
from mergelake.store.interface.ranges import coalesce, scatter
from mergelake.store.metering.meter import key_class

ranges = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60)), max_size=12)


@given(ranges, st.integers(0, 100))
def test_coalesced_requests_hold_every_range_and_lie_apart(wanted: list[tuple[int, int]], gap: int) -> None:
    fetches = coalesce(wanted, gap)
    assert sorted(index for fetch in fetches for index in fetch.wanted) == [i for i, (_, n) in enumerate(wanted) if n]
    assert all(b.start - a.end > gap for a, b in pairwise(fetches))
    data = bytes(n % 251 for n in range(600))
    found = scatter(wanted, fetches, [data[fetch.start : fetch.end] for fetch in fetches])
    assert [bytes(view) for view in found] == [data[start : start + length] for start, length in wanted]


@given(ranges, st.integers(0, 100))
def test_no_request_reads_more_than_the_gaps_allow(wanted: list[tuple[int, int]], gap: int) -> None:
    for fetch in coalesce(wanted, gap):
        covered = {n for index in fetch.wanted for n in range(wanted[index][0], sum(wanted[index]))}
        assert min(covered) == fetch.start
        assert max(covered) == fetch.end - 1
        assert fetch.length - len(covered) <= gap * (len(fetch.wanted) - 1)


def test_keys_and_their_classes() -> None:
    assert check_key("a/b") == "a/b"
    assert key_class("a/b/_log/checkpoints/1") == "_log"
    assert key_class("x/__meta/p/prefix.path") == "__meta"
    assert key_class("x/p/a.bin") == "data"
