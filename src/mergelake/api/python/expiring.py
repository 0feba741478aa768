"""`Table`'s methods for TTLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mergelake.api.python.altering import AlterMethods

if TYPE_CHECKING:
    pass


class TtlMethods(AlterMethods):
    """When rows expire. The methods return the version that has the change."""

    def modify_ttl(self, ttl: str, *, materialize: bool = True) -> int:
        """Give the table another TTL: the elements of a TTL clause, see `docs/ttl.md`.

        With `materialize` the rows that have expired by it go at once, as by `materialize_ttl`; otherwise merges remove
        them. Raises what CREATE TABLE raises for such a TTL.

        Examples
        --------
        >>> import mergelake as ml
        >>> table = ml.connect("memory://ttl").create_table("t", {"d": "Date", "k": "UInt8"}, order_by="k")
        >>> _ = table.append({"d": ["2001-01-01", "2100-01-01"], "k": [1, 2]})
        >>> _ = table.modify_ttl("d + INTERVAL 1 DAY")
        >>> [row[1] for row in table.scan()]
        [2]
        """
        from mergelake.table.definition.ttl import ModifyTtl

        return self.alter([ModifyTtl(ttl)], materialize_ttl=materialize)

    def remove_ttl(self) -> int:
        """Take the TTL of the table away; those of columns stay. BAD_ARGUMENTS if it has none."""
        from mergelake.table.definition.ttl import RemoveTtl

        return self.alter([RemoveTtl()])

    def materialize_ttl(self, *, partition_id: str | None = None) -> int:
        """Remove the rows and values that have expired now, in one partition or in all.

        It is a mutation: readers see it at once, parts are rewritten later, and those without such rows get the times
        at which theirs expire. Groups and codecs are left to merges. INCORRECT_QUERY for a table without a TTL.
        """
        from mergelake.jobs.mutate.ttl import materialize_ttl

        return materialize_ttl(self.handle, partition_id).version
