"""Statements as values: parsed SQL, before any name is looked up.

A closed union, `Statement`; `lower` turns each kind into calls of the public objects. Expressions, types of
keys and SELECTs stay the user's own text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mergelake.core.model.schema import Column, TableSchema
from mergelake.table.definition.command import SchemaCommand


@dataclass(frozen=True, slots=True)
class Name:
    """A table's name; `database` is empty where the statement gives none."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}" if self.database else self.table


@dataclass(frozen=True, slots=True)
class PartitionClause:
    """PARTITION 202601, PARTITION (1, 'a'), PARTITION ID 'x' or PARTITION ALL."""

    values: tuple[int | float | str | None, ...] = ()
    id: str = ""
    every: bool = False

    @property
    def value(self) -> object:
        """The values as `Table` takes them."""
        return self.values[0] if len(self.values) == 1 else self.values


@dataclass(frozen=True, slots=True)
class Like:
    """[NOT] LIKE | ILIKE 'pattern' of a SHOW."""

    pattern: str
    ignore_case: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """CREATE DATABASE."""

    name: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """DROP DATABASE, and TRUNCATE DATABASE: all its tables go."""

    name: str
    if_exists: bool = False
    keeps_name: bool = False
    """TRUNCATE: the database stays, empty."""


@dataclass(frozen=True, slots=True)
class RenameDatabase:
    """RENAME DATABASE."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE."""

    name: Name
    schema: TableSchema | None
    """None where the columns come from another table or a SELECT."""
    if_not_exists: bool = False
    like: Name | None = None
    """CREATE TABLE t AS other."""
    query: str = ""
    """CREATE TABLE t … AS SELECT: the SELECT."""
    clauses: TableSchema | None = None
    """Engine, keys and settings that go with the columns of `like` or `query`; None for those of `like`."""
    given: frozenset[str] = frozenset()
    """The fields of `clauses` that the statement gives."""
    settings: Mapping[str, str | int | float] = field(default_factory=dict)
    """Those of its SETTINGS that are not a table's: they are the statement's, if ClickHouse knows them."""
    replace: bool = False
    """Whether it takes the place of what has the name."""
    must_exist: bool = False
    """REPLACE TABLE: something has the name."""
    empty: bool = False
    """EMPTY AS SELECT: the SELECT gives the columns alone."""


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE [OR REPLACE] VIEW."""

    name: Name
    query: str
    columns: tuple[Column, ...] = ()
    """With their types; empty for those of the query."""
    aliases: tuple[str, ...] = ()
    """Names of the query's columns."""
    comment: str = ""
    if_not_exists: bool = False
    replace: bool = False


@dataclass(frozen=True, slots=True)
class CloneTable:
    """CREATE TABLE … CLONE AS other [AS OF …]."""

    name: Name
    source: Name
    if_not_exists: bool = False
    version: int | str | None = None
    """A number or a tag."""
    timestamp: str | None = None
    replace: bool = False
    must_exist: bool = False
    """As of `CreateTable`."""


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE or DROP VIEW, of one or several."""

    names: tuple[Name, ...]
    if_exists: bool = False
    view: bool = False


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """TRUNCATE TABLE."""

    name: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class TruncateTables:
    """TRUNCATE ALL TABLES FROM database [[NOT] [I]LIKE 'pattern']."""

    database: str
    like: Like | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameTable:
    """RENAME TABLE a TO b, …."""

    pairs: tuple[tuple[Name, Name], ...]


@dataclass(frozen=True, slots=True)
class ExchangeTables:
    """EXCHANGE TABLES."""

    name: Name
    other: Name


@dataclass(frozen=True, slots=True)
class Use:
    """USE."""

    database: str


@dataclass(frozen=True, slots=True)
class ShowDatabases:
    """SHOW DATABASES."""

    like: Like | None = None


@dataclass(frozen=True, slots=True)
class ShowTables:
    """SHOW TABLES [FROM database]; an empty database is the current one."""

    database: str = ""
    like: Like | None = None


@dataclass(frozen=True, slots=True)
class ShowCreateTable:
    """SHOW CREATE [TABLE | VIEW]."""

    name: Name
    view: bool = False


@dataclass(frozen=True, slots=True)
class ShowColumns:
    """SHOW [FULL] COLUMNS | FIELDS."""

    name: Name
    like: Like | None = None
    full: bool = False


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE TABLE."""

    name: Name
    query: str = ""
    """The SELECT, where one is described rather than a table."""


@dataclass(frozen=True, slots=True)
class Exists:
    """EXISTS."""

    name: Name
    database: bool = False
    """EXISTS DATABASE: `name.table` is its name."""
    view: bool = False
    """EXISTS VIEW."""


@dataclass(frozen=True, slots=True)
class Infile:
    """FROM INFILE 'path' [COMPRESSION 'x']."""

    path: str
    """May have the wildcards of ClickHouse's `file`."""
    compression: str = "auto"
    """`auto`: by the ending of the path."""


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT."""

    name: Name
    columns: tuple[str, ...] = ()
    """As given; empty for all that can be inserted."""
    excluded: tuple[str, ...] = ()
    """`(* EXCEPT (a, b))`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    format: str = ""
    """`Values`, `JSONEachRow`, …; empty for a SELECT, and if a file's extension determines it."""
    data: str = ""
    """The inline data as written."""
    data_at: int = 0
    """Offset of the data in the script, in characters."""
    query: str = ""
    infile: Infile | None = None
    infile_at: int = 0
    """Offset of FROM INFILE in the script, or where it could be inserted."""


