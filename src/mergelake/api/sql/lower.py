"""Run statements by calls of the public objects: each kind of statement takes a few lines here.

SQL calls what a Python user can call, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, assert_never

from mergelake.api.sql import show, statements as s
from mergelake.api.sql.altering_partitions import alter_partitions
from mergelake.api.sql.altering_steps import alter_in_steps
from mergelake.api.sql.ddl import like_other, with_columns
from mergelake.api.sql.inserting import run_insert
from mergelake.api.sql.mutating import alter_schema, kill_mutations, materialize_ttl, run_mutation
from mergelake.api.sql.result import Result, rows_result
from mergelake.api.sql.settings import check_changes, check_of_statement, check_permitted, judged, merged
from mergelake.api.sql.virtual import create_union, create_view, named_columns, opened, schema_of, shown
from mergelake.core.base.errors import UnsupportedError, error
from mergelake.core.model.schema import TableSchema
from mergelake.query.explain import explain
from mergelake.query.select import prepare
from mergelake.query.statement.access import check_fixed, check_settings, denied
from mergelake.query.statement.settings import plain_value
from mergelake.table.catalog.catalog import RESERVED

if TYPE_CHECKING:
    from mergelake.api.sql.session import Session


def execute(db: Session, statement: s.Statement, script: str, format: str = "") -> Result:
    """Run one statement. `script` is the text that it came from, for errors.

    Its rows are returned in `format`, unless the statement has a format of its own.
    """
    if isinstance(statement, s.Tailed):
        return _tailed(db, statement, script, format)
    if format and not isinstance(statement, s.Select):
        return execute(db, statement, script).formatted_as(format, "", db.engine_settings())
    check_permitted(statement, db.settings)
    match statement:
        case s.Select(query):
            return Result(db.select(query, format))
        case s.Insert():
            run_insert(db, statement, script)
        case s.Explain(kind, query):
            lines = explain(query, db.resolver(query), db.context(), kind)
            return rows_result({"explain": lines}, {"explain": "String"})
        case s.CreateTable():
            _create_table(db, statement, script)
        case s.CloneTable(name, source, if_not_exists, version, timestamp, replaces, must_exist):
            try:
                db.warehouse.clone_table(
                    db.full_name(source), db.full_name(name), version=version, timestamp=timestamp,
                    if_not_exists=if_not_exists, replace=replaces, must_exist=must_exist,
                )  # fmt: skip
            except UnsupportedError:
                _refuse_virtual(db, source)
                raise
        case s.CreateDatabase(name, if_not_exists):
            if_not_exists = if_not_exists or _is_on(db, "create_if_not_exists")
            db.warehouse.create_database(name, if_not_exists=if_not_exists)
        case s.DropDatabase(name, if_exists, keeps_name):
            drop = db.warehouse.truncate_database if keeps_name else db.warehouse.drop_database
            drop(name, if_exists=if_exists)
        case s.RenameDatabase(name, new_name):
            db.warehouse.rename_database(name, new_name)
            if db.current_database == name:
                db.current_database = new_name
        case s.CreateView(name, query, columns, aliases, comment, if_not_exists, replaces):
            if_not_exists = if_not_exists or _is_on(db, "create_if_not_exists")
            create_view(
                db, name, query, columns=columns, aliases=aliases, comment=comment, replace=replaces,
                if_not_exists=if_not_exists and not replaces,
            )  # fmt: skip
        case s.DropTable(names, if_exists, view):
            for each in names:
                where = each.database or db.current_database, each.table
                db.warehouse.catalog.drop_table(where, if_exists=if_exists, view=view)
        case s.TruncateTable(name, if_exists):
            if not if_exists or _exists(db, name):
                db.open(name).truncate()
        case s.TruncateTables(database, like, if_exists):
            if not if_exists or database in db.warehouse.databases():
                _truncate_all(db, database, like)
        case s.RenameTable(pairs):
            db.warehouse.rename_tables([(db.full_name(old), db.full_name(new)) for old, new in pairs])
        case s.ExchangeTables(name, other):
            db.warehouse.exchange_tables(db.full_name(name), db.full_name(other))
        case s.Use(database):
            db.use(database)
        case s.ShowDatabases(like):
            return show.names(db.warehouse.databases(), like)
        case s.ShowTables(database, like):
            return show.names(db.table_names(database or db.current_database), like)
        case s.ShowCreateTable(name, view):
            return rows_result({"statement": [shown(db, name, view=view)]}, {"statement": "String"})
        case s.ShowColumns(name, like, full):
            database = name.database or db.current_database
            if database not in RESERVED:
                return show.columns_of(opened(db, name).schema, like, full=full)
            from mergelake.api.sql.foreign import describe_foreign

            return show.named_columns(describe_foreign(db, database, name.table), like, full=full)
        case s.Describe(_, query) if query:
            names_and_kinds = prepare(query, db.resolver(query), db.context()).columns(db.context())
            return show.describe_columns(dict(zip(*names_and_kinds, strict=True)))
        case s.Describe(name) if (name.database or db.current_database) in RESERVED:
            database = name.database or db.current_database
            from mergelake.api.sql.foreign import describe_foreign

            return show.describe_columns(describe_foreign(db, database, name.table))
        case s.Exists(name, False, False) if (name.database or db.current_database) in RESERVED:
            known = db.table_names(name.database or db.current_database)
            return rows_result({"result": [int(name.table in known)]}, {"result": "UInt8"})
        case s.Describe(name):
            return show.describe(schema_of(db, name), compact=_is_on(db, "describe_compact_output"))
        case s.Exists(name, _, True):
            virtual = db.warehouse.catalog.refresh().virtual_table(name.database or db.current_database, name.table)
            return rows_result({"result": [int(virtual is not None and virtual.is_view)]}, {"result": "UInt8"})
        case s.Exists(name, database):
            exists = name.table in (*db.warehouse.databases(), *RESERVED) if database else _exists(db, name)
            return rows_result({"result": [int(exists)]}, {"result": "UInt8"})
        case s.Optimize():
            _optimize(db, statement)
        case s.CheckTable(name):
            checks = db.open(name).check()
            checked = {column: checks[column].to_pylist() for column in checks.column_names}
            if _is_on(db, "check_query_single_value_result"):
                return rows_result({"result": [int(all(checked["is_passed"]))]}, {"result": "UInt8"})
            return rows_result(checked, {"part_path": "String", "is_passed": "UInt8", "message": "String"})
        case s.AlterPartitions():
            alter_partitions(db, statement)
        case s.Mutate():
            run_mutation(db, statement)
        case s.KillMutation():
            return kill_mutations(db, statement)
        case s.UndropTable(name, table_id):
            db.warehouse.undrop_table(db.full_name(name), table_id)
        case s.UndropDatabase(name):
            db.warehouse.undrop_database(name)
        case s.AlterSchema():
            alter_schema(db, statement)
        case s.AlterSteps():
            alter_in_steps(db, statement, lambda step: execute(db, step, script))
        case s.WriteProjection():
            _write_projection(db, statement)
        case s.MaterializeTtl():
            materialize_ttl(db, statement)
        case s.Set(settings):
            _set(db, settings)
        case _:
            assert_never(statement)
    return Result()


def _tailed(db: Session, tailed: s.Tailed, script: str, format: str) -> Result:
    """Run a statement with settings of its own; its rows are returned in a format, or written to a file."""
    check_changes(tailed.settings, db.settings)
    _check_reach(db, tailed.settings)
    if tailed.outfile and not db.allow_external_access:
        raise denied("INTO OUTFILE writes a file")
    with db.under(judged(tailed.settings)):
        if not (tailed.format or tailed.outfile):
            return execute(db, tailed.statement, script, format)
        result = execute(db, tailed.statement, script)
        return result.formatted_as(tailed.format, f"{tailed.outfile} ", db.engine_settings())


def _create_table(db: Session, statement: s.CreateTable, script: str) -> None:
    full = db.full_name(statement.name)
    check_of_statement(statement.settings)
    if_not_exists = not statement.replace and (statement.if_not_exists or _is_on(db, "create_if_not_exists"))
    if if_not_exists and _exists(db, statement.name):
        return  # the SELECT must not run
    union = statement.schema or statement.clauses
    if union is not None and union.engine == "Merge":
        _create_union(db, statement, union, if_not_exists=if_not_exists)
        return
    schema = statement.schema
    if schema is None:
        schema = _borrowed(db, statement)
    insert = s.Insert(statement.name, query=statement.query) if statement.query and not statement.empty else None
    if not statement.replace and insert is None:
        db.warehouse.create_table(full, schema, if_not_exists=if_not_exists)
        return
    filled = db.warehouse.replacing_table(full, schema, must_exist=statement.must_exist, replace=statement.replace)
    with filled as table:
        if insert is not None:
            run_insert(db, insert, script, table)


def _exists(db: Session, name: s.Name) -> bool:
    """Whether there is a table, a view or a union of this name."""
    return name.table in db.warehouse.catalog.refresh().names(name.database or db.current_database)


def _truncate_all(db: Session, database: str, like: s.Like | None) -> None:
    """Truncate the tables of a database whose names match; views, which have no rows, are left alone, as in ClickHouse.

    All are opened before the first is truncated: NOT_IMPLEMENTED if a union is among them.
    """
    names = [name for name in db.table_names(database) if like is None or show.matches(name, like)]
    virtual = {name: db.warehouse.catalog.state.virtual_table(database, name) for name in names}
    views = {name for name, each in virtual.items() if each is not None and each.is_view}
    for table in [db.open(s.Name(database, name)) for name in names if name not in views]:
        table.truncate()


def _create_union(db: Session, statement: s.CreateTable, union: TableSchema, *, if_not_exists: bool) -> None:
    """CREATE TABLE … ENGINE = Merge(…)."""
    if statement.query:
        raise error("NOT_IMPLEMENTED", "A Merge AS SELECT is not supported", "It has the rows of its tables")
    if statement.like is not None:
        union = with_columns(union, schema_of(db, statement.like).columns)
    if statement.must_exist:
        opened(db, statement.name)
    create_union(db, statement.name, union, if_not_exists=if_not_exists, replace=statement.replace)


def _borrowed(db: Session, statement: s.CreateTable) -> TableSchema:
    """The schema of CREATE TABLE t AS other, or AS SELECT."""
    if statement.like is not None:
        other = schema_of(db, statement.like)
        if "engine" not in statement.given:
            _refuse_virtual(db, statement.like)
        return other if statement.clauses is None else like_other(other, statement.clauses, statement.given)
    if statement.clauses is None:
        raise error(
            "ENGINE_REQUIRED", "CREATE TABLE … AS SELECT needs a table engine", "Write ENGINE = MergeTree ORDER BY …"
        )
    prepared = prepare(statement.query, db.resolver(statement.query), db.context())
    return with_columns(statement.clauses, named_columns(*prepared.columns(db.context())))


def _refuse_virtual(db: Session, name: s.Name) -> None:
    """Raise INCORRECT_QUERY for a view or a union, as far as it is known here: there is no table like it."""
    virtual = db.warehouse.catalog.state.virtual_table(name.database or db.current_database, name.table)
    if virtual is not None:
        what = f"Cannot CREATE a table AS {name}, it is a {virtual.schema.engine}"
        raise error("INCORRECT_QUERY", what, "Write ENGINE = MergeTree ORDER BY …")


def _is_on(db: Session, name: str) -> bool:
    """Whether a setting of ours, off by default, is on."""
    return plain_value(db.settings.get(name, "0")) != "0"


def _optimize(db: Session, statement: s.Optimize) -> None:
    table, partition = db.open(statement.name), statement.partition
    of_all = partition is None or partition.every
    deduplicate: Sequence[str] | bool = statement.deduplicate
    if statement.by:
        deduplicate = [name for item in statement.by for name in _matched(item, table.schema)]
    table.optimize(
        partition_id=None if partition is None or of_all else partition.id or table.partition_id(partition.value),
        final=statement.final,
        skip_merged=_is_on(db, "optimize_skip_merged_partitions"),
        throw_if_noop=_is_on(db, "optimize_throw_if_noop"),
        deduplicate=deduplicate,
        cleanup=statement.cleanup,
        on_progress=db.on_progress,
    )


_PATTERN = re.compile(r"[\w|.^$*+?()\[\] -]*")
"""Patterns that have the same meaning in ClickHouse's RE2 and here."""


