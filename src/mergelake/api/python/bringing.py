"""The methods of `Table` that bring partitions from one table to another: none of them writes an object of data."""

from __future__ import annotations

from typing import Any, Self

from mergelake.api.python.partitions import PartitionMethods
from mergelake.core.base.errors import error
from mergelake.format.files.partition import check_partition_id
from mergelake.table.partitions.exchange_parts import Kind, bring_partition


class BringMethods(PartitionMethods):
    """What `Table` has of them.

    Both tables are in one warehouse, and have the same columns and keys: else INCOMPATIBLE_COLUMNS or BAD_ARGUMENTS.
    Readers of both see all of it or nothing. A mutation that the parts lack comes along.
    """

    def move_partition(self, value: Any = None, *, to: Self, partition_id: str | None = None) -> int:
        """Move a partition into another table; the new version of this one.

        The partition is given by the value of the partition key (a tuple for a key of several columns) or by its id.
        One that does not exist is not an error, as in ClickHouse.

        Examples
        --------
        >>> import mergelake as ml
        >>> db = ml.connect("memory://moves")
        >>> a, b = (db.create_table(n, {"k": "UInt64"}, order_by="k", partition_by="k % 2") for n in ("a", "b"))
        >>> _ = a.append({"k": [1, 2, 3]})
        >>> _ = a.move_partition(1, to=b)
        >>> sorted(a.scan()), sorted(b.scan())
        ([(2,)], [(1,), (3,)])
        """
        self._bring(self, to, value, partition_id, "move")
        return self.handle.log.state.version

    def replace_partition(self, value: Any = None, *, source: Self, partition_id: str | None = None) -> int:
        """Replace a partition by that of another table, which keeps it; the new version of this table."""
        return self._bring(source, self, value, partition_id, "replace")

    def attach_partition_from(
        self, value: Any = None, *, source: Self, partition_id: str | None = None, every: bool = False
    ) -> int:
        """Add the rows of a partition of another table, or of `every` one, which keeps them; the new version of this
        table.
        """
        return self._bring(source, self, value, partition_id, "attach", every=every)

    def _bring(
        self,
        given: BringMethods,
        into: BringMethods,
        value: Any,
        partition_id: str | None,
        kind: Kind,
        *,
        every: bool = False,
    ) -> int:
        for each in (given, into):
            if not isinstance(each, BringMethods):
                raise error("TYPE_MISMATCH", f"{each!r} is no table", "Give the one that Database.table opens")
        source, target = given.handle, into.handle
        if (value is not None) + (partition_id is not None) + every > 1:
            raise error("BAD_ARGUMENTS", "Give a partition by value, by partition_id or as every=True, one of them")
        if value is None and partition_id is None and not every and self.handle.schema.partition_by:
            raise error("BAD_ARGUMENTS", "Nothing says which partition is meant", "Give its value, or partition_id=")
        if source.store.url != target.store.url:
            raise error("BAD_ARGUMENTS", "The tables lie in different warehouses", "Parts are referred to, not copied")
        if partition_id is not None:
            check_partition_id(partition_id)
        chosen = None if every else self.partition_id(value) if partition_id is None else partition_id
        return bring_partition(source, target, chosen, kind, source.neighbour)
