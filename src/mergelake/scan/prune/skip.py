"""Skip indexes: which granules they exclude from those that the primary key selected.

Every useful index is evaluated on the remaining granules, minmax first, then coarser and smaller ones. With OR in the
predicate a single index often excludes nothing: `a = 1 OR b = 2` with an index on each column. So the result of each
comparison is recorded over all indexes, and at the end the whole predicate is evaluated on these results
(`<Combined skip indexes>` in EXPLAIN).

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

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.expr.bound import BoundNode
from mergelake.format.indexes.skip_bloom import decode_filters
from mergelake.format.indexes.skip_minmax import decode_bounds, segment_extremes
from mergelake.format.indexes.skip_set import SetGranules, decode_sets
from mergelake.format.indexes.skip_text import decode_text
from mergelake.format.indexes.skip_types import Bloom, MinMax, TextBloom, ValueSet
from mergelake.format.kernels.memory import Region
from mergelake.format.serializations.values import plain_type
from mergelake.parts.read.index_reader import corrupt_index, find_index, index_size, read_granules
from mergelake.parts.read.reader import PartReader
from mergelake.parts.write.indexing import BoundIndex, table_indexes
from mergelake.scan.prune.analyze import Key, analyze, analyze_leaves
from mergelake.scan.prune.condition import Condition, InRange, InSet, Probe, UnknownCondition, atoms
from mergelake.scan.prune.describe import describe
from mergelake.scan.prune.hyperrectangles import KeyConditionEvaluator, KeyTable, Mask, Span
from mergelake.scan.prune.prune import MarkRange
from mergelake.scan.prune.skip_bloom import ask_bloom, bloom_leaf
from mergelake.scan.prune.skip_evaluate import Bools, Judgement, is_conjunction, judge, merge_leaves, says_nothing
from mergelake.scan.prune.skip_set import granules_by_values, set_leaf
from mergelake.scan.prune.skip_text import ask_text, text_leaf

COMBINED = "<Combined skip indexes>"
_LEAVES_MAX = 32
"""Maximum number of comparisons whose results are recorded."""


@dataclass(frozen=True, slots=True)
class UsefulIndex:
    """An index with the predicate translated for it."""

    index: BoundIndex
    key_condition: Condition
    """For minmax and set: the condition on a key of the index's expressions; Unknown for Bloom filters."""
    condition: Condition
    """The condition that is evaluated on granules of the index."""

    @property
    def description(self) -> str:
        """Type and granularity as EXPLAIN prints them."""
        return f"{self.index.kind.name} GRANULARITY {self.index.granularity}"

    @property
    def shown(self) -> str:
        """The condition as EXPLAIN prints it; nothing for Bloom filters."""
        if isinstance(self.index.kind, (Bloom, TextBloom)):
            return ""
        return describe(self.key_condition, self.index.texts)[0]


@dataclass(frozen=True, slots=True)
class SkipPlan:
    """The useful indexes of a table for one predicate."""

    indexes: tuple[UsefulIndex, ...]
    shape: Condition
    """ANDs, ORs and NOTs of the predicate."""
    combines: bool
    """Whether the results of all indexes are combined at the end."""
    version: int
    """Version of the table's schema: older parts may hold columns of other types."""

    def order(self, reader: PartReader) -> list[int]:
        """Positions in `indexes`, in the order in which to evaluate them for a part."""

        def rank(i: int) -> tuple[int, int, int]:
            index = self.indexes[i].index
            size = index_size(reader, index.name, index.kind)
            return 1 if isinstance(index.kind, MinMax) else 2, -index.granularity, size

        return sorted(range(len(self.indexes)), key=rank)


@dataclass(slots=True)
class PartSkips:
    """The remaining mark ranges of a part after each index."""

    left: list[tuple[MarkRange, ...]] = field(default_factory=list)
    """Ranges after the first, the second, … index; shorter if none remained before the last."""
    final: tuple[MarkRange, ...] = ()


