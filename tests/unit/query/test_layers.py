"""Covers of a set of parts by tables that are attached already."""

from __future__ import annotations

from hypothesis import given, strategies as st

from mergelake.query.attach.layers import LAYERS_MAX, cover

IDS = st.frozensets(st.integers(0, 40).map(str), max_size=30)


@given(IDS, st.lists(IDS, max_size=6))
def test_each_part_is_read_once_by_a_layer_or_with_the_rest(wanted: frozenset[str], held: list[frozenset[str]]) -> None:
    found = cover(wanted, held)
    read = [part for layer in found.layers for part in held[layer.index] - layer.without]
    assert len(read) == len(set(read))
    assert frozenset(read) | found.rest == wanted
    assert found.rest.isdisjoint(read)
    assert len(found.layers) <= LAYERS_MAX
    for layer in found.layers:
        assert layer.without < held[layer.index]
        assert 2 * len(layer.without) <= len(held[layer.index])
    assert found.drift == len(found.rest) + sum(len(layer.without) for layer in found.layers)


def test_a_set_that_is_attached_as_it_is_needs_nothing_else() -> None:
    one = frozenset("abc")
    assert cover(one, [frozenset("ab"), one, frozenset("abcd")]).exact
    assert not cover(one, [frozenset("abcd")]).exact
    assert cover(one, [frozenset("xyz")]).rest == one
    grown = cover(frozenset("abcde"), [frozenset("abcx")])
    assert (grown.layers[0].without, grown.rest) == (frozenset("x"), frozenset("de"))
