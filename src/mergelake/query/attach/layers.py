"""How a set of parts is read by tables that are attached already: layers, without what is not in it, and a rest. Pure.

A table that changes between statements is attached once; later versions read it without the parts that are gone, and
scan those that are new.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

LAYERS_MAX = 4
"""Attached tables that one statement reads for one table of ours."""
WITHOUT_MAX = 2_000
"""Parts of a layer that a statement leaves out by name."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One attached table."""

    index: int
    """Among those that were offered."""
    without: frozenset[str]
    """Ids of its parts that are not to be read."""


@dataclass(frozen=True, slots=True)
class Cover:
    """Layers, none of which reads a part of another, and what none of them has."""

    layers: tuple[Layer, ...]
    rest: frozenset[str]

    @property
    def exact(self) -> bool:
        """Whether it is one table as it is."""
        return not self.rest and len(self.layers) == 1 and not self.layers[0].without

    @property
    def drift(self) -> int:
        """Parts by which the layers differ from what is wanted."""
        return len(self.rest) + sum(len(layer.without) for layer in self.layers)


def cover(wanted: frozenset[str], held: Sequence[Collection[str]], *, layers_max: int = LAYERS_MAX) -> Cover:
    """The fewest layers, about: always the table next that has most of what is still wanted, and of these the smallest.

    A table is not taken for less than half of what it has, nor with more than `WITHOUT_MAX` parts left out.
    """
    layers: list[Layer] = []
    rest = wanted
    while rest and len(layers) < layers_max:
        best: tuple[int, int, Layer] | None = None
        for index, ids in enumerate(held):
            found = rest.intersection(ids)
            gone = len(ids) - len(found)
            if not found or gone > WITHOUT_MAX or gone > len(found):
                continue
            if best is None or (len(found), -gone) > best[:2]:
                best = len(found), -gone, Layer(index, frozenset(ids) - found)
        if best is None:
            break
        layers.append(best[2])
        rest = rest.difference(held[best[2].index])
    return Cover(tuple(layers), rest)