def skip_plan(schema: TableSchema, predicate: BoundNode | None) -> SkipPlan | None:
    """The indexes of the table that are useful for the predicate; None if there are none."""
    if predicate is None or not schema.indices:
        return None
    useful = [
        candidate
        for candidate in (_useful(index, predicate) for index in table_indexes(schema))
        if candidate is not None
    ]
    if not useful:
        return None
    shape = analyze_leaves(predicate, lambda node, function: UnknownCondition())
    leaves = len(list(atoms(shape)))
    combines = len(useful) > 1 and not is_conjunction(shape) and leaves <= _LEAVES_MAX
    return SkipPlan(tuple(useful), shape, combines, schema.version)


def _useful(index: BoundIndex, predicate: BoundNode) -> UsefulIndex | None:
    key_condition: Condition = UnknownCondition()
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
    """Evaluate the indexes, in `order`, on a part's marks in `ranges` (ascending, not empty)."""
    out = PartSkips()
    now = tuple(ranges)
    marks = reader.manifest.marks
    leaf_marks = np.ones((len(list(atoms(plan.shape))), marks), np.bool_) if plan.combines else None
    for i in order:
        if not now:
            break
        now = _ranges_left(reader, plan.indexes[i], plan.version, now, leaf_marks)
        out.left.append(now)
    if leaf_marks is not None and now:
        keep = merge_leaves(plan.shape, leaf_marks)
        begins = np.concatenate([np.arange(b, e) for b, e in now])
        now = _joined(begins[keep[begins]], begins[keep[begins]] + 1)
    out.final = now
    return out


def _ranges_left(
    reader: PartReader,
    useful: UsefulIndex,
    version: int,
    ranges: tuple[MarkRange, ...],
    leaf_marks: NDArray[np.bool_] | None,
) -> tuple[MarkRange, ...]:
    index, step = useful.index, useful.index.granularity
    file = find_index(reader, index.name, index.kind) if same_index(reader, index, version) else None
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
            judgement, covered = _judged(useful, plain, stop - first, combined=leaf_marks is not None)
        except CorruptDataError as problem:
            raise corrupt_index(reader, file, problem) from None
        keep[first:stop] = judgement.can_be_true
        if leaf_marks is not None:
            inside = np.flatnonzero((granule >= first) & (granule < stop))
            inside = inside[covered[granule[inside] - first]]
            for leaf, answer in enumerate(judgement.leaves):
                if answer is not None:
                    leaf_marks[leaf, begin[inside]] = answer[granule[inside] - first]
    kept = keep[granule]
    return _joined(begin[kept], end[kept])


def same_index(reader: PartReader, index: BoundIndex, version: int) -> bool:
    """Whether files of this name in the part are this index, built from columns of the table's current types."""
    if reader.manifest.schema_version < index.since:
        return False
    if reader.manifest.schema_version == version:
        return True
    for name in index.columns:
        stored = reader.layout_name(name)
        column = reader.columns[name]
        since = column.changed_since(reader.manifest.schema_version)
        if stored is None or since or reader.layout.columns[stored] != column.type:
            return False
    return True


def _judged(useful: UsefulIndex, plain: Region, count: int, *, combined: bool) -> tuple[Judgement, Bools]:
    """The condition on `count` granules of the index, and for each granule whether the index has information on it."""
    index = useful.index
    covered = np.ones(count, np.bool_)
    match index.kind:
        case MinMax():
            types = [plain_type(kind) for kind in index.types]
            bounds = decode_bounds(plain.tobytes(), types, count)
            return _in_bounds(useful.condition, index, bounds, count), covered
        case Bloom() as kind:
            filters = decode_filters(plain, kind, len(index.nodes), count)
            return judge(useful.condition, count, lambda leaf: _probed(leaf, lambda q: ask_bloom(q, filters))), covered
        case TextBloom() as kind:
            texts = decode_text(plain, kind, len(index.nodes), count)
            return judge(
                useful.condition, count, lambda leaf: _probed(leaf, lambda q: ask_text(q, texts, kind))
            ), covered
    sets = decode_sets(plain, index.types, count)
    matches = granules_by_values(useful.condition, index, sets)
    judgement = Judgement(matches, np.ones(count, np.bool_))
    if combined:
        covered = sets.counts > 0
        judgement = _with_extremes(useful, sets, matches, covered)
    return judgement, covered


