"""Delays inserts, and then refuses them, if merges do not keep up. This module loads no kernels."""

from __future__ import annotations

from mergelake.core.base.errors import error
from mergelake.table.handle.handle import TableHandle


def throttle(handle: TableHandle) -> None:
    """Delay or refuse an insert into a table with too many active parts in a partition.

    Refreshes only if the state known here is over the limit.
    Raises TOO_MANY_PARTS at `parts_to_throw_insert`, and at `max_parts_in_total`.

    Source: ClickHouse, `MergeTreeData::delayInsertOrThrowIfNeeded`.
    """
    settings = handle.settings
    total = settings.integer("max_parts_in_total")
    if total and handle.log.state.part_count >= total and (parts := handle.refresh().part_count) >= total:
        raise error(
            "TOO_MANY_PARTS",
            f"Too many parts ({parts}) in all partitions of the table, limit is {total}",
            "Partition by something coarser, or raise max_parts_in_total",
        )
    slow, refuse = settings.integer("parts_to_delay_insert"), settings.integer("parts_to_throw_insert")
    limit = min((n for n in (slow, refuse) if n), default=0)
    if not limit or handle.log.state.partitions.most < limit:
        return
    parts = handle.refresh().partitions.most
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
