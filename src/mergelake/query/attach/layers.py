"""Reading a set of parts with tables that are already attached: layers with excluded parts, and a rest. Pure.

A table that changes between statements is attached once; statements on later versions exclude the removed parts and
scan the new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

LAYERS_MAX = 4
"""Maximum number of attached tables that a statement reads for one table."""
WITHOUT_MAX = 2_000
"""Maximum number of parts of a layer that a statement excludes by name."""


@dataclass(frozen=True, slots=True)
class AttachedLayer:
    """One attached table."""

    index: int
    """Index among the candidates of `cover`."""
    without: frozenset[str]
    """Ids of parts to exclude."""


@dataclass(frozen=True, slots=True)
class LayerCover:
    """Disjoint layers, and the ids of the remaining parts."""

    layers: tuple[AttachedLayer, ...]
    rest: frozenset[str]

    @property
    def exact(self) -> bool:
        """Whether it is one table without excluded parts or a rest."""
        return not self.rest and len(self.layers) == 1 and not self.layers[0].without

    @property
    def drift(self) -> int:
        """Number of parts by which the layers differ from the wanted set."""
        return len(self.rest) + sum(len(layer.without) for layer in self.layers)


def cover(wanted: frozenset[str], held: Sequence[Collection[str]], *, layers_max: int = LAYERS_MAX) -> LayerCover:
    """Cover `wanted` greedily: the next layer is the table with most of the remaining parts, of these the smallest.

    At least half of the parts of a table must be useful, and at most `WITHOUT_MAX` excluded.
    """
    layers: list[AttachedLayer] = []
    rest = wanted
    while rest and len(layers) < layers_max:
        best: tuple[int, int, AttachedLayer] | None = None
        for index, ids in enumerate(held):
            useful = rest.intersection(ids)
            gone = len(ids) - len(useful)
            if not useful or gone > WITHOUT_MAX or gone > len(useful):
                continue
            if best is None or (len(useful), -gone) > best[:2]:
                best = len(useful), -gone, AttachedLayer(index, frozenset(ids) - useful)
        if best is None:
            break
        layers.append(best[2])
        rest = rest.difference(held[best[2].index])
    return LayerCover(tuple(layers), rest)
