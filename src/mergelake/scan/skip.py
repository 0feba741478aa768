"""Skip indexes: which granules they drop from what the primary key has left.

Every index whose condition can say something (`useful_indexes`) is asked about the granules that are left, minmax
first, then coarser and smaller ones. With OR in the predicate one index alone often proves nothing, `a = 1 OR b = 2`
with one index each; so what each said of each comparison is kept, and at the end the predicate is worked out from
that (`<Combined skip indexes>` in EXPLAIN).

A part without the index's files keeps its granules.

Source: ClickHouse, `MergeTreeDataSelectExecutor::filterMarksUsingIndex`, `mergePartialResultsForDisjunctions`,
`ReadFromMergeTree::buildIndexes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core import types as t
from mergelake.core.errors import CorruptDataError
from mergelake.core.schema import TableSchema
from mergelake.expr.bound import BoundNode
from mergelake.format.memory import Region
from mergelake.format.skip_bloom import decode_filters
from mergelake.format.skip_minmax import decode_bounds, segment_extremes
from mergelake.format.skip_set import SetGranules, decode_sets
from mergelake.format.skip_text import decode_text
from mergelake.format.skip_types import Bloom, MinMax, TextBloom, ValueSet
from mergelake.format.values import plain_type
from mergelake.parts.index_reader import corrupt_index, find_index, index_size, read_granules
from mergelake.parts.indexing import BoundIndex, table_indexes
from mergelake.parts.reader import PartReader
from mergelake.scan.analyze import Key, analyze, analyze_leaves
from mergelake.scan.condition import Condition, InRange, InSet, Probe, Unknown, atoms
from mergelake.scan.describe import describe
from mergelake.scan.hyperrectangles import KeyConditionEvaluator, KeyTable, Mask, Span
from mergelake.scan.prune import MarkRange
from mergelake.scan.skip_bloom import ask_bloom, bloom_leaf
from mergelake.scan.skip_evaluate import Bools, Judgement, is_conjunction, judge, merge_leaves, says_nothing
from mergelake.scan.skip_set import granules_by_values, set_leaf
from mergelake.scan.skip_text import ask_text, text_leaf

COMBINED = "<Combined skip indexes>"
_LEAVES_MAX = 32
"""Comparisons of a predicate that are kept track of."""


@dataclass(frozen=True, slots=True)
class UsefulIndex:
    """An index and what the predicate says to it."""

    index: BoundIndex
    key_condition: Condition
    """For minmax and set: as for a key of the index's expressions."""
    condition: Condition
    """What granules are judged by."""

    @property
    def description(self) -> str:
        """As EXPLAIN has it."""
        return f"{self.index.kind.name} GRANULARITY {self.index.granularity}"

    @property
    def shown(self) -> str:
        """The condition as EXPLAIN prints it; nothing for Bloom filters."""
        if isinstance(self.index.kind, (Bloom, TextBloom)):
            return ""
        return describe(self.key_condition, self.index.texts)[0]


@dataclass(frozen=True, slots=True)
class SkipPlan:
    """The indexes to ask."""

    indexes: tuple[UsefulIndex, ...]
    shape: Condition
    """ANDs, ORs and NOTs of the predicate."""
    combines: bool
    """Whether what they said is worked out together at the end."""
    version: int
    """Of the table's schema: older parts may hold their columns in other types."""

    def order(self, reader: PartReader) -> list[int]:
        """The order in which to ask them in a part."""

        def rank(i: int) -> tuple[int, int, int]:
            index = self.indexes[i].index
            size = index_size(reader, index.name, index.kind)
            return 1 if isinstance(index.kind, MinMax) else 2, -index.granularity, size

        return sorted(range(len(self.indexes)), key=rank)


@dataclass(slots=True)
class PartSkips:
    """What is left of a part after each index in turn."""

    left: list[tuple[MarkRange, ...]] = field(default_factory=list)
    """After the first, the second, … index asked; shorter if nothing was left."""
    final: tuple[MarkRange, ...] = ()


