"""Inserts slow down, and then are refused, where merges do not keep up. A module that loads no kernels."""

from __future__ import annotations

from mergelake.core.errors import error
from mergelake.log.state import State
from mergelake.table.handle import TableHandle


def throttle(handle: TableHandle) -> None:
    """Slow down, or refuse, an insert into a table with too many active parts in a partition.

    Looks at the store again only when the state known here is over the limit.
    Raises TOO_MANY_PARTS at `parts_to_throw_insert`, and beyond `max_parts_in_total`.

    Source: ClickHouse, `MergeTreeData::delayInsertOrThrowIfNeeded`.
    """
    settings = handle.settings
    total = settings.integer("max_parts_in_total")
    if total and _all_parts(handle.log.state) > total and (parts := _all_parts(handle.refresh())) > total:
        raise error(
            "TOO_MANY_PARTS",
            f"Too many parts ({parts}) in all partitions of the table, limit is {total}",
            "Partition by something coarser, or raise max_parts_in_total",
        )
    slow, refuse = settings.integer("parts_to_delay_insert"), settings.integer("parts_to_throw_insert")
    limit = min((n for n in (slow, refuse) if n), default=0)
    if not limit or _most_parts(handle.log.state) < limit:
        return
    parts = _most_parts(handle.refresh())
    if refuse and parts >= refuse:
        raise error(
            "TOO_MANY_PARTS",
            f"Too many parts ({parts}) in a partition: merges are processing significantly slower than inserts",
            "Run OPTIMIZE TABLE or a node with the role merge, insert larger batches, or raise parts_to_throw_insert",
        )
    if slow and parts >= slow:
        span = max(refuse - slow, 1)
        share = min((parts - slow + 1) / span, 1.0)
        handle.clock.sleep_s(max(0.01, settings.number("max_delay_to_insert") * share))


def _all_parts(state: State) -> int:
    return sum(map(len, state.partitions.values()))


def _most_parts(state: State) -> int:
    return max(map(len, state.partitions.values()), default=0)