def _probed(leaf: Condition, may_match) -> Mask:  # type: ignore[no-untyped-def]
    assert isinstance(leaf, Probe)
    mask = may_match(leaf.question)
    maybe = np.ones(len(mask), np.bool_)
    return (maybe, mask) if leaf.negated else (mask, maybe)


def _in_bounds(
    condition: Condition, index: BoundIndex, bounds: Sequence[tuple[pa.Array, pa.Array]], count: int
) -> Judgement:
    """Evaluate the condition on the hyperrectangles between the minima and maxima (`bounds`) of `count` granules."""
    types = [plain_type(kind) for kind in index.types]
    keys = KeyTable([pa.concat_arrays([low, high]) for low, high in bounds], types)
    rows = np.arange(count)
    box = {c: Span(rows, False, rows + count, False) for c in range(len(types))}

    def leaf_mask(leaf: Condition) -> Mask:
        can_be_true, can_be_false = KeyConditionEvaluator(leaf, keys).box(box, count)
        columns = (leaf.column,) if isinstance(leaf, InRange) else leaf.columns if isinstance(leaf, InSet) else ()
        if any(isinstance(t.inner_type(types[c]), t.Float) for c in columns):
            # Minima and maxima ignore NaN, for which comparisons are false, but `!=` and NOT are true.
            negated = isinstance(leaf, (InRange, InSet)) and leaf.negated
            maybe = np.ones(count, np.bool_)
            return (maybe, can_be_false) if negated else (can_be_true, maybe)
        return can_be_true, can_be_false

    return judge(condition, count, leaf_mask)


def _with_extremes(useful: UsefulIndex, sets: SetGranules, matches: Bools, covered: Bools) -> Judgement:
    """The result `matches` of a set index, restricted by the minima and maxima of its values.

    The results of single comparisons come from these extremes alone.
    """
    if not covered.any() or isinstance(useful.key_condition, UnknownCondition):
        return Judgement(matches, np.ones_like(matches))
    ends = np.cumsum(sets.counts[covered])
    bounds = []
    for array, kind in zip(sets.columns, useful.index.types, strict=True):
        plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        bounds.append(segment_extremes(plain, plain_type(kind), ends))
    inside = _in_bounds(useful.key_condition, useful.index, bounds, int(covered.sum()))
    can_be_true = matches.copy()
    can_be_true[covered] &= inside.can_be_true
    leaves: list[Bools | None] = []
    for answer in inside.leaves:
        all_granules = None
        if answer is not None:
            all_granules = np.ones_like(matches)
            all_granules[covered] = answer
        leaves.append(all_granules)
    return Judgement(can_be_true, np.ones_like(matches), leaves)


def _runs(granules: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Runs of consecutive numbers as half-open ranges."""
    cuts = np.flatnonzero(np.diff(granules) != 1) + 1
    return [(int(piece[0]), int(piece[-1]) + 1) for piece in np.split(granules, cuts)]


def _joined(begin: NDArray[np.int64], end: NDArray[np.int64]) -> tuple[MarkRange, ...]:
    """Ascending half-open ranges, adjacent ones joined."""
    if not len(begin):
        return ()
    gaps = np.flatnonzero(begin[1:] != end[:-1]) + 1
    first = np.concatenate((np.zeros(1, np.int64), gaps))
    last = np.concatenate((gaps - 1, [len(begin) - 1]))
    return tuple(zip(begin[first].tolist(), end[last].tolist(), strict=True))
