"""Predicates on a tokenbf_v1 or ngrambf_v1 index: may a granule hold strings with these words?

A comparison with a constant gives the pieces (tokens or n-grams) that every matching string contains
(`format.indexes.skip_text`). A comparison whose constant has no whole piece excludes nothing.

Source: ClickHouse, `MergeTreeIndexBloomFilterText.cpp` (`traverseTreeEquals`, `tryPrepareSetBloomFilter`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mergelake.core.types import types as t
from mergelake.expr.bound import BoundCall, BoundLiteral, BoundNode
from mergelake.format.indexes.skip_text import filter_of, may_hold, pieces_of, pieces_of_like, pieces_of_part
from mergelake.format.indexes.skip_types import TextBloom
from mergelake.parts.write.indexing import BoundIndex
from mergelake.scan.prune.analyze import set_rows
from mergelake.scan.prune.condition import Condition, Probe, UnknownCondition
from mergelake.scan.prune.skip_bloom import is_emptiness, map_element, map_keys_place, place_of


@dataclass(frozen=True, slots=True)
class HoldsPieces:
    """One of `rows` (or each) must match; a row matches if all pieces of each of its expressions are present."""

    rows: tuple[tuple[tuple[int, tuple[bytes, ...]], ...], ...]
    every: bool = False


def text_leaf(index: BoundIndex, node: BoundNode, function: str) -> Condition:
    """The condition on the index for one comparison."""
    if not isinstance(node, BoundCall) or len(node.args) != 2:
        return UnknownCondition()
    left, right = node.args
    if is_emptiness(left, right, function):
        return UnknownCondition()
    if function in ("in", "notIn"):
        question = _in(index, left, right) if isinstance(right, BoundLiteral) else None
        return UnknownCondition() if question is None else Probe(question, function == "notIn")
    if isinstance(left, BoundLiteral) and function in ("equals", "notEquals"):
        left, right = right, left
    if not isinstance(right, BoundLiteral):
        return UnknownCondition()
    question = _compared(index, function, left, right)
    return UnknownCondition() if question is None else Probe(question, function in ("notEquals", "notLike"))


def ask_text(question: HoldsPieces, granules: NDArray[np.uint8], kind: TextBloom) -> NDArray[np.bool_]:
    """For each granule whether it may match; `granules` are the filters, (granules, expressions, bytes)."""
    out = np.full(len(granules), question.every)
    for row in question.rows:
        fits = np.ones(len(granules), np.bool_)
        for expression, pieces in row:
            fits &= may_hold(granules[:, expression], filter_of(pieces, kind))
        out = out & fits if question.every else out | fits
    return out


def _compared(index: BoundIndex, function: str, node: BoundNode, value: BoundLiteral) -> HoldsPieces | None:
    kind = index.kind
    assert isinstance(kind, TextBloom)
    at = place_of(index, node)
    if function == "hasTokenCaseInsensitive":
        at = next((i for i, each in enumerate(index.nodes) if _is_lower(each, node)), None)
        value = BoundLiteral(value.value.lower() if isinstance(value.value, bytes) else value.value, value.type)
    if at is None and function in ("has", "mapContains"):
        at = map_keys_place(index, node)
    if at is None and function in ("equals", "notEquals") and isinstance(value.value, bytes):
        element = map_element(index, node, value)
        if element is not None:
            at, value = element
    if at is None:
        return None
    plain = t.inner_type(value.type)
    if function in ("hasAny", "hasAll"):
        if not isinstance(plain, t.Array) or not all(isinstance(v, bytes) for v in value.value) or not value.value:
            return None
        return HoldsPieces(tuple(((at, tuple(pieces_of(v, kind))),) for v in value.value), function == "hasAll")
    if not isinstance(plain, (t.String, t.FixedString)) or not isinstance(value.value, bytes):
        return None
    text = value.value
    if isinstance(plain, t.FixedString) and function in ("equals", "notEquals"):
        text = text.rstrip(b"\0")  # comparisons ignore the padding
    if function in ("equals", "notEquals", "has", "mapContains", "hasToken", "hasTokenCaseInsensitive"):
        pieces = pieces_of(text, kind)
    elif function in ("like", "notLike"):
        pieces = pieces_of_like(text, kind)
    elif function in ("startsWith", "endsWith"):
        pieces = pieces_of_part(text, kind, prefix=function == "startsWith", suffix=function == "endsWith")
    else:
        return None
    return HoldsPieces((((at, tuple(pieces)),),))


def _is_lower(node: BoundNode, of: BoundNode) -> bool:
    return isinstance(node, BoundCall) and node.function == "lower" and node.args == (of,)


def _in(index: BoundIndex, node: BoundNode, members: BoundLiteral) -> HoldsPieces | None:
    kind = index.kind
    assert isinstance(kind, TextBloom)
    is_tuple = isinstance(node, BoundCall) and node.function == "tuple"
    items: Sequence[BoundNode] = node.args if is_tuple and isinstance(node, BoundCall) else (node,)
    rows = set_rows(members, len(items) if is_tuple else 0)
    places = [(position, place_of(index, item)) for position, item in enumerate(items)]
    known = [(position, at) for position, at in places if at is not None]
    if not rows or not known or not all(isinstance(cell.value, bytes) for row in rows for cell in row):
        return None
    return HoldsPieces(
        tuple(tuple((at, tuple(pieces_of(row[position].value, kind))) for position, at in known) for row in rows)
    )