@dataclass(frozen=True, slots=True)
class ColumnMatcher:
    """`*`, `COLUMNS('…')`: the ordinary columns whose names a pattern finds, but for some."""

    pattern: str = ""
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Optimize:
    """OPTIMIZE TABLE."""

    name: Name
    partition: PartitionClause | None = None
    final: bool = False
    cleanup: bool = False
    deduplicate: bool = False
    by: tuple[str | ColumnMatcher, ...] = ()
    """Columns after DEDUPLICATE BY; empty: all of the table."""


@dataclass(frozen=True, slots=True)
class CheckTable:
    """CHECK TABLE."""

    name: Name


@dataclass(frozen=True, slots=True)
class PartitionCommand:
    """A command of ALTER TABLE on a partition or a part."""

    action: str
    """`drop`, `detach`, `attach`, `drop detached`, `freeze`, `unfreeze`, `move`, `replace`."""
    partition: PartitionClause | None = None
    part: str = ""
    """Name of the part; of FREEZE and UNFREEZE the name after WITH NAME."""
    other: Name | None = None
    """The table to which (`move`) or from which (`replace`, `attach`) the partition is brought."""


@dataclass(frozen=True, slots=True)
class AlterPartitions:
    """ALTER TABLE … DROP | DETACH | ATTACH | DROP DETACHED PARTITION | PART, [UN]FREEZE, …."""

    name: Name
    commands: tuple[PartitionCommand, ...]


@dataclass(frozen=True, slots=True)
class MutationCommand:
    """UPDATE or DELETE, as part of a mutation."""

    where: str
    assignments: tuple[tuple[str, str], ...] = ()
    """Column and expression; none: DELETE."""
    partition: PartitionClause | None = None


@dataclass(frozen=True, slots=True)
class ColumnMutation:
    """MATERIALIZE COLUMN, or CLEAR COLUMN in a partition."""

    column: str
    clears: bool = False
    partition: PartitionClause | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class IndexMutation:
    """MATERIALIZE INDEX or CLEAR INDEX."""

    index: str
    clears: bool = False
    partition: PartitionClause | None = None


@dataclass(frozen=True, slots=True)
class Mutate:
    """ALTER TABLE … UPDATE | DELETE, …, or one of UPDATE and DELETE FROM."""

    name: Name
    commands: tuple[MutationCommand | ColumnMutation | IndexMutation, ...]
    lightweight: bool = False
    """UPDATE … SET or DELETE FROM."""

    @property
    def deletes(self) -> bool:
        """Whether it is DELETE FROM."""
        first = self.commands[0]
        return self.lightweight and isinstance(first, MutationCommand) and not first.assignments


@dataclass(frozen=True, slots=True)
class KillMutation:
    """KILL MUTATION."""

    where: str
    test: bool = False
    """Whether it only says what it would do."""


@dataclass(frozen=True, slots=True)
class UndropTable:
    """UNDROP TABLE."""

    name: Name
    table_id: str = ""
    """32 hex digits; empty for the last one of the name."""


@dataclass(frozen=True, slots=True)
class UndropDatabase:
    """UNDROP DATABASE."""

    name: str


@dataclass(frozen=True, slots=True)
class WriteProjection:
    """ALTER TABLE … MATERIALIZE | CLEAR PROJECTION."""

    name: Name
    action: str
    """`materialize` or `clear`."""
    projection: str
    partition: PartitionClause


@dataclass(frozen=True, slots=True)
class MaterializeTtl:
    """ALTER TABLE … MATERIALIZE TTL."""

    name: Name
    partition: PartitionClause | None = None


@dataclass(frozen=True, slots=True)
class AlterSchema:
    """ALTER TABLE with commands that change the table's definition, and then the files of its indexes."""

    name: Name
    commands: tuple[SchemaCommand, ...]
    files: tuple[IndexMutation, ...] = ()


AlterStep = AlterSchema | Mutate | AlterPartitions | WriteProjection | MaterializeTtl


@dataclass(frozen=True, slots=True)
class AlterSteps:
    """ALTER TABLE with commands of several kinds, in their order: each step has neighbours of one kind."""

    name: Name
    steps: tuple[AlterStep, ...]


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN."""

    kind: str
    """What stands between EXPLAIN and the SELECT, as ClickHouse takes it: `PLAN`, `indexes = 1`, empty."""
    query: str


@dataclass(frozen=True, slots=True)
class Set:
    """SET."""

    settings: Mapping[str, str]
    """Values as SQL literals."""


@dataclass(frozen=True, slots=True)
class Select:
    """SELECT, and whatever ClickHouse reads itself."""

    query: str


@dataclass(frozen=True, slots=True)
class Tailed:
    """A statement with its INTO OUTFILE, FORMAT and SETTINGS, and with mergelake's settings taken out of its SELECT."""

    statement: Statement
    outfile: str = ""
    """`INTO OUTFILE 'x' …` as written."""
    format: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Values as SQL literals; they hold for this statement alone."""


Statement = (
    CreateDatabase
    | DropDatabase
    | RenameDatabase
    | CreateTable
    | CreateView
    | CloneTable
    | DropTable
    | TruncateTable
    | TruncateTables
    | RenameTable
    | ExchangeTables
    | Use
    | ShowDatabases
    | ShowTables
    | ShowCreateTable
    | ShowColumns
    | Describe
    | Exists
    | Insert
    | Optimize
    | CheckTable
    | AlterPartitions
    | Mutate
    | KillMutation
    | UndropTable
    | UndropDatabase
    | AlterSchema
    | AlterSteps
    | WriteProjection
    | MaterializeTtl
    | Explain
    | Set
    | Select
    | Tailed
)
