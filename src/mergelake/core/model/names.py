"""Part names: which rows of which partition a part covers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mergelake.core.base.errors import error

_NAME = re.compile(r"([0-9A-Za-z-]+)_(-?\d+)_(-?\d+)_(\d+)(?:_(\d+))?")
_PATCH = re.compile(r"patch-[0-9a-f]{32}-(.+)")
LEVEL_MAX = 4294967295
"""A level that covers every part in its block range. Source: ClickHouse, `MergeTreePartInfo.h`."""


@dataclass(frozen=True, slots=True, order=True)
class PartInfo:
    """`partition_min_max_level[_mutation]`. Ordered as ClickHouse orders parts.

    Source: ClickHouse, `src/Storages/MergeTree/MergeTreePartInfo.h`.

    >>> PartInfo.parse("all_0_5_3").covers(PartInfo.parse("all_0_4_2"))
    True
    >>> str(PartInfo("202601", 7, 7, 0))
    '202601_7_7_0'
    """

    partition_id: str
    """`all`, or the rendered partition key."""
    min_block: int
    """First block number, inclusive."""
    max_block: int
    """Last block number, inclusive."""
    level: int
    """0 for an inserted part; one more than its highest source for a merge."""
    mutation: int = 0
    """Version of the last mutation applied to the part, 0 for none."""

    @staticmethod
    def parse(name: str) -> PartInfo:
        """Parse the name of a part directory. Raises BAD_DATA_PART_NAME."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise error("BAD_DATA_PART_NAME", f"'{name}' is not the name of a part")
        partition_id, low, high, level, mutation = match.groups()
        return PartInfo(partition_id, int(low), int(high), int(level), int(mutation or 0))

    @staticmethod
    def try_parse(name: str) -> PartInfo | None:
        """Like `parse`, but None for an invalid name."""
        return PartInfo.parse(name) if _NAME.fullmatch(name) else None

    def __str__(self) -> str:
        tail = f"_{self.mutation}" if self.mutation else ""
        return f"{self.partition_id}_{self.min_block}_{self.max_block}_{self.level}{tail}"

    @property
    def data_version(self) -> int:
        """Version up to which mutations are applied: the mutation version, or the first block."""
        return self.mutation or self.min_block

    def covers(self, other: PartInfo) -> bool:
        """Whether this part replaces `other` (a part covers itself)."""
        return (
            self.partition_id == other.partition_id
            and self.min_block <= other.min_block
            and self.max_block >= other.max_block
            and self.level >= other.level
            and self.mutation >= other.mutation
            and (
                (self.min_block, self.max_block) == (other.min_block, other.max_block)
                or self.level > other.level
                or self.level == LEVEL_MAX
            )
        )

    def intersects(self, other: PartInfo) -> bool:
        """Whether the parts share a block of one partition."""
        return (
            self.partition_id == other.partition_id
            and self.min_block <= other.max_block
            and other.min_block <= self.max_block
        )


def patched_partition(partition_id: str) -> str | None:
    """The partition whose parts the patch parts of `partition_id` change; None if that is not one of patch parts.

    >>> patched_partition(PartInfo.parse("patch-dc67219f569b73798f4e21b825abfce4-all_5_5_0_4").partition_id)
    'all'
    """
    match = _PATCH.fullmatch(partition_id)
    return match[1] if match else None


def merged_name(infos: Sequence[PartInfo], holes: Sequence[PartInfo] = ()) -> PartInfo:
    """The name of the part merged from `infos` (not empty, of one partition): all their blocks, one level higher.

    It also covers those of the `holes` that lie between them.

    >>> str(merged_name([PartInfo.parse("all_1_1_0"), PartInfo.parse("all_2_5_3")]))
    'all_1_5_4'
    >>> str(merged_name([PartInfo.parse("all_1_1_0"), PartInfo.parse("all_3_3_0")], [PartInfo.parse("all_2_2_1")]))
    'all_1_3_2'
    """
    low, high = min(info.min_block for info in infos), max(info.max_block for info in infos)
    replaced = [*infos, *(hole for hole in holes if low < hole.min_block and hole.max_block < high)]
    return PartInfo(
        infos[0].partition_id,
        low,
        high,
        max(info.level for info in replaced) + 1,
        max(info.mutation for info in replaced),
    )