def skip_plan(schema: TableSchema, predicate: BoundNode | None) -> SkipPlan | None:
    """The indexes of the table that the predicate says something to; None if there are none."""
    if predicate is None or not schema.indices:
        return None
    useful = [found for found in (_useful(index, predicate) for index in table_indexes(schema)) if found is not None]
    if not useful:
        return None
    shape = analyze_leaves(predicate, lambda node, function: Unknown())
    leaves = len(list(atoms(shape)))
    combines = len(useful) > 1 and not is_conjunction(shape) and leaves <= _LEAVES_MAX
    return SkipPlan(tuple(useful), shape, combines, schema.version)


def _useful(index: BoundIndex, predicate: BoundNode) -> UsefulIndex | None:
    key_condition: Condition = Unknown()
    if isinstance(index.kind, (MinMax, ValueSet)):
        key_condition = analyze(predicate, Key(index.nodes, index.texts))
    match index.kind:
        case MinMax():
            condition = key_condition
        case ValueSet():
            condition = analyze_leaves(predicate, lambda node, function: set_leaf(index, node, function))
        case Bloom():
            condition = analyze_leaves(predicate, lambda node, function: bloom_leaf(index, node, function))
        case TextBloom():
            condition = analyze_leaves(predicate, lambda node, function: text_leaf(index, node, function))
    return None if says_nothing(condition) else UsefulIndex(index, key_condition, condition)


def skip_in_part(reader: PartReader, plan: SkipPlan, ranges: Sequence[MarkRange], order: Sequence[int]) -> PartSkips:
    """Ask the indexes, in `order`, about a part's marks in `ranges` (ascending, not empty)."""
    out = PartSkips()
    now = tuple(ranges)
    marks = reader.manifest.marks
    said = np.ones((len(list(atoms(plan.shape))), marks), np.bool_) if plan.combines else None
    for i in order:
        if not now:
            break
        now = _ask(reader, plan.indexes[i], plan.version, now, said)
        out.left.append(now)
    if said is not None and now:
        keep = merge_leaves(plan.shape, said)
        begins = np.concatenate([np.arange(b, e) for b, e in now])
        now = _joined(begins[keep[begins]], begins[keep[begins]] + 1)
    out.final = now
    return out


