"""Predicates on a bloom_filter index: may a granule hold these values?

`=` and IN look for a value of an expression (of each, for tuples), `has` and the like for an element of an array,
`m[k] = v` and `mapContains` for keys or values of a map. Negated comparisons are unknown: a filter cannot tell that
there are no other values.

Source: ClickHouse, `MergeTreeIndexBloomFilter.cpp` (`extractAtomFromTree`, `mayBeTrueOnGranule`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode
from mergelake.expr.functions.membership import convert_member
from mergelake.expr.values import arrow_value
from mergelake.format.indexes.skip_bloom import BloomGranules, hash_values
from mergelake.parts.write.indexing import BoundIndex
from mergelake.scan.prune.analyze import set_rows
from mergelake.scan.prune.condition import Condition, Probe, UnknownCondition
from mergelake.scan.prune.constants import in_type


@dataclass(frozen=True, slots=True)
class HoldsValues:
    """For each of `places` (an expression and hashes), one hash, or every one, must be in the expression's filter."""

    places: tuple[tuple[int, tuple[int, ...]], ...]
    every: bool = False
    """All hashes must be present (hasAll), not just one."""


def bloom_leaf(index: BoundIndex, node: BoundNode, function: str) -> Condition:
    """The condition on the index for one comparison."""
    if not isinstance(node, BoundCall) or len(node.args) != 2:
        return UnknownCondition()
    left, right = node.args
    if is_emptiness(left, right, function):
        return UnknownCondition()
    try:
        if function == "in" and isinstance(right, BoundLiteral):
            return _in(index, left, right)
        if function == "equals" and isinstance(right, BoundLiteral):
            return _equals(index, left, right)
        if function == "equals" and isinstance(left, BoundLiteral):
            return _equals(index, right, left)
        if function in ("has", "hasAny", "hasAll", "mapContains") and isinstance(right, BoundLiteral):
            return _has(index, function, left, right)
    except MergelakeError:
        return UnknownCondition()
    return UnknownCondition()


def is_emptiness(left: BoundNode, right: BoundNode, function: str) -> bool:
    """Whether this is `s = ''`, which ClickHouse rewrites to `empty(s)` before it uses indexes."""
    literal, other = (left, right) if isinstance(left, BoundLiteral) else (right, left)
    if function not in ("equals", "notEquals") or not isinstance(other.type, t.String):
        return False
    return isinstance(literal, BoundLiteral) and literal.value == b""


def ask_bloom(question: HoldsValues, granules: BloomGranules) -> NDArray[np.bool_]:
    """For each granule whether it may hold the values."""
    out = np.ones(len(granules.sizes), np.bool_)
    for expression, hashes in question.places:
        hits = granules.may_hold(expression, np.array(hashes, np.uint64))
        out &= hits.all(axis=1) if question.every else hits.any(axis=1)
    return out


def place_of(index: BoundIndex, node: BoundNode) -> int | None:
    """Position of the index's expression that is equal to `node`."""
    return index.nodes.index(node) if node in index.nodes else None


def _map_place(index: BoundIndex, function: str, of: BoundNode) -> int | None:
    """Position of the index's expression `mapKeys(of)` or `mapValues(of)`."""
    for i, node in enumerate(index.nodes):
        if isinstance(node, BoundCall) and node.function == function and node.args == (of,):
            return i
    return None


def map_element(index: BoundIndex, node: BoundNode, value: BoundLiteral) -> tuple[int, BoundLiteral] | None:
    """For `m[k] = value`: (position of the keys' expression, k), or (position of the values' expression, value).

    None for the default value, which `m[k]` also has if the key is missing.
    """
    if not isinstance(node, BoundCall) or node.function != "arrayElement" or value.value in (None, 0, b"", 0.0):
        return None
    of, key = node.args
    place = _map_place(index, "mapKeys", of)
    if place is not None:
        return (place, key) if isinstance(key, BoundLiteral) else None
    place = _map_place(index, "mapValues", of)
    return None if place is None else (place, value)


def map_keys_place(index: BoundIndex, of: BoundNode) -> int | None:
    """Position of the index's expression for the keys of the map `of`."""
    return _map_place(index, "mapKeys", of)


