"""Views and unions of tables as a session makes and shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mergelake.api.sql.settings import check_known
from mergelake.api.sql.show import column_text, create_table_text, engine_text
from mergelake.api.sql.statements import Name
from mergelake.api.sql.tail import own_settings
from mergelake.core.base.errors import MergelakeError, UnsupportedError, error
from mergelake.core.base.text import quote_identifier_if_needed, quote_string
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.log.storage.catalog import VirtualTable
from mergelake.query.expand.define import laid_out, view_query
from mergelake.query.expand.parameters import parameters
from mergelake.query.expand.statement import described_by_name
from mergelake.query.expand.unions import Pattern, matching, members_of, pattern_of, union_columns
from mergelake.query.source import Names
from mergelake.query.statement.select_parser import parse_select
from mergelake.query.statement.settings_semantics import setting_items, settings_clauses

if TYPE_CHECKING:
    from mergelake.api.python.table import Table
    from mergelake.api.sql.session import Session


def opened(db: Session, name: Name) -> Table | VirtualTable:
    """The table, view or union of a parsed name, at the newest version. Raises UNKNOWN_TABLE or UNKNOWN_DATABASE."""
    try:
        return db.open(name)
    except UnsupportedError:
        virtual = db.warehouse.catalog.state.virtual_table(name.database or db.current_database, name.table)
        if virtual is None:
            raise
        return virtual


def create_view(
    db: Session,
    name: Name,
    query: str,
    *,
    columns: Sequence[Column] = (),
    aliases: Sequence[str] = (),
    comment: str = "",
    if_not_exists: bool = False,
    replace: bool = False,
) -> None:
    """Make a view; the errors of its query, which is described but not run, are raised before."""
    full = name.database or db.current_database, name.table
    state = db.warehouse.catalog.refresh()
    if if_not_exists and name.table in state.names(full[0]):
        return
    if own_settings(query)[1]:
        raise error(
            "NOT_IMPLEMENTED", "mergelake's own settings in a view are not supported", "Write them in the SELECT"
        )
    parsed = parse_select(query)
    check_known({name for place in settings_clauses(parsed) for name, _, _ in setting_items(parsed, *place)})
    names = db.resolver(query)
    text, reads = view_query(query, db.current_database, names, aliases)
    schema = TableSchema(tuple(columns), engine="View", comment=comment)
    if not parameters(text):
        described = _described(db, text, names)
        schema = TableSchema(schema.columns or described, engine="View", comment=comment)
    elif columns:
        raise error("NOT_IMPLEMENTED", "The columns of a view with parameters cannot be given", "Leave them out")
    db.warehouse.catalog.create_virtual(full, schema, text, reads, if_not_exists=if_not_exists, replace=replace)


def _described(db: Session, query: str, names: Names) -> tuple[Column, ...]:
    """The columns that a query returns."""
    return named_columns(*described_by_name(query, names, db.context()))


def named_columns(names: Sequence[str], kinds: Sequence[str]) -> tuple[Column, ...]:
    """Columns with these names and types. ILLEGAL_COLUMN for a name that comes twice."""
    columns: dict[str, Column] = {}
    for name, kind in zip(names, kinds, strict=True):
        if name in columns:
            raise error("ILLEGAL_COLUMN", f"Cannot add column {name}: column with this name already exists", "Use AS")
        columns[name] = Column(len(columns), name, parse_type(kind))
    return tuple(columns.values())


def union_schema(pattern: Pattern, columns: Mapping[str, str]) -> TableSchema:
    """The schema of a union of tables with these columns, name to type."""
    typed = (Column(number, name, parse_type(kind)) for number, (name, kind) in enumerate(columns.items()))
    return TableSchema(tuple(typed), engine="Merge", engine_args=pattern.arguments)


def create_union(
    db: Session, name: Name, schema: TableSchema, *, if_not_exists: bool = False, replace: bool = False
) -> None:
    """Make a table of the engine Merge; without columns in its schema, with those of the tables that it has now.

    Raises BAD_ARGUMENTS for clauses of a MergeTree, NUMBER_OF_ARGUMENTS_DOESNT_MATCH, CANNOT_EXTRACT_TABLE_STRUCTURE.
    """
    if schema.partition_by or schema.primary_key or schema.order_by or schema.sample_by or schema.ttl:
        what = "Engine Merge doesn't support PARTITION_BY, PRIMARY_KEY, ORDER_BY, SAMPLE_BY or TTL clauses"
        raise error("BAD_ARGUMENTS", what, "Its tables have them")
    if schema.settings:
        raise error("BAD_ARGUMENTS", "Engine Merge doesn't support SETTINGS clause", "Its tables have them")
    extras = [c.name for c in schema.columns if c.default_kind not in ("", "DEFAULT") or c.codec or c.ttl]
    if schema.indices or schema.projections:
        raise error("BAD_ARGUMENTS", "Engine Merge doesn't support skipping indices or projections", "Its tables do")
    extras += [constraint.name for constraint in schema.constraints]
    if extras:
        what = f"A Merge has columns with types, defaults and comments, and nothing else ({', '.join(extras)})"
        raise error("NOT_IMPLEMENTED", what, "Its tables have the rest")
    if len(schema.engine_args) != 2:
        what = "Storage Merge requires exactly 2 parameters - name of source database and regexp for table names"
        raise error("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", what, "Merge('db', '^events_')")
    pattern = pattern_of(schema.engine_args, db.current_database)
    matching(pattern.tables, ["t"])  # CANNOT_COMPILE_REGEXP
    full = name.database or db.current_database, name.table
    columns = schema.columns or _columns_of(db, pattern, full)
    merged = TableSchema(columns, engine="Merge", engine_args=pattern.arguments, comment=schema.comment)
    db.warehouse.catalog.create_virtual(full, merged, if_not_exists=if_not_exists, replace=replace)


def _columns_of(db: Session, pattern: Pattern, own: tuple[str, str]) -> tuple[Column, ...]:
    names = db.resolver()
    found = pattern.find(names.databases, names.tables)
    union = union_columns(members_of(names, [where for where in found if where != own]))
    if not union.columns:
        what = "There are no tables satisfied provided regexp, you must specify table structure manually"
        raise error("CANNOT_EXTRACT_TABLE_STRUCTURE", what, "CREATE TABLE m (k UInt64, …) ENGINE = Merge(…)")
    shown = (column for column in union.columns.items() if column[0] not in union.hidden)
    return tuple(Column(number, name, kind) for number, (name, kind) in enumerate(shown))


def create_text(name: str, table: VirtualTable) -> str:
    """The CREATE statement of a view or a union, laid out as ClickHouse does; `name` is `database.table`."""
    full = ".".join(quote_identifier_if_needed(part) for part in name.split(".", 1))
    lines = [f"CREATE {'VIEW' if table.is_view else 'TABLE'} {full}"]
    if table.schema.columns:
        lines += ["(", ",\n".join(f"    {column_text(column)}" for column in table.schema.columns), ")"]
    if not table.is_view:
        lines.append(f"ENGINE = {engine_text(table.schema)}")
    if table.schema.comment:
        lines.append(f"COMMENT {quote_string(table.schema.comment)}")
    if table.is_view:
        lines.append(f"AS {table.query}")
    return "\n".join(lines)


def as_select(table: VirtualTable) -> str:
    """The query of a view on one line; empty for a union."""
    return laid_out(table.query, one_line=True) if table.query else ""


def shown(db: Session, name: Name, *, view: bool = False) -> str:
    """The CREATE statement of a table, a view or a union. BAD_ARGUMENTS if it has to be a `view`."""
    full, table = db.full_name(name), opened(db, name)
    if view and not (isinstance(table, VirtualTable) and table.is_view):
        raise error("BAD_ARGUMENTS", f"{full} is not a VIEW", "SHOW CREATE TABLE shows a table")
    return create_text(full, table) if isinstance(table, VirtualTable) else create_table_text(full, table.schema)


def schema_of(db: Session, name: Name) -> TableSchema:
    """The schema of a table, a view or a union. Raises UNSUPPORTED_METHOD for a view with parameters."""
    schema = opened(db, name).schema
    if not schema.columns:
        raise undescribed(db.full_name(name))
    return schema


def undescribed(name: str) -> MergelakeError:
    """The error for the columns of a view with parameters."""
    what = f"Cannot infer table schema for the parameterized view {name} when no query parameters are provided"
    return error("UNSUPPORTED_METHOD", what, "DESCRIBE TABLE v(name = value) describes it with values")
