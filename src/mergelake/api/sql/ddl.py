"""CREATE TABLE: columns, engine and clauses into a `TableSchema`.

    CREATE TABLE [IF NOT EXISTS] t (column …, INDEX …, CONSTRAINT …, PRIMARY KEY …) ENGINE = E(args)
        PARTITION BY … ORDER BY … PRIMARY KEY … SAMPLE BY … TTL … SETTINGS … COMMENT '…' [AS SELECT …]
    CREATE TABLE [IF NOT EXISTS] t CLONE AS other [AS OF …]

Source: ClickHouse, `src/Parsers/ParserCreateQuery.cpp`, `ParserStorage.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mergelake.api.sql.column_definition import column_definition
from mergelake.api.sql.cursor import Cursor, clean
from mergelake.api.sql.statements import CloneTable, CreateTable, Name
from mergelake.core.base.errors import error
from mergelake.core.base.lexer import number_value, syntax_error
from mergelake.core.base.text import unescape
from mergelake.core.model.schema import Column, Constraint, Projection, SkipIndex, TableSchema
from mergelake.core.model.settings import TableSettings, is_table_setting
from mergelake.core.types.types import DataType
from mergelake.expr.compiled import compile_expression
from mergelake.query.statement.settings import kind_of

_TABLE_WORDS = frozenset(
    ["ENGINE", "PARTITION", "ORDER", "PRIMARY", "SAMPLE", "TTL", "SETTINGS", "COMMENT", "AS", "EMPTY"]
)


@dataclass(frozen=True, slots=True)
class _Body:
    columns: tuple[Column, ...]
    indices: tuple[SkipIndex, ...]
    projections: tuple[Projection, ...]
    constraints: tuple[Constraint, ...]
    primary_key: tuple[str, ...] | None


def refuse_cluster(cursor: Cursor) -> None:
    """NOT_IMPLEMENTED for ON CLUSTER."""
    if cursor.at("ON", "CLUSTER"):
        raise error(
            "NOT_IMPLEMENTED", "ON CLUSTER has no meaning here", "Leave it out: every process sees the table at once"
        )


def not_replaced(cursor: Cursor, replace: bool) -> bool:
    """Accept IF NOT EXISTS, and return whether it was there; SYNTAX_ERROR if the statement replaces."""
    if replace and cursor.at("IF", "NOT", "EXISTS"):
        raise cursor.error("a name: OR REPLACE goes without IF NOT EXISTS")
    return cursor.if_not_exists()


def skip_uuid(cursor: Cursor) -> None:
    """Accept UUID '…' after a name, which is ignored: every table gets a new id."""
    if cursor.at("UUID") and cursor.peek(1).kind == "string":
        cursor.next()
        cursor.next()


def create_table(cursor: Cursor, *, replace: bool = False, must_exist: bool = False) -> CreateTable | CloneTable:
    """Parse what follows CREATE [OR REPLACE] TABLE, or REPLACE TABLE: `must_exist`."""
    if_not_exists = not_replaced(cursor, replace)
    name = cursor.table_name()
    skip_uuid(cursor)
    refuse_cluster(cursor)
    body: _Body | None = None
    like: Name | None = None
    query = ""
    if cursor.accept("("):
        body = _body(cursor)
    elif cursor.accept("CLONE", "AS"):
        return _clone(cursor, CloneTable(name, Name("", ""), if_not_exists, replace=replace, must_exist=must_exist))
    elif cursor.at("AS") and cursor.peek(1).is_name and cursor.peek(1).upper not in ("SELECT", "WITH"):
        cursor.next()
        like = cursor.table_name()
    clauses, given, settings = _clauses(cursor, None if body is None else body.primary_key)
    empty = cursor.accept("EMPTY")
    if empty and not cursor.at("AS"):
        raise cursor.error("AS")
    if like is None and cursor.accept("AS"):
        if not (cursor.at("SELECT") or cursor.at("WITH") or cursor.at("(")):
            raise cursor.error("SELECT", "WITH")
        query = cursor.rest_before_tail()
    if body is None and like is None and not query and (clauses is None or clauses.engine != "Merge"):
        raise error("INCORRECT_QUERY", "CREATE TABLE has neither columns nor AS", "Write them in brackets")
    schema = None
    if body is not None:
        schema = _build(
            clauses or TableSchema(()),
            columns=body.columns,
            indices=body.indices,
            projections=body.projections,
            constraints=body.constraints,
        )
    return CreateTable(
        name, schema, if_not_exists, like, query, clauses, given, settings,
        replace=replace, must_exist=must_exist, empty=empty,
    )  # fmt: skip


def _clone(cursor: Cursor, clone: CloneTable) -> CloneTable:
    """CLONE AS other [AS OF VERSION 42 | TAG 'name' | TIMESTAMP 'text']: a clone has the other's engine and keys."""
    source = cursor.table_name()
    version: int | str | None = None
    timestamp = None
    if cursor.accept("AS", "OF"):
        if cursor.accept("TAG"):
            version = cursor.string()
        elif cursor.accept("TIMESTAMP"):
            timestamp = cursor.string()
        else:
            cursor.expect("VERSION")
            if not cursor.peek().text.isdecimal():
                raise cursor.error("a version")
            version = int(cursor.next().text)
    return replace(clone, source=source, version=version, timestamp=timestamp)


