"""Applies a TTL to the rows of a merge, after its engine has: rows, then groups, then values of columns.

The columns that an element reads are gathered in the order of the result, once for the elements that remove rows, once
for GROUP BY, and once for the values that expire; a flag a row is kept.

Source: ClickHouse, `src/Processors/TTL/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mergelake.core.model.schema import TableSchema
from mergelake.core.model.ttl import TtlInfo
from mergelake.engines.rules.combining import concatenated
from mergelake.engines.rules.mode import Mask
from mergelake.engines.rules.states import StateFunctions
from mergelake.engines.ttl.ttl import BoundTtl, expired_value
from mergelake.engines.ttl.ttl_groups import Grouping, combine_first
from mergelake.format.serializations.defaults import default_array
from mergelake.jobs.merge.combine import aligned, without_removed
from mergelake.jobs.merge.order import RowOrder
from mergelake.jobs.merge.ttl import Expiry

_OWN = "\0"
"""Name of a column that is there for its number of rows."""
NO_TIMES = TtlInfo()
GatherBlocks = Callable[[RowOrder, Sequence[str]], Iterator[pa.RecordBatch]]
"""Columns of the rows of an order, in blocks."""


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows of an order that become one."""

    grouping: Grouping
    order: RowOrder
    """The order before."""
    begins: Mask
    """Of each of its rows whether it begins one of the result."""
    expired: Mask


