"""CREATE VIEW: what stands between the name and the SELECT.

    CREATE [OR REPLACE] VIEW [IF NOT EXISTS] v [(column type, …) | (alias, …)] [COMMENT '…'] AS SELECT … [COMMENT '…']

Source: ClickHouse, `src/Parsers/ParserCreateQuery.cpp` (`ParserCreateViewQuery`).
"""

from __future__ import annotations

from mergelake.api.sql import ddl
from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.statements import CreateView
from mergelake.core.base.errors import error
from mergelake.core.model.schema import Column


def create_view(cursor: Cursor, *, replace: bool = False) -> CreateView:
    """Parse what follows CREATE VIEW."""
    if_not_exists = ddl.not_replaced(cursor, replace)
    name = cursor.table_name()
    ddl.skip_uuid(cursor)
    ddl.refuse_cluster(cursor)
    columns: tuple[Column, ...] = ()
    aliases: tuple[str, ...] = ()
    if cursor.at("("):
        if cursor.peek(1).is_name and cursor.peek(2).text in (",", ")"):
            aliases = _aliases(cursor)
        else:
            cursor.next()
            columns = ddl.columns_alone(cursor)
            for column in columns:
                if column.default_kind or column.codec or column.ttl:
                    what = f"Column {column.name} of a view has more than a type and a comment, which is not supported"
                    raise error("NOT_IMPLEMENTED", what, "The SELECT computes it")
    if cursor.at("DEFINER") or cursor.at("SQL", "SECURITY"):
        raise error("NOT_IMPLEMENTED", "SQL SECURITY is not supported", "The bucket's own permissions decide who reads")
    comment = cursor.string() if cursor.accept("COMMENT") else ""
    cursor.expect("AS")
    if not (cursor.at("SELECT") or cursor.at("WITH") or cursor.at("(") or cursor.at("FROM")):
        raise cursor.error("SELECT", "WITH")
    query = cursor.rest_before_tail(comment=not comment)
    if cursor.accept("COMMENT"):
        comment = cursor.string()
    if cursor.at("INTO"):
        raise error("NOT_IMPLEMENTED", "INTO OUTFILE in a view is not supported", "Write it after a SELECT of the view")
    return CreateView(name, query, columns, aliases, comment, if_not_exists, replace)


def _aliases(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect("(")
    names = [cursor.identifier("the name of a column")]
    while cursor.accept(","):
        names.append(cursor.identifier("the name of a column"))
    cursor.expect(")")
    return tuple(names)