def _build(clauses: TableSchema, **changes: object) -> TableSchema:
    # next_column_id is computed from the columns, so it must not be copied from the clauses without columns.
    return replace(clauses, next_column_id=0, **changes)  # type: ignore[arg-type]


def with_columns(clauses: TableSchema, columns: tuple[Column, ...]) -> TableSchema:
    """The table that `clauses` describe, with these columns."""
    return _build(clauses, columns=columns)


def columns_alone(cursor: Cursor) -> tuple[Column, ...]:
    """The columns up to the closing bracket. NOT_IMPLEMENTED for a key, an index or a constraint among them."""
    body = _body(cursor)
    if body.indices or body.constraints or body.primary_key is not None:
        what = "Keys, indexes and constraints of a view are not supported"
        raise error("NOT_IMPLEMENTED", what, "Its tables have them")
    return body.columns


def _body(cursor: Cursor) -> _Body:
    columns: list[Column] = []
    types: dict[str, DataType] = {}
    indices: list[SkipIndex] = []
    projections: list[Projection] = []
    constraints: list[Constraint] = []
    primary: tuple[str, ...] | None = None
    while True:
        if cursor.at("INDEX") and cursor.peek(1).is_name and cursor.peek(2).upper != "CODEC":
            cursor.next()
            indices.append(index(cursor))
        elif cursor.at("CONSTRAINT") and cursor.peek(2).upper in ("CHECK", "ASSUME"):
            cursor.next()
            constraints.append(constraint(cursor))
        elif cursor.at("PRIMARY", "KEY"):
            cursor.expect("PRIMARY", "KEY")
            primary = key_list(cursor, frozenset())[0]
        elif cursor.at("PROJECTION") and cursor.peek(2).upper in ("(", "INDEX"):
            cursor.next()
            projections.append(projection(cursor))
        else:
            defined, is_primary = _column(cursor, len(columns), types)
            columns += defined
            types |= {column.name: column.type for column in defined}
            if is_primary:
                primary = (*(primary or ()), defined[0].name)
        if not cursor.accept(","):
            break
        if cursor.at(")"):
            break
    cursor.expect(")")
    return _Body(tuple(columns), tuple(indices), tuple(projections), tuple(constraints), primary)


def _column(cursor: Cursor, number: int, before: dict[str, DataType]) -> tuple[list[Column], bool]:
    """One definition as a column, or as several where its type is Nested; and whether it says PRIMARY KEY."""
    definition, is_primary = column_definition(cursor)
    if definition.type is None and not definition.nested:
        if not definition.default:
            raise syntax_error(cursor.text, cursor.peek().start, f"expected the type of column {definition.name}")
        inferred = compile_expression(definition.default, before, 0, lambda: 0).type
        definition = replace(definition, type=inferred)
    return list(definition.columns(number)), is_primary