class TtlWork:
    """The TTL of one merge, while it is executed. Threads may share it once `apply` has returned."""

    def __init__(
        self,
        expiry: Expiry,
        schema: TableSchema,
        gather: GatherBlocks,
        functions: StateFunctions | None,
        *,
        combines: bool,
    ) -> None:
        self._expiry, self._schema, self._gather, self._combines = expiry, schema, gather, combines
        self._functions = functions
        self.infos: dict[str, TtlInfo] = {}
        """The times of the result's rows, after `apply`."""
        self.gone: frozenset[str] = expiry.gone
        """Columns all of whose values have expired."""
        self._values: dict[str, Mask] = {}
        self._groups: _Groups | None = None

    def apply(self, order: RowOrder) -> RowOrder:
        """The order of the rows that stay."""
        expiry = self._expiry
        self.infos = {e.key: expiry.settled(e) for e in expiry.ttl.elements if e.key in expiry.old}
        if expiry.computes:
            self._compute(order, [e for e in expiry.ttl.elements if e.key not in expiry.old])
        if not expiry.removes or not order.rows:
            return order
        order = self._grouped(self._without_rows(order))
        columns = [e for e in expiry.ttl.columns if expiry.is_due(e) and e.element.column not in self.gone]
        if columns:
            self._expire_values(order, columns)
        for element in expiry.ttl.columns:
            if element.element.column in expiry.gone:
                self.infos[element.key] = TtlInfo(finished=True)
        self._compute(order, expiry.ttl.recompressions)
        return order

    def _blocks(
        self, order: RowOrder, elements: Sequence[BoundTtl], more: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        names = dict.fromkeys(name for element in elements for name in element.reads)
        return self._gather(order, list(names | dict.fromkeys(more)))

    def _compute(self, order: RowOrder, elements: Sequence[BoundTtl], before: TtlInfo = NO_TIMES) -> None:
        """Find the times of the rows by these elements, and add them to those `before`."""
        if not elements:
            return
        infos = dict.fromkeys((element.key for element in elements), before)
        for block in self._blocks(order, elements) if order.rows else ():
            for element in elements:
                infos[element.key] = element.with_times(infos[element.key], block)
        self.infos |= infos

    def _without_rows(self, order: RowOrder) -> RowOrder:
        expiry, ttl = self._expiry, self._expiry.ttl
        elements = [e for e in (*((ttl.rows,) if ttl.rows else ()), *ttl.wheres) if expiry.is_due(e)]
        if not elements:
            return order
        infos = {e.key: TtlInfo(finished=expiry.of(e).is_max_expired(expiry.now)) for e in elements}
        removed = []
        for block in self._blocks(order, elements):
            alive = np.ones(block.num_rows, np.bool_)
            for element in elements:
                seconds, concerned = element.seconds(block), element.matches(block)
                alive &= ~(concerned & (seconds != 0) & (seconds <= expiry.now))
                infos[element.key] = infos[element.key].with_times(seconds[alive & concerned])
            removed.append(~alive)
        self.infos |= infos
        return self._left(order, np.concatenate(removed))

    def _left(self, order: RowOrder, removed: Mask) -> RowOrder:
        return without_removed(order, removed, combines=self._combines) if removed.any() else order

    def _grouped(self, order: RowOrder) -> RowOrder:
        expiry = self._expiry
        for element in expiry.ttl.groups:
            if not expiry.is_due(element) or not order.rows:
                continue
            grouping = Grouping(element.element, self._schema, self._functions)
            begins, flags = [], []
            for block in self._blocks(order, [element], grouping.reads):
                expired = element.expired(block, expiry.now)
                begins.append(grouping.begins(block, expired))
                flags.append(expired)
            starts, all_expired = np.concatenate(begins), np.concatenate(flags)
            if all_expired.any():
                self._groups = _Groups(grouping, order, starts, all_expired)
                order = self._left(replace(order), ~starts)  # another one, even if no row is left out
            # As in ClickHouse: the times before are forgotten only once all are over.
            finished = expiry.of(element).is_max_expired(expiry.now)
            before = TtlInfo(finished=True) if finished else expiry.of(element)
            self._compute(order, [element], before)
        return order

    def _expire_values(self, order: RowOrder, elements: Sequence[BoundTtl]) -> None:
        expiry = self._expiry
        infos = {e.key: TtlInfo() for e in elements}
        masks: dict[str, list[Mask]] = {e.key: [] for e in elements}
        for block in self._blocks(order, elements) if order.rows else ():
            for element in elements:
                expired = element.expired(block, expiry.now)
                infos[element.key] = infos[element.key].with_times(element.seconds(block)[~expired])
                masks[element.key].append(expired)
        self.infos |= infos
        for element in elements:
            name, pieces = element.element.column, masks[element.key]
            mask = np.concatenate(pieces) if pieces else np.zeros(0, np.bool_)
            if mask.all():
                self.gone |= {name}
            elif mask.any():
                self._values[name] = mask

    # -- the values of columns -----------------------------------------------------------------

    def regroups(self, name: str, order: RowOrder) -> bool:
        """Whether the values of a column in the order of the result are those of `regrouped`, not of first rows."""
        groups = self._groups
        return (
            groups is not None
            and order is not groups.order
            and (name in groups.grouping.assignments or groups.grouping.rule(name) is not None)
        )

    def regrouped(self, name: str) -> Iterator[pa.Array]:
        """The values of a column for which `regroups` is true."""
        groups = self._groups
        assert groups is not None, name
        assignment = groups.grouping.assignments.get(name)
        if assignment is not None:
            return assignment.combine(self._with_groups(groups, assignment.reads))
        blocks = self._with_groups(groups, [name])
        return combine_first(((block.column(0), begins) for block, begins, _ in blocks), groups.grouping.rule(name))

    def _with_groups(self, groups: _Groups, names: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, Mask, Mask]]:
        at = 0
        for block in self._gather(groups.order, names):
            end = at + block.num_rows
            yield block, groups.begins[at:end], groups.expired[at:end]
            at = end

    def is_changed(self, name: str) -> bool:
        """Whether values of a column have expired."""
        return name in self._values or name in self.gone

    def without_expired(
        self, name: str, arrays: Iterator[pa.Array], others: Callable[[str], Iterator[pa.Array]]
    ) -> Iterator[pa.Array]:
        """The values of a column in which expired ones are the default; `others` reads another column."""
        kind, default = self._schema.column(name).type, expired_value(self._schema, name, self._expiry.now)
        reads = default.columns if default is not None else ()
        mask, at = self._values.get(name), 0
        for array, *rest in aligned([arrays, *(others(each) for each in reads)]):
            count = len(array)
            expired = mask[at : at + count] if mask is not None else np.ones(count, np.bool_)
            at += count
            if not expired.any():
                yield array
                continue
            if default is None:
                values = default_array(kind, count)
            else:
                values = default.evaluate(pa.RecordBatch.from_arrays([*rest, array], [*reads, _OWN]))
            yield concatenated(values, array).take(
                pa.array(np.where(expired, np.arange(count), count + np.arange(count)))
            )