def _ask(
    reader: PartReader,
    useful: UsefulIndex,
    version: int,
    ranges: tuple[MarkRange, ...],
    said: NDArray[np.bool_] | None,
) -> tuple[MarkRange, ...]:
    index, step = useful.index, useful.index.granularity
    file = find_index(reader, index.name, index.kind) if same_types(reader, index, version) else None
    if file is None or file.granules != -(-reader.manifest.marks // step):
        return ranges
    granule = np.concatenate([np.arange(b // step, -(-e // step)) for b, e in ranges])
    counts = np.array([-(-e // step) - b // step for b, e in ranges])
    begin = np.maximum(granule * step, np.repeat([b for b, _ in ranges], counts))
    end = np.minimum((granule + 1) * step, np.repeat([e for _, e in ranges], counts))
    keep = np.ones(file.granules, np.bool_)
    wanted = np.unique(granule)
    for first, stop, plain in read_granules(reader, file, _runs(wanted)):
        try:
            found, told = _judged(useful, plain, stop - first, combined=said is not None)
        except CorruptDataError as problem:
            raise corrupt_index(reader, file, problem) from None
        keep[first:stop] = found.can_be_true
        if said is not None:
            inside = np.flatnonzero((granule >= first) & (granule < stop))
            inside = inside[told[granule[inside] - first]]
            for leaf, answer in enumerate(found.leaves):
                if answer is not None:
                    said[leaf, begin[inside]] = answer[granule[inside] - first]
    kept = keep[granule]
    return _joined(begin[kept], end[kept])


def same_types(reader: PartReader, index: BoundIndex, version: int) -> bool:
    """Whether the part's index was made from columns of the types that the table has now."""
    if reader.manifest.schema_version == version:
        return True
    for name in index.columns:
        stored = reader.layout_name(name)
        if stored is None or reader.layout.columns[stored] != reader.columns[name].type:
            return False
    return True


def _judged(useful: UsefulIndex, plain: Region, count: int, *, combined: bool) -> tuple[Judgement, Bools]:
    """What the index says of `count` granules, and of which of them it says anything."""
    index = useful.index
    told = np.ones(count, np.bool_)
    match index.kind:
        case MinMax():
            types = [plain_type(kind) for kind in index.types]
            bounds = decode_bounds(plain.tobytes(), types, count)
            return _in_bounds(useful.condition, index, bounds, count), told
        case Bloom() as kind:
            filters = decode_filters(plain, kind, len(index.nodes), count)
            return judge(useful.condition, count, lambda leaf: _probed(leaf, lambda q: ask_bloom(q, filters))), told
        case TextBloom() as kind:
            texts = decode_text(plain, kind, len(index.nodes), count)
            return judge(useful.condition, count, lambda leaf: _probed(leaf, lambda q: ask_text(q, texts, kind))), told
    sets = decode_sets(plain, index.types, count)
    found = granules_by_values(useful.condition, index, sets)
    judgement = Judgement(found, np.ones(count, np.bool_))
    if combined:
        told = sets.counts > 0
        judgement = _with_extremes(useful, sets, found, told)
    return judgement, told


def _probed(leaf: Condition, ask) -> Mask:  # type: ignore[no-untyped-def]
    assert isinstance(leaf, Probe)
    found = ask(leaf.question)
    maybe = np.ones(len(found), np.bool_)
    return (maybe, found) if leaf.negated else (found, maybe)


def _in_bounds(
    condition: Condition, index: BoundIndex, bounds: Sequence[tuple[pa.Array, pa.Array]], count: int
) -> Judgement:
    """The condition in the hyperrectangles between the extremes."""
    types = [plain_type(kind) for kind in index.types]
    keys = KeyTable([pa.concat_arrays([low, high]) for low, high in bounds], types)
    rows = np.arange(count)
    box = {c: Span(rows, False, rows + count, False) for c in range(len(types))}

    def ask(leaf: Condition) -> Mask:
        can_be_true, can_be_false = KeyConditionEvaluator(leaf, keys).box(box, count)
        columns = (leaf.column,) if isinstance(leaf, InRange) else leaf.columns if isinstance(leaf, InSet) else ()
        if any(isinstance(t.inner_type(types[c]), t.Float) for c in columns):
            # The extremes pass over NaN, for which no comparison holds but `!=` and NOT do.
            negated = isinstance(leaf, (InRange, InSet)) and leaf.negated
            maybe = np.ones(count, np.bool_)
            return (maybe, can_be_false) if negated else (can_be_true, maybe)
        return can_be_true, can_be_false

    return judge(condition, count, ask)


def _with_extremes(useful: UsefulIndex, sets: SetGranules, found: Bools, told: Bools) -> Judgement:
    """A set's answer joined with that of its extremes, which are what is said of each comparison."""
    if not told.any() or isinstance(useful.key_condition, Unknown):
        return Judgement(found, np.ones_like(found))
    ends = np.cumsum(sets.counts[told])
    bounds = []
    for array, kind in zip(sets.columns, useful.index.types, strict=True):
        plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        bounds.append(segment_extremes(plain, plain_type(kind), ends))
    inside = _in_bounds(useful.key_condition, useful.index, bounds, int(told.sum()))
    can_be_true = found.copy()
    can_be_true[told] &= inside.can_be_true
    leaves: list[Bools | None] = []
    for answer in inside.leaves:
        whole = None
        if answer is not None:
            whole = np.ones_like(found)
            whole[told] = answer
        leaves.append(whole)
    return Judgement(can_be_true, np.ones_like(found), leaves)


def _runs(granules: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Ascending numbers as half-open runs."""
    cuts = np.flatnonzero(np.diff(granules) != 1) + 1
    return [(int(piece[0]), int(piece[-1]) + 1) for piece in np.split(granules, cuts)]


def _joined(begin: NDArray[np.int64], end: NDArray[np.int64]) -> tuple[MarkRange, ...]:
    """Ascending half-open ranges, those that touch made one."""
    if not len(begin):
        return ()
    gaps = np.flatnonzero(begin[1:] != end[:-1]) + 1
    first = np.concatenate((np.zeros(1, np.int64), gaps))
    last = np.concatenate((gaps - 1, [len(begin) - 1]))
    return tuple(zip(begin[first].tolist(), end[last].tolist(), strict=True))