def constraint(cursor: Cursor) -> Constraint:
    """Parse what follows CONSTRAINT."""
    name = cursor.identifier("the name of a constraint")
    if not (cursor.at("CHECK") or cursor.at("ASSUME")):
        raise cursor.error("CHECK", "ASSUME")
    kind = cursor.next().upper
    return Constraint(name, kind, cursor.expression(()))


def index(cursor: Cursor) -> SkipIndex:
    """Parse what follows INDEX."""
    name = cursor.identifier("the name of an index")
    expression = cursor.expression(("TYPE",))
    cursor.expect("TYPE")
    kind = cursor.identifier("the type of the index")
    if cursor.at("("):
        kind += f"({', '.join(cursor.bracketed())})"
    granularity = 1
    if cursor.accept("GRANULARITY"):
        if cursor.peek().kind != "number":
            raise cursor.error("a number")
        granularity = int(cursor.next().text)
    return SkipIndex(name, expression, kind, granularity)


def projection(cursor: Cursor) -> Projection:
    """`name (SELECT …)`, after PROJECTION."""
    name = cursor.identifier("the name of a projection")
    if cursor.at("INDEX"):
        raise error("NOT_IMPLEMENTED", f"PROJECTION {name} INDEX … is not supported", "Write its SELECT in brackets")
    if not cursor.at("("):
        raise cursor.error("'('")
    query = clean(cursor.bracket())[1:-1].strip()
    if cursor.at("WITH", "SETTINGS"):
        raise error("NOT_IMPLEMENTED", f"Settings of projection {name} are not supported", "Leave WITH SETTINGS out")
    return Projection(name, query)


def _clauses(
    cursor: Cursor, primary: tuple[str, ...] | None
) -> tuple[TableSchema | None, frozenset[str], dict[str, str | int | float]]:
    """Engine and clauses in any order, as a schema without columns (None if there are none), and its fields that they
    give; other settings.

    `primary` is the primary key that was declared among the columns. Without ORDER BY it is the sorting key too.
    """
    clauses: dict[str, object] = {} if primary is None else {"primary_key": primary}
    others: dict[str, str | int | float] = {}
    seen: set[str] = set()
    while True:
        word = cursor.peek().upper
        if word == "SETTINGS" and word in seen:
            break  # these are settings of the statement
        if word in seen and word in _TABLE_WORDS:
            raise cursor.error(f"{word} only once")
        seen.add(word)
        if cursor.accept("ENGINE"):
            cursor.accept("=")
            clauses["engine"] = cursor.identifier("the name of an engine")
            clauses["engine_args"] = tuple(cursor.bracketed()) if cursor.at("(") else ()
        elif cursor.accept("PARTITION", "BY"):
            clauses["partition_by"] = key_list(cursor, _TABLE_WORDS)[0]
        elif cursor.accept("ORDER", "BY"):
            texts, descending = key_list(cursor, _TABLE_WORDS, directions=True)
            clauses["order_by"] = texts
            clauses["order_desc"] = descending if any(descending) else ()
        elif cursor.accept("PRIMARY", "KEY"):
            if primary is not None:
                raise error("BAD_ARGUMENTS", "Multiple primary keys are not allowed", "Give it once")
            clauses["primary_key"] = key_list(cursor, _TABLE_WORDS)[0]
        elif cursor.accept("SAMPLE", "BY"):
            clauses["sample_by"] = cursor.expression(_TABLE_WORDS)
        elif cursor.accept("TTL"):
            clauses["ttl"] = (cursor.clause(_TABLE_WORDS),)
        elif cursor.accept("SETTINGS"):
            clause_settings = settings_list(cursor)
            # Settings of the statement may stand among those of the table: see `CreateTable.settings`.
            clause_settings = {name: value for name, value in clause_settings.items() if value != "DEFAULT"}
            others.update({n: value for n, value in clause_settings.items() if not is_table_setting(n) and kind_of(n)})
            own = {name: value for name, value in clause_settings.items() if name not in others}
            clauses["settings"] = TableSettings(own).as_text()
        elif cursor.accept("COMMENT"):
            clauses["comment"] = cursor.string()
        else:
            break
    given = frozenset(clauses)
    if "primary_key" in clauses:
        clauses.setdefault("order_by", clauses["primary_key"])
    return (TableSchema((), **clauses) if clauses else None), given, others  # type: ignore[arg-type]


