"""A union of tables, `merge('db', 'pattern')` or a table of the engine Merge, as a subquery.

It has a SELECT for each table whose name the pattern finds at that moment, with the columns that the statement needs:
cast where a table has another type, the type's default where a table has no such column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

from mergelake.core.base.errors import error
from mergelake.core.base.lexer import tokenize
from mergelake.core.base.text import back_quote, quote_string, unescape
from mergelake.core.types.types import DataType, parse_type
from mergelake.query.embedded import engine
from mergelake.query.expand.columns import Columns
from mergelake.query.expand.pushing import conditions
from mergelake.query.expand.views import as_empty
from mergelake.query.source import Names, ReadRequest
from mergelake.query.statement.needs import matched

Where = tuple[str, str]
"""Database and table."""
UINT8 = parse_type("UInt8")
NAME_TYPE = parse_type("LowCardinality(String)")
VIRTUAL: Mapping[str, DataType] = {"_database": NAME_TYPE, "_table": NAME_TYPE}
"""Columns that say which table a row is from."""
_CURRENT = ("CURRENTDATABASE", "CURRENT_DATABASE", "DATABASE", "SCHEMA")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which tables a union has."""

    database: str
    """Its name, or a regular expression that finds it."""
    tables: str
    """A regular expression that finds their names."""
    of_databases: bool = False
    """Whether `database` is a regular expression."""

    @property
    def arguments(self) -> tuple[str, str]:
        """The arguments of the engine."""
        database = quote_string(self.database)
        return f"REGEXP({database})" if self.of_databases else database, quote_string(self.tables)

    def find(self, databases: Callable[[], Iterable[str]], tables: Callable[[str], Iterable[str]]) -> list[Where]:
        """The names that it finds, sorted. Raises CANNOT_COMPILE_REGEXP, and the errors of `tables`."""
        found = matching(self.database, databases()) if self.of_databases else [self.database]
        return [(database, name) for database in found for name in matching(self.tables, tables(database))]


def pattern_of(arguments: Sequence[str], database: str = "") -> Pattern:
    """The pattern of these arguments; one alone is a pattern of tables in `database`.

    Raises NUMBER_OF_ARGUMENTS_DOESNT_MATCH or BAD_ARGUMENTS.
    """
    if not 0 < len(arguments) < 3 or (len(arguments) == 1 and not database):
        what = "A union of tables has 2 arguments: the name of a database, and a regular expression of names of tables"
        raise error("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", what, "Merge('db', '^events_')")
    *first, last = arguments
    tables = tokenize(last)
    if len(tables) != 2 or tables[0].kind != "string":
        what = f"The regular expression of names of tables must be a string, not {last}"
        raise error("BAD_ARGUMENTS", what, "merge('db', '^events_')")
    regexp = unescape(tables[0].text)
    if not first:
        return Pattern(database, regexp)
    words = tokenize(first[0])
    if len(words) == 2 and (words[0].kind == "string" or words[0].is_name):
        return Pattern(unescape(words[0].text) if words[0].kind == "string" else words[0].name, regexp)
    if words[0].upper == "REGEXP" and len(words) == 5 and words[2].kind == "string":
        return Pattern(unescape(words[2].text), regexp, of_databases=True)
    if words[0].upper in _CURRENT and len(words) == 4 and database:
        return Pattern(database, regexp)
    raise error("BAD_ARGUMENTS", f"{first[0]} is no name of a database", "Write it in quotes, or REGEXP('…')")


def matching(regexp: str, names: Iterable[str]) -> list[str]:
    """The names that a regular expression finds something in, in their order."""
    known = tuple(names)
    return list(_matching(regexp, known)) if known else []


@lru_cache(maxsize=256)
def _matching(regexp: str, names: tuple[str, ...]) -> tuple[str, ...]:
    listed = ", ".join(map(quote_string, names))
    text = f"SELECT name FROM (SELECT arrayJoin([{listed}]) AS name) WHERE match(name, {quote_string(regexp)})"
    return tuple(engine.run(text).table()["name"].to_pylist())


@dataclass(frozen=True, slots=True)
class Member:
    """A table of a union."""

    where: Where
    columns: Mapping[str, DataType]
    hidden: frozenset[str] = frozenset()
    """MATERIALIZED and ALIAS ones."""
    takes_final: bool = False
    takes_sample: bool = True
    is_union: bool = False
    """Whether it is a union itself, which knows the tables of its rows."""


