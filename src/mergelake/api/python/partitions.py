"""The methods of `Table` for whole partitions and single parts: none of them reads or writes data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from mergelake.api.python.inspect import detached_table
from mergelake.core.base.errors import InvalidInputError, error
from mergelake.core.convert.storage import to_storage
from mergelake.engines.order.keys import table_keys
from mergelake.format.files.partition import WHOLE_TABLE, check_partition_id, partitions_of
from mergelake.log.model.operations import DropRange
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions import parts
from mergelake.table.partitions.freeze import freeze, unfreeze

_WRONG_VALUES = {
    "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE": "ARGUMENT_OUT_OF_BOUND",
    "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN": "TYPE_MISMATCH",
    "CANNOT_PARSE_TEXT": "TYPE_MISMATCH",
}
"""Errors of values that do not fit a column -> ClickHouse's for the value of a partition."""


class PartitionMethods:
    """What `Table` has of them.

    A partition is given by `value`, the value of the partition key (a tuple for a key of several columns), by its
    `partition_id`, or as `every=True`, all of them. INVALID_PARTITION_VALUE for one that does not fit the key.
    """

    handle: TableHandle

    def truncate(self) -> int:
        """Drop all rows; the new version. Older versions stay readable while they are kept."""
        return self.handle.log.commit(lambda _: [DropRange(kind="truncate")]).version

    def drop_partition(self, value: Any = None, *, partition_id: str | None = None, every: bool = False) -> int:
        """Drop the rows of one partition, or of every one; the new version.

        The partition is given by the value of the partition key (a tuple for a key of several columns) or by its id.
        One that does not exist is not an error, as in ClickHouse.
        """
        return parts.drop_partition(self.handle, self._partition(value, partition_id, every=every))

    def detach_partition(self, value: Any = None, *, partition_id: str | None = None, every: bool = False) -> int:
        """Detach all parts of a partition, as `detach_part` does; the new version."""
        return parts.drop_partition(self.handle, self._partition(value, partition_id, every=every), "detach")

    def attach_partition(self, value: Any = None, *, partition_id: str | None = None, every: bool = False) -> int:
        """Attach all detached parts of a partition, as `attach_part` does; the new version. If there are none, nothing
        is logged.
        """
        return parts.attach_partition(self.handle, self._partition(value, partition_id, every=every))

    def drop_detached_partition(
        self, value: Any = None, *, partition_id: str | None = None, every: bool = False
    ) -> int:
        """Drop all detached parts of a partition; the new version."""
        return parts.drop_detached_partition(self.handle, self._partition(value, partition_id, every=every))

    def drop_part(self, name: str) -> int:
        """Drop the rows of one active part, given by its name; the new version. NO_SUCH_DATA_PART if there is none.

        The part is not read, so this also removes a part whose objects are lost or damaged.
        """
        return parts.drop_part(self.handle, name)

    def detach_part(self, name: str) -> int:
        """Detach one active part; the new version. Its rows are no longer read; its objects are kept until
        `drop_detached_part`.

        Mutations that it lacks stay with it: what is attached again has the rows that were visible.
        """
        return parts.drop_part(self.handle, name, kind="detach")

    def attach_part(self, name: str) -> int:
        """Attach a detached part, under a new name; the new version. BAD_DATA_PART_NAME if none is detached.

        Mutations since it was detached do not concern it.
        """
        return parts.attach_part(self.handle, name)

    def drop_detached_part(self, name: str) -> int:
        """Drop a detached part; the new version. BAD_DATA_PART_NAME if none is detached."""
        return parts.drop_detached_part(self.handle, name)

    def detached_parts(self) -> pa.Table:
        """One row for each detached part: its name, partition, size, version and time of DETACH, and how many mutations
        it lacks.
        """
        return detached_table(self.handle.log.state)

    def freeze(self, name: str = "", value: Any = None, *, partition_id: str | None = None) -> str:
        """Keep the newest version, or one partition of it, under a name, copying nothing; returns the name.

        It is a tag: `scan(version=name)` or AS OF TAG reads it, and a clone of it is a table. DIRECTORY_ALREADY_EXISTS
        for a name that is taken. Without a name it is `freeze_<version>`.
        """
        if value is None and partition_id is None:
            return freeze(self.handle, name)
        return freeze(self.handle, name, self._partition(value, partition_id, every=False))

    def unfreeze(self, name: str, value: Any = None, *, partition_id: str | None = None) -> int:
        """Give up what `freeze` keeps, or one partition of it; the new version. Unknown names are no error."""
        if value is None and partition_id is None:
            return unfreeze(self.handle, name)
        return unfreeze(self.handle, name, self._partition(value, partition_id, every=False))

    def partition_id(self, value: Any) -> str:
        """The id of the partition with this value of the partition key (a tuple for a key of several columns).

        INVALID_PARTITION_VALUE for another number of values, ARGUMENT_OUT_OF_BOUND or TYPE_MISMATCH for one that does
        not fit.
        """
        keys = table_keys(self.handle.schema).partition
        values: Sequence[Any] = value if isinstance(value, (tuple, list)) else (value,)
        if not keys and value in (None, (), "all"):
            return WHOLE_TABLE.id
        if len(values) != len(keys):
            message = f"The partition key has {len(keys)} columns, the value {len(values)}"
            raise error("INVALID_PARTITION_VALUE", message, "Give one value for each, or partition_id=")
        try:
            arrays = [to_storage(pa.array([v]), key.type, key.text) for v, key in zip(values, keys, strict=True)]
        except InvalidInputError as wrong:
            raise error(_WRONG_VALUES.get(wrong.name, wrong.name), wrong.message, wrong.hint) from None
        return partitions_of(arrays, [key.type for key in keys])[0].id

    def _partition(self, value: Any, partition_id: str | None, *, every: bool) -> str | None:
        """The id of a partition that was given in one of three ways; None for every one."""
        if (value is not None) + (partition_id is not None) + every > 1:
            raise error(
                "BAD_ARGUMENTS", "Give a partition by value, by partition_id or as every=True, only one of them"
            )
        if every:
            return None
        if partition_id is not None:
            check_partition_id(partition_id)
            return partition_id
        if value is None and not self.handle.schema.partition_by:
            raise error("BAD_ARGUMENTS", "Nothing says which partition is meant", "every=True means all rows")
        return self.partition_id(value)
