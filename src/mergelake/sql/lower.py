"""Statements into calls of the public objects: each kind of statement is a few lines here.

What a Python user can call, SQL calls; it knows no secret door.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from mergelake.core.errors import error
from mergelake.core.schema import Column, TableSchema
from mergelake.lake.environment import asks_for_news
from mergelake.query import engine
from mergelake.query.access import check_fixed, check_settings
from mergelake.query.select import explain, prepare
from mergelake.sql import show
from mergelake.sql import statements as s
from mergelake.sql.ddl import with_columns
from mergelake.sql.inserting import run_insert
from mergelake.sql.result import Result, rows_result

if TYPE_CHECKING:
    from mergelake.sql.database import Database

OWN_SETTINGS: Mapping[str, str] = {"executor": "'auto'", "dedup_token": "''", "read_consistency": "'strong'"}
"""Settings of ours beside ClickHouse's, with their defaults."""


def execute(db: Database, statement: s.Statement, script: str) -> Result:
    """Run one statement. `script` is the text that it came from, for errors."""
    match statement:
        case s.Select(query):
            return Result(db.select(query))
        case s.Insert():
            run_insert(db, statement, script)
        case s.Explain(kind, query):
            lines = explain(query, db.resolver(), db.context(), kind)
            return rows_result({"explain": lines}, {"explain": "String"})
        case s.CreateTable():
            _create_table(db, statement, script)
        case s.CloneTable(name, source, if_not_exists, version, timestamp):
            db.warehouse.clone_table(
                db.full_name(source), db.full_name(name), version=version, timestamp=timestamp,
                if_not_exists=if_not_exists,
            )  # fmt: skip
        case s.CreateDatabase(name, if_not_exists):
            db.warehouse.create_database(name, if_not_exists=if_not_exists)
        case s.DropDatabase(name, if_exists):
            db.warehouse.drop_database(name, if_exists=if_exists)
        case s.RenameDatabase(name, new_name):
            db.warehouse.rename_database(name, new_name)
            if db.current_database == name:
                db.current_database = new_name
        case s.DropTable(names, if_exists):
            for each in names:
                db.warehouse.drop_table(db.full_name(each), if_exists=if_exists)
        case s.TruncateTable(name, if_exists):
            if not if_exists or db.warehouse.has_table(db.full_name(name)):
                db.open(name).truncate()
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
        case s.ShowCreateTable(name):
            text = show.create_table_text(db.full_name(name), db.open(name).schema)
            return rows_result({"statement": [text]}, {"statement": "String"})
        case s.Describe(name):
            return show.describe(db.open(name).schema)
        case s.Exists(name, database):
            found = name.table in db.warehouse.databases() if database else db.warehouse.has_table(db.full_name(name))
            return rows_result({"result": [int(found)]}, {"result": "UInt8"})
        case s.Optimize(name, partition, final):
            _optimize(db, name, partition, final)
        case s.CheckTable(name):
            found = db.open(name).check()
            columns = {column: found[column].to_pylist() for column in found.column_names}
            return rows_result(columns, {"part_path": "String", "is_passed": "UInt8", "message": "String"})
        case s.DropPartition(name, partition):
            _drop_partition(db, name, partition)
        case s.ModifySettings(name, changes, reset):
            db.open(name).modify_settings(changes, reset)
        case s.Set(settings):
            _set(db, settings)
        case _:
            assert_never(statement)
    return Result()


def _create_table(db: Database, statement: s.CreateTable, script: str) -> None:
    full = db.full_name(statement.name)
    if statement.if_not_exists and statement.query and db.warehouse.has_table(full):
        return  # the SELECT must not run
    schema = statement.schema
    if schema is None:
        schema = _borrowed(db, statement)
    db.warehouse.create_table(full, schema, if_not_exists=statement.if_not_exists)
    if statement.query:
        run_insert(db, s.Insert(statement.name, query=statement.query), script)


def _borrowed(db: Database, statement: s.CreateTable) -> TableSchema:
    """The schema of CREATE TABLE t AS other, or AS SELECT."""
    if statement.like is not None:
        other = db.open(statement.like).schema
        if statement.clauses is None:
            return replace(other, version=1)
        return with_columns(statement.clauses, other.columns)
    if statement.clauses is None:
        raise error(
            "ENGINE_REQUIRED", "CREATE TABLE … AS SELECT needs a table engine", "Write ENGINE = MergeTree ORDER BY …"
        )
    from mergelake.core.types import parse_type

    prepared = prepare(statement.query, db.resolver(), external=db.allow_external_access)
    names, kinds = prepared.columns(db.engine_settings())
    columns = tuple(Column(i, name, parse_type(kind)) for i, (name, kind) in enumerate(zip(names, kinds, strict=True)))
    return with_columns(statement.clauses, columns)


def _value(partition: s.Partition) -> object:
    """The partition's value as `Table` takes it."""
    return partition.values[0] if len(partition.values) == 1 else partition.values


def _partition_id(db: Database, name: s.Name, partition: s.Partition) -> str:
    return partition.id or db.open(name).partition_id(_value(partition))


def _optimize(db: Database, name: s.Name, partition: s.Partition | None, final: bool) -> None:
    table = db.open(name)
    if partition is None or not (partition.values or partition.id):
        table.optimize(final=final)
    else:
        table.optimize(partition_id=_partition_id(db, name, partition), final=final)


def _drop_partition(db: Database, name: s.Name, partition: s.Partition) -> None:
    table = db.open(name)
    if not (partition.values or partition.id):
        table.truncate()
    else:
        table.drop_partition(partition_id=_partition_id(db, name, partition))


def _set(db: Database, settings: Mapping[str, str]) -> None:
    """Remember settings, after ClickHouse has seen that it knows them."""
    check_fixed(settings)
    foreign = {name: value for name, value in settings.items() if name not in OWN_SETTINGS}
    if foreign and engine.available():
        if not db.allow_external_access:
            check_settings(foreign)
        engine.run("SELECT 1", settings={**db.engine_settings(), **foreign})
    if "executor" in settings and settings["executor"].strip("'") not in ("auto", "local", "spark"):
        raise error("BAD_ARGUMENTS", f"There is no executor {settings['executor']}", "It is 'auto', 'local' or 'spark'")
    if "read_consistency" in settings:
        asks_for_news(settings["read_consistency"].strip("'"))
    db.settings.update(settings)
