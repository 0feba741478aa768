"""`Table`'s methods that change the definition of a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from mergelake.core.base.errors import error
from mergelake.core.types.types import DataType, nested_columns, parse_type

if TYPE_CHECKING:
    from mergelake.api.python.environment import Environment
    from mergelake.core.model.schema import TableSchema
    from mergelake.table.definition.columns import ColumnDefinition, Place
    from mergelake.table.definition.command import SchemaCommand
    from mergelake.table.handle.handle import TableHandle
    from mergelake.table.pending.commands import Command


class AlterMethods:
    """Changes of a table's definition: one small commit each, whatever the size of the table.

    They return the version that has the change. No data is rewritten: parts are read through.
    """

    handle: TableHandle
    env: Environment

    def alter(self, commands: Sequence[SchemaCommand], *, materialize_ttl: bool = True) -> int:
        """Make several changes in one commit, in order; commands are the classes of `mergelake.table.definition`.

        `materialize_ttl`: rows and values that have expired by a TTL that is new are removed by the same commit.
        """
        from mergelake.api.python.constraints import alter_checked
        from mergelake.jobs.mutate.ttl import follow_new_ttl

        return alter_checked(self.handle, commands, self.env, follow_new_ttl(self.handle) if materialize_ttl else None)

    def add_column(
        self,
        name: str,
        type: str | DataType,
        *,
        default: str = "",
        materialized: str = "",
        alias: str = "",
        ephemeral: str | None = None,
        codec: str = "",
        comment: str | None = None,
        first: bool = False,
        after: str = "",
        if_not_exists: bool = False,
    ) -> int:
        """Add a column. Rows that are there have its default.

        Parameters
        ----------
        name, type
            Its name and ClickHouse type; `Nested(a UInt8, …)` makes a column of arrays for each of its elements.
        default, materialized, alias, ephemeral
            A ClickHouse expression over the row, at most one of them: see `docs/schema.md`. An empty `ephemeral` is the
            default of the type.
        codec
            The contents of CODEC(…), such as `"Delta, ZSTD"`.
        comment
            Text of your own.
        first, after
            Its place: before all others, or after the one named. By default it is the last.
        if_not_exists
            Do nothing if there is a column of that name.

        Raises
        ------
        InvalidInputError
            DUPLICATE_COLUMN, NO_SUCH_COLUMN_IN_TABLE for `after`, and what CREATE TABLE raises for such a column.

        Examples
        --------
        >>> import mergelake as ml
        >>> table = ml.connect("memory://add").create_table("t", {"k": [1, 2]}, order_by="k")
        >>> _ = table.add_column("twice", "UInt64", default="k * 2")
        >>> list(table.scan(ordered=True))
        [(1, 2), (2, 4)]
        """
        from mergelake.table.definition.columns import AddColumn

        kinds = {"DEFAULT": default, "MATERIALIZED": materialized, "ALIAS": alias, "EPHEMERAL": ephemeral}
        definition = _definition(name, type, kinds, codec, comment)
        return self.alter([AddColumn(definition, _place(first=first, after=after), if_not_exists)])

    def drop_column(self, name: str, *, if_exists: bool = False) -> int:
        """Drop a column, or a Nested with all of its columns. Older versions have it.

        NOT_FOUND_COLUMN_IN_BLOCK if there is none; ALTER_OF_COLUMN_IS_FORBIDDEN for a column of a key, ILLEGAL_COLUMN
        and the like for one that a default or an index needs.
        """
        from mergelake.table.definition.columns import DropColumn

        return self.alter([DropColumn(name, if_exists)])

    def rename_column(self, name: str, new_name: str, *, if_exists: bool = False) -> int:
        """Rename a column, in the expressions of the table too.

        NOT_FOUND_COLUMN_IN_BLOCK if there is none, DUPLICATE_COLUMN if the new name is taken,
        ALTER_OF_COLUMN_IS_FORBIDDEN for a column of a key.
        """
        from mergelake.table.definition.columns import RenameColumn

        return self.alter([RenameColumn(name, new_name, if_exists)])

    def modify_column(
        self,
        name: str,
        type: str | DataType | None = None,
        *,
        default: str = "",
        materialized: str = "",
        alias: str = "",
        ephemeral: str | None = None,
        codec: str = "",
        comment: str | None = None,
        first: bool = False,
        after: str = "",
        if_exists: bool = False,
    ) -> int:
        """Change what is given of a column; arguments as for `add_column`.

        Values of parts that were written with another type are converted when they are read, as CAST does; all of them
        are tried before, where some may not fit. A column that ceases to be Nullable needs a constant `default`, which
        takes the place of NULL. Another default is that of rows whose parts lack the column, too.

        Raises
        ------
        InvalidInputError
            NOT_FOUND_COLUMN_IN_BLOCK; ALTER_OF_COLUMN_IS_FORBIDDEN for the type of a column of a key; CANNOT_PARSE_TEXT
            and the like for a value that cannot be converted.
        """
        from mergelake.table.definition.modify_column import ModifyColumn

        kinds = {"DEFAULT": default, "MATERIALIZED": materialized, "ALIAS": alias, "EPHEMERAL": ephemeral}
        definition = _definition(name, type, kinds, codec, comment)
        return self.alter([ModifyColumn(definition, _place(first=first, after=after), if_exists)])

    def comment_column(self, name: str, comment: str, *, if_exists: bool = False) -> int:
        """Set the comment of a column; NOT_FOUND_COLUMN_IN_BLOCK if there is none."""
        from mergelake.table.definition.modify_column import CommentColumn

        return self.alter([CommentColumn(name, comment, if_exists)])

    def clear_column(self, name: str, *, partition_id: str | None = None, if_exists: bool = False) -> int:
        """Give all rows, or those of one partition, the default of a column; the new version.

        Nothing is rewritten; for a partition it is an UPDATE. Errors: as for `drop_column`.
        """
        from mergelake.jobs.mutate.columns import clear_column
        from mergelake.table.definition.modify_column import ClearColumn

        if partition_id is None:
            return self.alter([ClearColumn(name, if_exists)])
        if if_exists and not self.handle.schema.has(name):
            return self.handle.log.state.version
        schema = self.handle.refresh().schema
        return self._submit(clear_column(schema, name, partition_id), schema)

    def materialize_column(self, name: str, *, partition_id: str | None = None) -> int:
        """Write the default of a column down in parts that lack it, or compute a MATERIALIZED one anew in all rows.

        It is an UPDATE: readers see it at once, parts are rewritten later. Afterwards another default leaves these rows
        as they are. BAD_ARGUMENTS for a column without an expression.
        """
        from mergelake.jobs.mutate.columns import materialize_column

        schema = self.handle.refresh().schema
        return self._submit(materialize_column(schema, name, partition_id), schema)

    def _submit(self, command: Command | None, schema: TableSchema) -> int:
        from mergelake.jobs.mutate.submit import submit
        from mergelake.jobs.mutate.validate import Submission

        if command is None:
            return self.handle.log.state.version
        given = Submission(self.handle.clock.now_ms(), schema_version=schema.version)
        return submit(self.handle, [command], given).version

    def modify_settings(self, changes: Mapping[str, str | int | float | bool], reset: Collection[str] = ()) -> int:
        """Change settings of the table, and reset those in `reset` to their defaults; the new version.

        UNKNOWN_SETTING for a name, and ClickHouse's errors for a value, that is not valid; READONLY_SETTING for
        `index_granularity` and its like. Existing parts stay as they are.
        """
        from mergelake.table.definition.settings import ModifySettings, ResetSettings

        return self.alter([ModifySettings(changes), ResetSettings(tuple(reset))])


def _definition(
    name: str, type: str | DataType | None, kinds: Mapping[str, str | None], codec: str, comment: str | None
) -> ColumnDefinition:
    from mergelake.table.definition.columns import ColumnDefinition

    given = [(kind, text or "") for kind, text in kinds.items() if text or (kind == "EPHEMERAL" and text is not None)]
    if len(given) > 1:
        words = " and ".join(kind.lower() for kind, _ in given)
        raise error("BAD_ARGUMENTS", f"Column {name} has {words}", "Give one of them")
    kind, text = given[0] if given else ("", "")
    nested = nested_columns(type) if isinstance(type, str) else None
    if nested is not None:
        return ColumnDefinition(name, nested=tuple(nested.items()), codec=codec, comment=comment)
    parsed = parse_type(type) if isinstance(type, str) else type
    if not isinstance(parsed, DataType | None):
        raise error("TYPE_MISMATCH", f"The type of column {name} is {type!r}", "Give a ClickHouse type as text")
    return ColumnDefinition(name, parsed, (), kind, text, codec, comment)


def _place(*, first: bool, after: str) -> Place | None:
    from mergelake.table.definition.columns import Place

    if first and after:
        raise error("BAD_ARGUMENTS", f"The column is to be first and after {after}", "Give one of them")
    return Place(after) if first or after else None
