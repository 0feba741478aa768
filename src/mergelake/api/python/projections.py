"""The methods of `Table` for projections."""

from __future__ import annotations

from mergelake.api.python.constraints import alter_checked
from mergelake.api.python.environment import Environment
from mergelake.table.definition.commit import alter
from mergelake.table.definition.projections import AddProjection, DropProjection
from mergelake.table.handle.handle import TableHandle


class ProjectionMethods:
    """What `Table` has of them."""

    handle: TableHandle
    env: Environment

    def add_projection(self, name: str, query: str) -> int:
        """Add a projection, `SELECT … [GROUP BY …] [ORDER BY …]`; the new version.

        Parts that are written from now on have it; `materialize_projection` writes it for others. No data is written.
        Raises ILLEGAL_PROJECTION for a name that is taken, NOT_IMPLEMENTED for one that was
        another projection, and the errors of CREATE TABLE with such a projection.
        """
        return alter_checked(self.handle, [AddProjection(name, query)], self.env)

    def drop_projection(self, name: str) -> int:
        """Drop a projection; the new version. No data is written. NO_SUCH_PROJECTION_IN_TABLE if there is none."""
        return alter(self.handle, [DropProjection(name)])

    def materialize_projection(self, name: str, *, partition_id: str | None = None) -> int:
        """Write a projection for all parts that lack it, or those of one partition; the number of parts.

        Each part is written anew, with the mutations that it lacks. Merges on disks of nodes that began without it are
        cancelled. Raises NO_SUCH_PROJECTION_IN_TABLE, and SUPPORT_IS_DISABLED where merges drop projections.
        """
        from mergelake.jobs.merge.materialize import write_projection

        self.handle.refresh()
        return write_projection(self.handle, self.env.run_merges, name, partition_id=partition_id)

    def clear_projection(self, name: str, *, partition_id: str | None = None) -> int:
        """Remove a projection from all parts that have it, or those of one partition; the number of parts.

        Each part is written anew. Merges give it to their results again, as long as the table has it. Raises
        NO_SUCH_PROJECTION_IN_TABLE.
        """
        from mergelake.jobs.merge.materialize import write_projection

        self.handle.refresh()
        return write_projection(self.handle, self.env.run_merges, name, partition_id=partition_id, clear=True)
