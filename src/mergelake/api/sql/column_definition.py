"""The definition of a column, as CREATE TABLE and ALTER TABLE have it.

    name [type] [NULL | NOT NULL] [DEFAULT | MATERIALIZED | ALIAS | EPHEMERAL x] [COMMENT '…'] [CODEC(…)] [TTL x]

Source: ClickHouse, `src/Parsers/ParserCreateQuery.h`, `IParserColumnDeclaration`.
"""

from __future__ import annotations

from mergelake.api.sql.cursor import Cursor, clean
from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.lexer import syntax_error
from mergelake.core.convert.timezones import zone
from mergelake.core.types.types import DataType, DateTime, DateTime64, is_nullable, nested_columns, parse_type, parts
from mergelake.table.definition.columns import ColumnDefinition

_AFTER_DEFAULT = frozenset(["COMMENT", "CODEC", "STATISTICS", "TTL", "PRIMARY", "SETTINGS"])
_COLUMN_WORDS = _AFTER_DEFAULT | {
    "NULL", "NOT", "DEFAULT", "MATERIALIZED", "ALIAS", "EPHEMERAL", "COLLATE", "AUTO_INCREMENT",
}  # fmt: skip


def column_name(cursor: Cursor) -> str:
    """The name of a column, `n.a` for one of a Nested."""
    name = cursor.identifier("the name of a column")
    while cursor.accept("."):
        name += "." + cursor.identifier("the rest of a nested column's name")
    return name


def column_definition(
    cursor: Cursor, also: frozenset[str] = frozenset(), name: str = ""
) -> tuple[ColumnDefinition, bool]:
    """A definition, and whether it says PRIMARY KEY.

    Words in `also` may follow it; `name`: what follows the name of the column. Raises SYNTAX_ERROR, NOT_IMPLEMENTED,
    and the errors of types.
    """
    name = name or column_name(cursor)
    start = cursor.peek().start
    data_type: DataType | None = None
    nested: dict[str, DataType] | None = None
    stops, after_default = _COLUMN_WORDS | also, _AFTER_DEFAULT | also
    if cursor.peek().kind == "word" and cursor.peek().upper not in stops:
        data_type = _type(cursor, stops)
        nested = nested_columns(clean(cursor.text[start : cursor.peek().start]))
    kind = default = codec = ttl = ""
    comment: str | None = None
    is_primary = nullable = modified = False
    while True:
        if not modified and (cursor.at("NOT", "NULL") or cursor.at("NULL")):
            nullable, modified = not cursor.accept("NOT"), True
            cursor.expect("NULL")
        elif cursor.peek().upper in ("DEFAULT", "MATERIALIZED", "ALIAS"):
            kind = cursor.next().upper
            default = cursor.default_expression(after_default)
        elif cursor.accept("EPHEMERAL"):
            kind = "EPHEMERAL"
            if cursor.peek().text not in (",", ")", "") and cursor.peek().upper not in after_default:
                default = cursor.expression(after_default)
            elif data_type is None:
                raise cursor.error("an expression")
        elif cursor.accept("COMMENT"):
            comment = cursor.string()
        elif cursor.accept("CODEC"):
            if cursor.at("(", ")"):
                raise cursor.error("the name of a codec")
            codec = ", ".join(cursor.bracketed())
        elif cursor.accept("TTL"):
            ttl = cursor.expression(after_default)
        elif cursor.accept("PRIMARY", "KEY"):
            is_primary = True
        elif _begins_unsupported(cursor):
            raise error(
                "NOT_IMPLEMENTED", f"{cursor.peek().upper} of column {name} is not supported yet", "Leave it out"
            )
        elif cursor.at(",") or cursor.at(")") or cursor.peek().kind == "end" or cursor.peek().upper in stops:
            break
        else:
            raise cursor.error("','", "')'", "DEFAULT", "MATERIALIZED", "ALIAS", "CODEC", "COMMENT", "TTL")
    if data_type is not None and modified and is_nullable(data_type):
        raise error(
            "ILLEGAL_SYNTAX_FOR_DATA_TYPE",
            f"Can't use [NOT] NULL modifier with Nullable type: column {name}",
            "Leave NULL or NOT NULL out",
        )
    if nested is not None:
        return ColumnDefinition(name, nested=tuple(nested.items()), codec=codec, comment=comment), False
    return ColumnDefinition(name, data_type, (), kind, default, codec, comment, ttl, nullable), is_primary


def _begins_unsupported(cursor: Cursor) -> bool:
    words = ("STATISTICS", "COLLATE", "AUTO_INCREMENT")
    return cursor.at("SETTINGS", "(") or any(cursor.at(word) for word in words)


def _type(cursor: Cursor, stops: frozenset[str]) -> DataType:
    """A type: a word, and the arguments in brackets after it."""
    first = cursor.next()
    end = first.end
    while cursor.peek().kind == "word" and cursor.peek().upper not in stops:
        end = cursor.next().end  # DOUBLE PRECISION and the like: the type parser accepts or refuses it
    if cursor.at("("):
        depth = 0
        while True:
            token = cursor.next()
            if token.kind == "end":
                raise cursor.error("')'")
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0:
                end = token.end
                break
    try:
        data_type = parse_type(clean(cursor.text[first.start : end]))
    except MergelakeError as failure:
        if failure.name == "SYNTAX_ERROR":
            raise syntax_error(cursor.text, first.start, failure.message) from None
        raise
    for each in parts(data_type):
        if isinstance(each, DateTime | DateTime64):
            zone(each.timezone)  # BAD_ARGUMENTS for an unknown time zone
    return data_type