def members_of(names: Names, found: Iterable[Where]) -> list[Member]:
    """The tables of these names. Views with parameters are left out."""
    out = []
    for where in found:
        virtual = names.virtual(*where)
        if virtual is not None:
            if virtual.schema.columns:
                union = not virtual.is_view
                out.append(Member(where, virtual.schema.types, frozenset(), union, union, union))
            continue
        source = names(*where)
        if source is None:
            continue
        types = {**source.columns, **{name: kind for name, (kind, _) in source.computed.items()}}
        hidden = frozenset(matched(source))
        shown = {name: kind for name, kind in types.items() if name not in source.hidden or name in hidden}
        out.append(Member(where, shown, hidden, source.takes_final))
    return out


def union_columns(members: Sequence[Member]) -> Columns:
    """The columns of all members, each with a type that holds the values of all."""
    types: dict[str, list[str]] = {}
    for member in members:
        for name, kind in member.columns.items():
            known = types.setdefault(name, [])
            if str(kind) not in known:
                known.append(str(kind))
    hidden = frozenset(name for name in types if all(name in m.hidden for m in members if name in m.columns))
    return Columns({name: parse_type(reduce(_common, kinds)) for name, kinds in types.items()}, hidden)


@lru_cache(maxsize=1024)
def _common(one: str, other: str) -> str:
    """A type that holds the values of both: the least supertype, or a Variant."""
    selects = (f"SELECT * FROM null({quote_string(f'c {kind}')})" for kind in (one, other))
    text = f"DESCRIBE TABLE ({' UNION ALL '.join(selects)})"
    described = engine.run(text, settings={"use_variant_as_common_type": "1"})
    return str(described.table()["type"].to_pylist()[0])


def as_union(members: Sequence[Member], columns: Mapping[str, DataType], need: ReadRequest) -> str:
    """A union as a subquery with the columns that are needed, or with a constant if there are none."""
    selects = [_select(member, columns, need) for member in members]
    if not selects:
        return as_empty({name: columns[name] for name in need.columns} or {"_ml_row": UINT8})
    return f"({' UNION ALL '.join(selects)})"


def _select(member: Member, columns: Mapping[str, DataType], need: ReadRequest) -> str:
    out = []
    for name in need.columns:
        quoted, kind = back_quote(name), quote_string(str(columns[name]))
        if name in VIRTUAL and member.is_union:
            out.append(quoted)
        elif name in VIRTUAL and name not in member.columns:
            value = member.where[0 if name == "_database" else 1]
            out.append(f"CAST({quote_string(value)}, {kind}) AS {quoted}")
        elif name not in member.columns:
            out.append(f"defaultValueOfTypeName({kind}) AS {quoted}")
        else:
            same = member.columns[name] == columns[name]
            out.append(quoted if same else f"CAST({quoted}, {kind}) AS {quoted}")
    text = f"SELECT {', '.join(out) or '1 AS _ml_row'} FROM {'.'.join(map(back_quote, member.where))}"
    if need.final and member.takes_final:
        text += " FINAL"
    if need.sample and member.takes_sample:
        text += f" SAMPLE {need.sample}" + (f" OFFSET {need.sample_offset}" if need.sample_offset else "")
    known = {**member.columns, **(VIRTUAL if member.is_union else {})}
    same_type = {name: back_quote(name) for name, kind in known.items() if columns.get(name) == kind}
    if casts := {name for name in need.columns if name not in same_type}:  # an alias of a cast hides its column
        same_type = {name: text for name, text in same_type.items() if name not in casts}
    where = conditions(need.where, same_type, frozenset(columns))
    return f"{text} WHERE {where}" if where else text


def kept_by(found: Sequence[Where], condition: str) -> list[Where]:
    """The tables that a condition over `_table` and `_database` leaves."""
    if not condition or not found:
        return list(found)
    rows = ", ".join(f"({quote_string(database)}, {quote_string(name)})" for database, name in found)
    structure = ", ".join(f"{name} {kind}" for name, kind in VIRTUAL.items())
    text = f"SELECT _database, _table FROM values({quote_string(structure)}, {rows}) WHERE {condition}"
    table = engine.run(text).table()
    left = set(zip(table["_database"].to_pylist(), table["_table"].to_pylist(), strict=True))
    return [where for where in found if where in left]


def seen_by(columns: Columns, named: Iterable[str]) -> Columns:
    """The columns with those of `VIRTUAL` that a statement names."""
    virtual = {name: kind for name, kind in VIRTUAL.items() if name in named and name not in columns.columns}
    return Columns({**columns.columns, **virtual}, columns.hidden | frozenset(virtual))
