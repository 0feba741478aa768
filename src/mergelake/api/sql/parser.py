"""ClickHouse's statements: recursive descent over tokens, to the values of `statements`.

`parse_script` cuts a text at its `;` and parses each statement. Statements of ClickHouse
that are not supported (yet) are refused by name with NOT_IMPLEMENTED; others are a SYNTAX_ERROR that shows the place.

SELECTs are not parsed here: ClickHouse reads them itself (`query`).

Source: ClickHouse, `src/Parsers/ParserQuery.cpp` and the parsers that it names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator

from mergelake.api.sql import ddl, statements as s
from mergelake.api.sql.alter import alter
from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.insert_head import insert
from mergelake.api.sql.mutation_statements import delete_from, kill, partition_clause, update
from mergelake.api.sql.script import split_statements
from mergelake.api.sql.tail import ended
from mergelake.api.sql.unsupported import HINTS, judged_syntax, refused
from mergelake.api.sql.view_statements import create_view
from mergelake.core.base.errors import MergelakeError, error

_REFUSED = (
    "SYSTEM", "GRANT", "REVOKE", "ATTACH", "DETACH", "BACKUP", "RESTORE", "WATCH", "BEGIN", "COMMIT", "ROLLBACK",
)  # fmt: skip
"""First words of statements that are not supported, whatever follows."""
_REFUSED_VIEWS = ("MATERIALIZED", "LIVE", "WINDOW")
"""Words before VIEW that are not supported."""
_EXPLAIN_KINDS = ("AST", "SYNTAX", "QUERY", "PLAN", "PIPELINE", "ESTIMATE", "TABLE", "CURRENT")


def parse_script(text: str) -> Iterator[s.Statement]:
    """Yield each statement of `text`; an error in one of them is raised when it is reached."""
    for start, end in split_statements(text):
        yield parse_statement(text, start, end)


def parse_one(text: str) -> s.Statement:
    """The only statement of `text`; SYNTAX_ERROR if there are none or several."""
    places = split_statements(text)
    if len(places) != 1:
        raise error("SYNTAX_ERROR", f"Expected one statement, found {len(places)}")
    return parse_statement(text, *places[0])


def parse_statement(text: str, start: int = 0, end: int | None = None) -> s.Statement:
    """The statement between two offsets of `text`. NOT_IMPLEMENTED if only ClickHouse supports it."""
    cursor = Cursor(text, start, end)
    try:
        return _parsed(cursor)
    except MergelakeError as failure:
        raise judged_syntax(text[start : cursor.end], failure) from None


def _parsed(cursor: Cursor) -> s.Statement:
    word = cursor.peek().upper
    if word in ("SELECT", "WITH", "FROM", "("):
        return ended(cursor, s.Select(cursor.rest()))
    other_view = cursor.peek(1).upper in _REFUSED_VIEWS and cursor.peek(2).upper == "VIEW"
    if word in _REFUSED or (word == "CREATE" and other_view):
        raise refused(cursor.text, cursor.peek().start)
    parse = _STATEMENTS.get(word)
    if parse is None:
        near = difflib.get_close_matches(word, [*_STATEMENTS, "SELECT"], n=1)
        raise cursor.error(f"{near[0]}?" if near else "a statement (SELECT, CREATE, INSERT, SHOW, …)")
    cursor.next()
    return ended(cursor, parse(cursor))


def _create(cursor: Cursor) -> s.Statement:
    if cursor.accept("DATABASE"):
        if_not_exists = cursor.if_not_exists()
        name = cursor.identifier("the name of a database")
        if cursor.accept("ENGINE"):
            cursor.accept("=")
            engine = cursor.identifier("the name of an engine")
            if engine not in ("Atomic", "Ordinary"):
                raise error("NOT_IMPLEMENTED", f"Database engine {engine} is not supported", "Leave ENGINE out")
        if cursor.at("COMMENT"):
            raise error("NOT_IMPLEMENTED", "Comments of databases are not supported", "Tables and views may have some")
        return s.CreateDatabase(name, if_not_exists)
    replace = cursor.accept("OR", "REPLACE")
    if cursor.accept("TABLE"):
        return ddl.create_table(cursor, replace=replace)
    if cursor.accept("VIEW"):
        return create_view(cursor, replace=replace)
    raise cursor.error("TABLE", "VIEW", "DATABASE")


def _replace(cursor: Cursor) -> s.Statement:
    cursor.expect("TABLE")
    return ddl.create_table(cursor, replace=True, must_exist=True)


def _drop(cursor: Cursor) -> s.Statement:
    if cursor.accept("DATABASE"):
        if_exists = cursor.if_exists()
        name = cursor.identifier("the name of a database")
        _skip_sync(cursor)
        return s.DropDatabase(name, if_exists)
    view = cursor.accept("VIEW")
    if not view and not cursor.accept("TABLE"):
        raise cursor.error("TABLE", "VIEW", "DATABASE")
    if_exists = cursor.if_exists()
    names = [cursor.table_name()]
    while cursor.accept(","):
        names.append(cursor.table_name())
    _skip_sync(cursor)
    return s.DropTable(tuple(names), if_exists, view)


def _skip_sync(cursor: Cursor) -> None:
    """Accept SYNC or NO DELAY, which say nothing new: what a statement drops is gone when it returns."""
    if not cursor.accept("SYNC"):
        cursor.accept("NO", "DELAY")


def _undrop(cursor: Cursor) -> s.Statement:
    if cursor.accept("DATABASE"):
        return s.UndropDatabase(cursor.identifier("the name of a database"))
    cursor.expect("TABLE")
    name, table_id = cursor.table_name(), ""
    if cursor.accept("UUID"):
        text = cursor.string("a UUID in single quotes")
        table_id = text.replace("-", "").lower()
        if not re.fullmatch("[0-9a-f]{32}", table_id):
            raise error("CANNOT_PARSE_UUID", f"'{text}' is not a UUID", "It is the name of the table's directory")
    ddl.refuse_cluster(cursor)
    return s.UndropTable(name, table_id)


def _truncate(cursor: Cursor) -> s.Statement:
    if cursor.accept("DATABASE"):
        if_exists = cursor.if_exists()
        database = cursor.identifier("the name of a database")
        _skip_sync(cursor)
        return s.DropDatabase(database, if_exists, keeps_name=True)
    if cursor.accept("ALL", "TABLES", "FROM") or cursor.accept("TABLES", "FROM"):
        if_exists = cursor.if_exists()
        all_of = s.TruncateTables(cursor.identifier("the name of a database"), cursor.like(), if_exists)
        _skip_sync(cursor)
        return all_of
    cursor.accept("TABLE")
    if_exists = cursor.if_exists()
    name = cursor.table_name()
    _skip_sync(cursor)
    return s.TruncateTable(name, if_exists)


def _rename(cursor: Cursor) -> s.Statement:
    if cursor.accept("DATABASE"):
        name = cursor.identifier("the name of a database")
        cursor.expect("TO")
        return s.RenameDatabase(name, cursor.identifier("the new name"))
    cursor.expect("TABLE")
    pairs: list[tuple[s.Name, s.Name]] = []
    while True:
        table = cursor.table_name()
        cursor.expect("TO")
        pairs.append((table, cursor.table_name()))
        if not cursor.accept(","):
            return s.RenameTable(tuple(pairs))


def _exchange(cursor: Cursor) -> s.Statement:
    cursor.expect("TABLES")
    name = cursor.table_name()
    cursor.expect("AND")
    return s.ExchangeTables(name, cursor.table_name())


def _use(cursor: Cursor) -> s.Statement:
    return s.Use(cursor.identifier("the name of a database"))


def _show(cursor: Cursor) -> s.Statement:
    if cursor.accept("DATABASES"):
        return s.ShowDatabases(cursor.like())
    if cursor.accept("TABLES"):
        database = cursor.identifier("the name of a database") if cursor.accept("FROM") or cursor.accept("IN") else ""
        return s.ShowTables(database, cursor.like())
    if cursor.accept("CREATE"):
        if cursor.at("VIEW") and cursor.peek(1).is_name:
            cursor.next()
            return s.ShowCreateTable(cursor.table_name(), view=True)
        cursor.accept("TABLE")
        return s.ShowCreateTable(cursor.table_name())
    full = cursor.accept("FULL")
    if cursor.accept("COLUMNS") or cursor.accept("FIELDS"):
        if not cursor.accept("FROM"):
            cursor.expect("IN")
        name = cursor.table_name()
        if not name.database and (cursor.accept("FROM") or cursor.accept("IN")):
            name = s.Name(cursor.identifier("the name of a database"), name.table)
        return s.ShowColumns(name, cursor.like(), full)
    raise cursor.error("TABLES", "DATABASES", "CREATE TABLE", "COLUMNS")


def _describe(cursor: Cursor) -> s.Statement:
    cursor.accept("TABLE")
    if cursor.at("("):
        return s.Describe(s.Name("", ""), cursor.bracket())
    if cursor.at("SELECT") and cursor.peek(1).kind != "end":
        return s.Describe(s.Name("", ""), cursor.rest_before_tail())
    if cursor.peek().is_name and cursor.peek(1).text == "(":
        return s.Describe(s.Name("", ""), f"SELECT * FROM {cursor.next().text}{cursor.bracket()}")
    return s.Describe(cursor.table_name())


def _exists(cursor: Cursor) -> s.Statement:
    if cursor.accept("DATABASE"):
        return s.Exists(s.Name("", cursor.identifier("the name of a database")), database=True)
    if cursor.at("VIEW") and cursor.peek(1).is_name:
        cursor.next()
        return s.Exists(cursor.table_name(), view=True)
    cursor.accept("TABLE")
    return s.Exists(cursor.table_name())


def _optimize(cursor: Cursor) -> s.Statement:
    cursor.expect("TABLE")
    name = cursor.table_name()
    partition = partition_clause(cursor) if cursor.at("PARTITION") else None
    final, deduplicate, by = cursor.accept("FINAL"), cursor.accept("DEDUPLICATE"), []
    if deduplicate and cursor.accept("BY"):
        by.append(_deduplicated(cursor))
        while cursor.accept(","):
            by.append(_deduplicated(cursor))
    cleanup = not by and cursor.accept("CLEANUP")
    return s.Optimize(name, partition, final, cleanup, deduplicate, tuple(by))


def _deduplicated(cursor: Cursor) -> str | s.ColumnMatcher:
    """A column, `*` or `COLUMNS('…')`, these two with EXCEPT."""
    if cursor.accept("*"):
        pattern = ""
    elif cursor.at("COLUMNS") and cursor.peek(1).text == "(":
        cursor.expect("COLUMNS", "(")
        pattern = cursor.string("a pattern in single quotes")
        cursor.expect(")")
    else:
        return cursor.identifier("the name of a column")
    if not cursor.accept("EXCEPT"):
        return s.ColumnMatcher(pattern)
    if not cursor.accept("("):
        return s.ColumnMatcher(pattern, (cursor.identifier("the name of a column"),))
    excluded = [cursor.identifier("the name of a column")]
    while cursor.accept(","):
        excluded.append(cursor.identifier("the name of a column"))
    cursor.expect(")")
    return s.ColumnMatcher(pattern, tuple(excluded))


def _check(cursor: Cursor) -> s.Statement:
    if cursor.at("ALL") or cursor.at("DATABASE"):
        raise error("NOT_IMPLEMENTED", f"CHECK {cursor.peek().upper} is not supported yet", "Check each table")
    cursor.expect("TABLE")
    name = cursor.table_name()
    for word in ("PARTITION", "PART"):
        if cursor.at(word):
            raise error("NOT_IMPLEMENTED", f"CHECK TABLE … {word} is not supported yet", "Check the whole table")
    return s.CheckTable(name)


def _explain(cursor: Cursor) -> s.Statement:
    start = cursor.peek().start
    while cursor.peek().kind != "end":
        if cursor.peek().upper in ("SELECT", "WITH", "(") or cursor.at("FROM"):
            kind = cursor.text[start : cursor.peek().start].strip()
            if kind and kind.split()[0].upper() not in _EXPLAIN_KINDS and "=" not in kind:
                break
            return s.Explain(kind, cursor.rest_before_tail())
        cursor.next()
    raise cursor.error("SELECT")


def _set(cursor: Cursor) -> s.Statement:
    if cursor.at("ROLE") or cursor.at("DEFAULT", "ROLE") or cursor.at("TRANSACTION"):
        raise error("NOT_IMPLEMENTED", f"SET {cursor.peek().upper} is not supported", HINTS["SET"])
    return s.Set(ddl.setting_literals(cursor))


_STATEMENTS: dict[str, Callable[[Cursor], s.Statement]] = {
    "CREATE": _create,
    "REPLACE": _replace,
    "DROP": _drop,
    "UNDROP": _undrop,
    "TRUNCATE": _truncate,
    "RENAME": _rename,
    "EXCHANGE": _exchange,
    "USE": _use,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXISTS": _exists,
    "INSERT": insert,
    "OPTIMIZE": _optimize,
    "CHECK": _check,
    "ALTER": alter,
    "UPDATE": update,
    "DELETE": delete_from,
    "KILL": kill,
    "EXPLAIN": _explain,
    "SET": _set,
}
