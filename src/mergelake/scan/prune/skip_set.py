"""Predicates on a set index: they are evaluated on the stored values.

A comparison on the index's expressions alone is evaluated for every stored value; any other may be true or false.
AND, OR and NOT combine the results, and a granule is excluded if none of its values can match.

Source: ClickHouse, `MergeTreeIndexSet.cpp` (`traverseDAG`, `checkDAGUseless`, `getPossibleGranules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import DataType
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundCall, BoundColumn, BoundLiteral, BoundNode, EvaluationContext, truth, unbind_typed
from mergelake.expr.nodes import Call, ColumnRef, SyntaxNode
from mergelake.format.indexes.skip_set import SetGranules
from mergelake.parts.write.indexing import BoundIndex
from mergelake.scan.prune.condition import Condition, Probe, UnknownCondition
from mergelake.scan.prune.hyperrectangles import Mask
from mergelake.scan.prune.skip_evaluate import judge


@dataclass(frozen=True, slots=True)
class HoldsFor:
    """A comparison to evaluate on the stored values; its columns are the index's expressions."""

    condition: BoundNode


def set_leaf(index: BoundIndex, node: BoundNode, function: str) -> Condition:
    """The condition on the index's values for one comparison."""
    try:
        tree = _over_values(index, node)
        if tree is None:
            return UnknownCondition()
        bound = bind(tree, _columns(index))
    except MergelakeError:
        return UnknownCondition()
    own = node.function if isinstance(node, BoundCall) else ""
    return Probe(HoldsFor(bound), negated=function != own)


def granules_by_values(condition: Condition, index: BoundIndex, granules: SetGranules) -> NDArray[np.bool_]:
    """For each granule whether a value in it can match; true for granules without stored values."""
    count = int(granules.counts.sum())
    block = pa.table(dict(zip(_columns(index), granules.columns, strict=True)))
    context = EvaluationContext.of_block(block, _columns(index))

    def leaf_mask(leaf: Condition) -> Mask:
        assert isinstance(leaf, Probe)
        assert isinstance(leaf.question, HoldsFor)
        try:
            result = context.eval(leaf.question.condition)
        except (
            MergelakeError
        ):  # the comparison fails on some value: reading the rows raises the error, if they are read
            return np.ones(count, np.bool_), np.ones(count, np.bool_)
        known = truth(result.data)
        can_be_true, can_be_false = known, ~known
        if result.valid is not None:  # as in ClickHouse, a comparison with NULL is unknown
            can_be_true, can_be_false = can_be_true | ~result.valid, can_be_false | ~result.valid
        if result.codes is not None:
            can_be_true, can_be_false = can_be_true[result.codes], can_be_false[result.codes]
        can_be_true, can_be_false = np.broadcast_to(can_be_true, count), np.broadcast_to(can_be_false, count)
        return (can_be_false, can_be_true) if leaf.negated else (can_be_true, can_be_false)

    if not count:
        return np.ones(len(granules.counts), np.bool_)
    matches = judge(condition, count, leaf_mask).can_be_true
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(matches)))
    ends = np.cumsum(granules.counts)
    return np.asarray((total[ends] > total[ends - granules.counts]) | (granules.counts == 0))


def _columns(index: BoundIndex) -> Mapping[str, DataType]:
    return {f"e{i}": kind for i, kind in enumerate(index.types)}


def _over_values(index: BoundIndex, node: BoundNode) -> SyntaxNode | None:
    """`node` with the index's expressions replaced by columns; None if it reads other columns."""
    if node in index.nodes:
        return ColumnRef(f"e{index.nodes.index(node)}")
    if isinstance(node, BoundLiteral):
        return unbind_typed(node)
    if isinstance(node, BoundColumn):
        return None
    args = [_over_values(index, arg) for arg in node.args]
    known = tuple(arg for arg in args if arg is not None)
    return Call(node.function, known) if len(known) == len(args) else None