def _matched(item: str | s.ColumnMatcher, schema: TableSchema) -> list[str]:
    """The columns that an item of DEDUPLICATE BY means; BAD_ARGUMENTS or NOT_IMPLEMENTED for a pattern."""
    if isinstance(item, str):
        return [item]
    names = [column.name for column in schema.stored if column.default_kind != "MATERIALIZED"]
    if not _PATTERN.fullmatch(item.pattern) or "(?" in item.pattern:
        raise error("NOT_IMPLEMENTED", f"The pattern {item.pattern} in COLUMNS is not supported here", "Name columns")
    try:
        found = re.compile(item.pattern, re.ASCII)
    except re.error as wrong:
        raise error("CANNOT_COMPILE_REGEXP", f"The pattern {item.pattern} is wrong: {wrong}") from None
    return [name for name in names if found.search(name) and name not in item.excluded]


def _write_projection(db: Session, statement: s.WriteProjection) -> None:
    table, partition = db.open(statement.name), statement.partition
    if all(each.name != statement.projection for each in table.schema.projections):
        return  # as in ClickHouse, with and without IF EXISTS
    partition_id = None if partition.every else partition.id or table.partition_id(partition.value)
    write = table.clear_projection if statement.action == "clear" else table.materialize_projection
    write(statement.projection, partition_id=partition_id)


def _check_reach(db: Session, names: Iterable[str]) -> None:
    """Refuse settings that no statement may change and, without external access, those that reach beyond the tables."""
    check_fixed(names)
    if not db.allow_external_access:
        check_settings(names)


def _set(db: Session, settings: Mapping[str, str]) -> None:
    """Remember settings for the statements that follow."""
    _check_reach(db, settings)
    changed = merged(db.settings, judged(settings))
    db.settings.clear()
    db.settings.update(changed)