def _equals(index: BoundIndex, node: BoundNode, value: BoundLiteral) -> Condition:
    if isinstance(node, BoundCall) and node.function == "tuple" and isinstance(value.type, t.Tuple):
        pairs = zip(node.args, value.value, value.type.elements, strict=True)
        places = [_place_of_value(index, arg, BoundLiteral(v, kind)) for arg, v, kind in pairs]
        judged = tuple(place for place in places if place is not None)
        return Probe(HoldsValues(judged)) if judged else UnknownCondition()
    place = _place_of_value(index, node, value)
    if place is None:
        element = map_element(index, node, value)
        if element is not None:
            place = _hashed(index, element[0], [element[1]])
    return UnknownCondition() if place is None else Probe(HoldsValues((place,)))


def _place_of_value(index: BoundIndex, node: BoundNode, value: BoundLiteral) -> tuple[int, tuple[int, ...]] | None:
    at = place_of(index, node)
    if at is None or isinstance(index.types[at], t.Array):
        return None
    if isinstance(t.inner_type(index.types[at]), t.Float) and value.value == 0:  # two values that are equal
        return _hashed(index, at, [BoundLiteral(zero, t.Float(64)) for zero in (0.0, -0.0)])
    return _hashed(index, at, [value])


def _has(index: BoundIndex, function: str, node: BoundNode, value: BoundLiteral) -> Condition:
    at = place_of(index, node)
    if at is None:
        at = map_keys_place(index, node) if function in ("has", "mapContains") else None
    if at is None or not isinstance(index.types[at], t.Array):
        return UnknownCondition()
    values = [value]
    if function in ("hasAny", "hasAll"):
        kind = t.inner_type(value.type)
        if not isinstance(kind, t.Array) or not value.value:
            return UnknownCondition()
        values = [BoundLiteral(v, kind.inner) for v in value.value]
    place = _hashed(index, at, values)
    return UnknownCondition() if place is None else Probe(HoldsValues((place,), every=function == "hasAll"))


def _in(index: BoundIndex, node: BoundNode, members: BoundLiteral) -> Condition:
    is_tuple = isinstance(node, BoundCall) and node.function == "tuple"
    items: Sequence[BoundNode] = node.args if is_tuple and isinstance(node, BoundCall) else (node,)
    rows = set_rows(members, len(items) if is_tuple else 0)
    if rows is None:
        return UnknownCondition()
    if not is_tuple:
        elements = [map_element(index, node, row[0]) for row in rows]
        if elements and all(elements):
            pairs = [each for each in elements if each is not None]
            place = _hashed(index, pairs[0][0], [value for _, value in pairs])
            return UnknownCondition() if place is None else Probe(HoldsValues((place,)))
    places = []
    for position, item in enumerate(items):
        at = place_of(index, item)
        if at is None or isinstance(index.types[at], t.Array):
            continue
        kind = index.types[at]
        converted = [convert_member(row[position].value, row[position].type, kind) for row in rows]
        literals = [BoundLiteral(value, t.inner_type(kind)) for value in converted if value is not None]
        place = _hashed(index, at, literals)
        if place is None:
            return UnknownCondition()
        places.append(place)
    return Probe(HoldsValues(tuple(places))) if places else UnknownCondition()


def _hashed(index: BoundIndex, at: int, values: Sequence[BoundLiteral]) -> tuple[int, tuple[int, ...]] | None:
    """(`at`, hashes of constants as values or elements of expression `at`); None if one cannot be such a value."""
    kind = index.types[at]
    plain = t.inner_type(kind.inner if isinstance(kind, t.Array) else kind)
    cells: list[Any] = []
    for value in values:
        literal = value
        if isinstance(value.value, float) and isinstance(plain, t.Int) and value.value.is_integer():
            literal = BoundLiteral(int(value.value), t.Int(256, signed=True))
        converted = in_type(literal, plain)
        if converted is None:
            return None
        cells.append(arrow_value(converted, plain))
    hashes = hash_values(pa.array(cells, storage_type(plain)), plain)
    return at, tuple(hashes.tolist())