_OF_ENGINE = ("engine_args", "ttl", "settings")
"""Fields of a schema that do not go with another engine, unless they are given."""


def like_other(other: TableSchema, clauses: TableSchema, given: frozenset[str]) -> TableSchema:
    """The schema of `CREATE TABLE t AS other …`: that of the other, with those fields of `clauses` that are `given`.

    With an engine of its own it has no TTL and no settings of the other. As in ClickHouse.
    """
    fields = {"order_desc", *given} if "order_by" in given else set(given)
    changes = {field: getattr(clauses, field) for field in fields}
    if "engine" in given:
        changes |= {field: getattr(clauses, field) for field in _OF_ENGINE}
    elif "settings" in given:
        changes["settings"] = {**other.settings, **clauses.settings}
    if "order_by" in given and "primary_key" not in given and other.primary_key == other.order_by:
        changes["primary_key"] = ()
    return replace(other, **changes)


def key_list(
    cursor: Cursor, stops: frozenset[str], *, directions: bool = False
) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """A key: one expression, `(a, b)`, `tuple(a, b)`, `tuple()` or `()`; with DESC where `directions` allows it."""
    start = cursor.peek()
    whole = cursor.expression(stops)
    while True:
        inner = Cursor(whole)
        named = inner.accept("TUPLE")
        parts = inner.bracketed() if inner.at("(") else None
        if parts is None or inner.peek().kind != "end":
            return _directed([whole], directions, cursor, start.start)
        if named or len(parts) != 1 or parts[0].upper().endswith((" ASC", " DESC")):
            return _directed(parts, directions, cursor, start.start)
        whole = parts[0]  # redundant brackets around the key


def _directed(parts: list[str], directions: bool, cursor: Cursor, at: int) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    texts, descending = [], []
    for part in parts:
        last = part.rsplit(None, 1)
        word = last[1].upper() if len(last) == 2 else ""
        if word in ("ASC", "DESC"):
            if not directions:
                raise syntax_error(cursor.text, at, f"{word} belongs to ORDER BY only")
            part = last[0]
        texts.append(part)
        descending.append(word == "DESC")
    return tuple(texts), tuple(descending)


def settings_list(cursor: Cursor) -> dict[str, str | int | float]:
    """`name = value, …` with text as text and numbers as numbers."""
    return {name: _value_of(text) for name, text in setting_literals(cursor).items()}


def _value_of(literal: str) -> str | int | float:
    if literal[0] == "'":
        return unescape(literal)
    if literal.lstrip("+-")[:1].isdigit() or literal.lstrip("+-")[:1] == ".":
        return number_value(literal)
    return literal


def setting_literals(cursor: Cursor) -> dict[str, str]:
    """`name = value, …` with the values as SQL literals; a name alone is 1."""
    out: dict[str, str] = {}
    while True:
        name = cursor.identifier("the name of a setting")
        out[name] = _literal(cursor) if cursor.accept("=") else "1"
        following = cursor.peek(1)
        if not (cursor.at(",") and following.is_name):
            return out
        cursor.next()


def _literal(cursor: Cursor) -> str:
    sign = "-" if cursor.accept("-") else "" if not cursor.accept("+") else "+"
    first = cursor.peek()
    if first.text in ("[", "{", "(") and first.kind == "sign" and not sign:
        return cursor.bracket()
    if first.kind not in ("number", "string", "word"):
        raise cursor.error("a value")
    cursor.next()
    return sign + {"TRUE": "1", "FALSE": "0"}.get(first.upper, first.text)
