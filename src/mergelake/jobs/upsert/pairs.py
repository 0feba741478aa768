"""The rows that a merge deletes and adds, from the rows of the source and those that match in the table. Pure.

A *pair* is a row of the source and a row of the table with the same key. Rows of a key are deleted together, by a
condition on the key alone; so for each key with a change, all of its rows that stay are added again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.base.ids import IdSource, seed_of
from mergelake.engines.order.keys import whole_column
from mergelake.engines.rules.modes import mode_of
from mergelake.expr.bound import BoundNode, EvaluationContext
from mergelake.expr.values import to_arrow
from mergelake.jobs.upsert.keys import Keys, key_text
from mergelake.jobs.upsert.request import SOURCE, TARGET, Merge, insertable
from mergelake.table.rows.blocks import BlockCompleter

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Changes:
    """What a merge commits."""

    deleted: Keys
    """Keys whose rows go."""
    added: tuple[pa.Table, ...]
    """Rows that come, in storage form, all with the same columns."""


def kept_of_source(merge: Merge, source: pa.Table) -> pa.Table:
    """The source's rows that `delete_if` does not hold for, with the columns that the table has."""
    rows = source.select(list(merge.inserted))
    if merge.delete_if is None or not merge.deletes_by_source:
        return rows
    return rows.filter(pa.array(~_mask(merge, merge.delete_if, source, None, source.num_rows)))


def changes_of(merge: Merge, source: pa.Table, target: pa.Table, ids: IdSource, now_ms: int) -> Changes:
    """The changes of a merge that has read the rows of the table with the source's keys.

    `source` has all columns of `merge.given`, `target` all stored ones of the table, both in storage form. Raises
    BAD_ARGUMENTS if a row would be changed by several rows of the source, and the errors of the expressions.
    """
    own, theirs = Keys.of(source, merge.on), Keys.of(target, merge.on)
    pairs = _Pairs.of(own, theirs)
    request = merge.request
    count = len(pairs.source)
    sides = source.take(pa.array(pairs.source)), target.take(pa.array(pairs.target))
    deletes = np.zeros(count, np.bool_)
    if merge.delete_if is not None:
        deletes |= _mask(merge, merge.delete_if, *sides, count)
    acts = ~deletes
    if merge.matched_if is not None:
        acts &= _mask(merge, merge.matched_if, *sides, count)
    if request.when_matched == "ignore":
        acts[:] = False
    elif request.when_matched == "delete":
        deletes, acts = deletes | acts, np.zeros(count, np.bool_)
    else:
        _require_one_change(pairs, own, deletes | acts)
    updates = acts if request.when_matched == "update" else np.zeros(count, np.bool_)
    changes = deletes | acts
    changed = np.isin(pairs.codes, pairs.codes[changes])
    stays = changed & ~np.isin(pairs.target, pairs.target[changes])
    added = [_with_changes(merge, sides, updates), sides[1].filter(pa.array(_first_of(pairs.target, stays)))]
    replacing = np.unique(pairs.source[acts & ~updates])
    inserted = np.concatenate([replacing, _unmatched(merge, source, pairs)])
    deleted = np.unique(pairs.source[changed])
    mode = mode_of(merge.schema)
    if mode is not None and mode.hides:  # rows that FINAL does not show may hide or change those that are added
        deleted = np.union1d(deleted, inserted)
    names = [column.name for column in insertable(merge.schema)]
    tables = [table.select(names) for table in added]
    if len(inserted):
        given = source.select(list(merge.inserted)).take(pa.array(inserted))
        completer = BlockCompleter(merge.schema, given.column_names, now_ms, seed_of(ids))
        tables.append(completer.complete(given).select(names))
    return Changes(own.take(deleted), tuple(table for table in tables if table.num_rows))


@dataclass(frozen=True, slots=True)
class _Pairs:
    source: Rows
    target: Rows
    codes: Rows
    """A number for each pair, equal where keys are."""
    matched: Mask
    """For each row of the source whether it matches."""

    @staticmethod
    def of(own: Keys, theirs: Keys) -> _Pairs:
        codes, found = own.codes(theirs)
        order = np.argsort(codes, kind="stable")
        target = np.flatnonzero(found >= 0)
        first = np.searchsorted(codes[order], found[target], "left")
        counts = np.searchsorted(codes[order], found[target], "right") - first
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = order[np.repeat(first, counts) + within]
        matched = np.isin(codes, found[target]) & (codes >= 0)
        return _Pairs(rows, np.repeat(target, counts), codes[rows], matched)


def _require_one_change(pairs: _Pairs, keys: Keys, changes: Mask) -> None:
    """Raise if a row of the table is changed by several rows of the source."""
    places = np.flatnonzero(changes)
    order = places[np.argsort(pairs.target[places], kind="stable")]
    again = np.flatnonzero(pairs.target[order[1:]] == pairs.target[order[:-1]])
    if len(again):
        rows = pairs.source[order[again[0]]], pairs.source[order[again[0] + 1]]
        raise repeated(keys, int(rows[0]), int(rows[1]))


def repeated(keys: Keys, row: int, other: int) -> Exception:
    """The error for two rows of a source that would change the same row."""
    first, second = sorted((row, other))
    message = f"Rows {first} and {second} of the source have the same key: {key_text(keys, first)}"
    return error("BAD_ARGUMENTS", message, "Keep one row for each key, such as the newest")


def _unmatched(merge: Merge, source: pa.Table, pairs: _Pairs) -> Rows:
    """The source's rows that match nothing and are inserted."""
    if merge.request.when_not_matched == "ignore":
        return np.zeros(0, np.int64)
    rows = ~pairs.matched
    if merge.delete_if is not None and merge.deletes_by_source:
        rows &= ~_mask(merge, merge.delete_if, source, None, source.num_rows)
    return np.flatnonzero(rows)


def _first_of(target: Rows, chosen: Mask) -> Mask:
    """`chosen`, without later pairs of a row of the table."""
    out = np.zeros(len(target), np.bool_)
    places = np.flatnonzero(chosen)
    out[places[np.unique(target[places], return_index=True)[1]]] = True
    return out


def _with_changes(merge: Merge, sides: tuple[pa.Table, pa.Table], updates: Mask) -> pa.Table:
    """The rows of the table in these pairs, with new values."""
    rows = pa.array(updates)
    source, target = (side.filter(rows) for side in sides)
    if not target.num_rows:
        return target
    context = _context(merge, source, target)
    out = target
    for name, node in merge.sets.items():
        kind = merge.schema.column(name).type
        values = to_arrow(context.eval(node), kind, target.num_rows)
        out = out.set_column(out.column_names.index(name), name, values)
    return out


def _mask(merge: Merge, node: BoundNode, source: pa.Table, target: pa.Table | None, rows: int) -> Mask:
    return np.array(_context(merge, source, target).mask(node)) if rows else np.zeros(0, np.bool_)


def _context(merge: Merge, source: pa.Table, target: pa.Table | None) -> EvaluationContext:
    columns = {f"{SOURCE}{name}": whole_column(source, name) for name in source.column_names}
    types = {f"{SOURCE}{name}": merge.source.column(name).type for name in source.column_names}
    if target is not None:
        columns |= {f"{TARGET}{name}": whole_column(target, name) for name in target.column_names}
        types |= {f"{TARGET}{name}": merge.schema.column(name).type for name in target.column_names}
    return EvaluationContext.of_block(pa.table(columns), types)
