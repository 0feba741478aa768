"""The methods of `Table` for whole partitions and single parts: none of them reads or writes data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from mergelake.convert.storage import to_storage
from mergelake.core.errors import error
from mergelake.format.partition import WHOLE_TABLE, partitions_of
from mergelake.log.operations import DropRange
from mergelake.order.keys import table_keys
from mergelake.table.handle import TableHandle
from mergelake.table.parts import attach_part, drop_detached_part, drop_part


class PartitionMethods:
    """What `Table` has of them."""

    handle: TableHandle

    def truncate(self) -> int:
        """Drop all rows; the new version. Older versions stay readable while they are kept."""
        return self.handle.log.commit(lambda _: [DropRange(kind="truncate")]).version

    def drop_partition(self, value: Any = None, *, partition_id: str | None = None) -> int:
        """Drop the rows of one partition; the new version.

        The partition is given by the value of the partition key (a tuple for a key of several columns) or by its id.
        One that does not exist is not an error, as in ClickHouse.
        """
        if value is not None and partition_id is not None:
            raise error("BAD_ARGUMENTS", "Give a partition by value or by partition_id, not both")
        if value is None and partition_id is None and not self.handle.schema.partition_by:
            raise error("BAD_ARGUMENTS", "Nothing says which partition is meant", "drop_partition(()) drops all rows")
        target_id = partition_id if partition_id is not None else self.partition_id(value)
        return self.handle.log.commit(lambda _: [DropRange(target_id)]).version

    def drop_part(self, name: str) -> int:
        """Drop the rows of one active part, given by its name; the new version. NO_SUCH_DATA_PART if there is none.

        The part is not read, so this also removes a part whose objects are lost or damaged.
        """
        return drop_part(self.handle, name)

    def detach_part(self, name: str) -> int:
        """Detach one active part; the new version. Its rows are no longer read; its objects are kept until
        `drop_detached_part`.
        """
        return drop_part(self.handle, name, kind="detach")

    def attach_part(self, name: str) -> int:
        """Attach a detached part, under a new name; the new version. BAD_DATA_PART_NAME if none is detached."""
        return attach_part(self.handle, name)

    def drop_detached_part(self, name: str) -> int:
        """Drop a detached part; the new version. BAD_DATA_PART_NAME if none is detached."""
        return drop_detached_part(self.handle, name)

    def partition_id(self, value: Any) -> str:
        """The id of the partition with this value of the partition key (a tuple for a key of several columns).

        INVALID_PARTITION_VALUE if the value does not fit the key.
        """
        keys = table_keys(self.handle.schema).partition
        values: Sequence[Any] = value if isinstance(value, (tuple, list)) else (value,)
        if not keys and value in (None, (), "all"):
            return WHOLE_TABLE.id
        if len(values) != len(keys):
            message = f"The partition key has {len(keys)} columns, the value {len(values)}"
            raise error("INVALID_PARTITION_VALUE", message, "Give one value for each, or partition_id=")
        arrays = [to_storage(pa.array([v]), key.type, key.text) for v, key in zip(values, keys, strict=True)]
        return partitions_of(arrays, [key.type for key in keys])[0].id
