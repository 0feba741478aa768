"""`Table`'s methods for constraints, skip indexes, keys and the comment of its definition."""

from __future__ import annotations

from collections.abc import Sequence

from mergelake.api.python.altering import AlterMethods
from mergelake.core.base.errors import error
from mergelake.core.model.schema import Constraint, SkipIndex


class DefinitionMethods(AlterMethods):
    """Changes of what a table's definition says beside its columns: one small commit each, whatever its size.

    They return the version that has the change.
    """

    def add_constraint(self, name: str, check: str = "", *, assume: str = "", if_not_exists: bool = False) -> int:
        """Add a constraint: inserts are refused whose rows break it.

        Parameters
        ----------
        name
            Its name.
        check
            A ClickHouse expression over stored columns, of type `UInt8` or `Bool`, which is 1 for every row.
        assume
            In place of `check`: a promise that nothing checks.
        if_not_exists
            Do nothing if there is a constraint of that name.

        Raises
        ------
        InvalidInputError
            VIOLATED_CONSTRAINT if a row that is there breaks it: the table is read for that. ILLEGAL_COLUMN if the name
            is taken, UNKNOWN_IDENTIFIER for an unknown column.

        Examples
        --------
        >>> import mergelake as ml
        >>> table = ml.connect("memory://constraint").create_table("t", {"k": [1, 2]}, order_by="k")
        >>> _ = table.add_constraint("positive", "k > 0")
        >>> table.schema.constraints
        (Constraint(name='positive', kind='CHECK', expression='k > 0'),)
        """
        from mergelake.table.definition.constraints import AddConstraint

        if bool(check) == bool(assume):
            raise error("BAD_ARGUMENTS", f"Constraint {name} needs either check or assume", "Give one expression")
        constraint = Constraint(name, "CHECK" if check else "ASSUME", check or assume)
        return self.alter([AddConstraint(constraint, if_not_exists)])

    def drop_constraint(self, name: str, *, if_exists: bool = False) -> int:
        """Drop a constraint; BAD_ARGUMENTS if there is none of that name."""
        from mergelake.table.definition.constraints import DropConstraint

        return self.alter([DropConstraint(name, if_exists)])

    def add_index(
        self,
        name: str,
        expression: str,
        type: str = "minmax",
        granularity: int = 1,
        *,
        first: bool = False,
        after: str = "",
        if_not_exists: bool = False,
    ) -> int:
        """Add a skip index. Parts that are written or merged from now on have it.

        Parameters
        ----------
        name, expression, type, granularity
            As in `INDEX name expression TYPE type GRANULARITY granularity` of CREATE TABLE.
        first, after
            Its place among the indexes. By default it is the last.
        if_not_exists
            Do nothing if there is an index of that name.

        Raises
        ------
        InvalidInputError
            ILLEGAL_COLUMN if the name is taken, BAD_ARGUMENTS for an unknown `after`, and what CREATE TABLE raises for
            such an index.
        """
        from mergelake.table.definition.indexes import AddIndex

        if first and after:
            raise error("BAD_ARGUMENTS", f"The index is to be first and after {after}", "Give one of them")
        place = "" if first else after or None
        return self.alter([AddIndex(SkipIndex(name, expression, type, granularity), place, if_not_exists)])

    def drop_index(self, name: str, *, if_exists: bool = False) -> int:
        """Drop a skip index; BAD_ARGUMENTS if there is none of that name."""
        from mergelake.table.definition.indexes import DropIndex

        return self.alter([DropIndex(name, if_exists)])

    def materialize_index(self, name: str, *, partition_id: str | None = None) -> int:
        """Give parts that lack the files of a skip index these files; the new version.

        It is a mutation, which changes no row: parts are rewritten later, or by `apply_mutations`. Nothing happens if
        there is no index of that name.
        """
        return self._index_mutation(name, partition_id, clears=False)

    def clear_index(self, name: str, *, partition_id: str | None = None) -> int:
        """Take the files of a skip index away from parts, until they are merged; the new version. See
        `materialize_index`.
        """
        return self._index_mutation(name, partition_id, clears=True)

    def _index_mutation(self, name: str, partition_id: str | None, *, clears: bool) -> int:
        from mergelake.table.pending.commands import IndexCommand

        schema = self.handle.refresh().schema
        known = any(index.name == name for index in schema.indices)
        return self._submit(IndexCommand(name, clears, partition_id) if known else None, schema)

    def modify_order_by(self, order_by: str | Sequence[str]) -> int:
        """Change the sorting key. The primary key stays as it is, and so do the rows of parts.

        So the new key begins with the primary key, and what it has beside expressions of the old key are columns that
        the same commit adds, without a default: `alter` takes several commands. BAD_ARGUMENTS for another key.
        """
        from mergelake.table.definition.keys import ModifyOrderBy

        return self.alter([ModifyOrderBy((order_by,) if isinstance(order_by, str) else tuple(order_by))])

    def modify_sample_by(self, sample_by: str | None) -> int:
        """Change the sampling key, which is in the primary key; None removes it. BAD_ARGUMENTS for another one."""
        from mergelake.table.definition.keys import ModifySampleBy, RemoveSampleBy

        return self.alter([RemoveSampleBy() if sample_by is None else ModifySampleBy(sample_by)])

    def modify_comment(self, comment: str) -> int:
        """Change the comment of the table; an empty one removes it."""
        from mergelake.table.definition.comments import ModifyComment

        return self.alter([ModifyComment(comment)])
