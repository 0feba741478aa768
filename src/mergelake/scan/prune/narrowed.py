"""Pending mutations in a range of marks: those whose conditions the primary index excludes there are left out.

So a statement that changes rows of few keys costs readers of other keys nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mergelake.core.base.sized_cache import sized_cache
from mergelake.core.model.schema import TableSchema
from mergelake.expr.bound import BoundLiteral, BoundNode, walk
from mergelake.parts.read.fetch import is_remote
from mergelake.parts.read.reader import PartReader
from mergelake.scan.prune.analyze import Key, analyze
from mergelake.scan.prune.condition import Condition, is_useless
from mergelake.scan.prune.hyperrectangles import KeyTable
from mergelake.scan.prune.keys import scan_keys
from mergelake.scan.prune.prune import MarkRange, mark_ranges
from mergelake.table.pending.bound import Step, Steps

MARKS_MIN = 8
"""Marks of a part from which the index is looked at: fewer are read as fast."""


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """A condition and a key. Conditions of mutations are bound once (`table.pending.bound`), so equal ones are one."""

    where: BoundNode
    key: Key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self.where is other.where and self._shape == other._shape

    def __hash__(self) -> int:
        return hash((id(self.where), self._shape))

    @property
    def _shape(self) -> tuple[object, ...]:
        return self.key.names, self.key.types

    @property
    def members(self) -> int:
        """Members of sets in the condition, at least 1: what the analysis costs."""
        literals = (node.value for node in walk(self.where) if isinstance(node, BoundLiteral))
        return 1 + sum(len(value) for value in literals if isinstance(value, list))


@sized_cache(256, 1 << 20, lambda question: question.members)
def _analyzed(question: _Question) -> Condition:
    return analyze(question.where, question.key)


class NarrowedSteps:
    """The steps that one part lacks, by ranges of marks. Threads may share it."""

    def __init__(self, steps: Steps, reader: PartReader, schema: TableSchema) -> None:
        self.steps = steps
        self._reader, self._schema = reader, schema
        self._marks: list[NDArray[np.bool_] | None] | None = None

    def within(self, ranges: Sequence[MarkRange]) -> Steps | None:
        """The steps that may match rows of the ranges; None if there are none."""
        if self._marks is None:
            self._marks = self._find()
        useful: list[Step] = []
        follows = False
        for step, marks in zip(self.steps.steps, self._marks, strict=True):
            if step.where is not None:
                follows = marks is None or any(marks[begin:end].any() for begin, end in ranges)
            if follows:
                useful.append(step)
        if len(useful) == len(self.steps.steps):
            return self.steps
        return replace(self.steps, steps=tuple(useful)) if useful else None

    def _find(self) -> list[NDArray[np.bool_] | None]:
        """For each step the marks with rows that may match; None: all."""
        reader, key = self._reader, scan_keys(self._schema).primary
        conditions = [
            _analyzed(_Question(step.where, key)) if step.where is not None else None for step in self.steps.steps
        ]
        useful = [condition is not None and not is_useless(condition) for condition in conditions]
        marks = reader.manifest.marks
        known = reader.has_index and marks >= MARKS_MIN and not is_remote(reader.store)
        if not (key.nodes and any(useful) and known):
            return [None] * len(conditions)
        index = reader.primary_index(key.types)
        if len(index[0]) != marks + 1:  # written without a final mark
            return [None] * len(conditions)
        table = KeyTable(list(index), key.types, scan_keys(self._schema).descending)
        out: list[NDArray[np.bool_] | None] = []
        for condition, fits in zip(conditions, useful, strict=True):
            if condition is None or not fits:
                out.append(None)
                continue
            may_match = np.zeros(marks, np.bool_)
            for begin, end in mark_ranges(table, condition):
                may_match[begin:end] = True
            out.append(may_match)
        return out
