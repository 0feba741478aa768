"""Preparation of a SELECT: parsing, looking up tables, rewriting; without reading data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, NotFoundError, error
from mergelake.core.types.arrow import storage_schema
from mergelake.core.types.types import STRING
from mergelake.query.attach.attaching import DATABASE
from mergelake.query.context import Context
from mergelake.query.embedded import engine
from mergelake.query.source import ArrowSource, AsOf, Layers, Resolve, Source, SourceScan
from mergelake.query.statement.access import check_access, check_expression, check_fixed, set_names
from mergelake.query.statement.limits import ReadLimits, check_size, read_limits
from mergelake.query.statement.parsed_select import ParsedSelect, TableReference
from mergelake.query.statement.rewrite import NOW, Rewritten, Slot, rewrite
from mergelake.query.statement.settings import describes, for_clickhouse, honoured, reading
from mergelake.query.statement.settings_semantics import check_meaning, last_settings, setting_items, statement_settings
from mergelake.query.statement.wording import in_words


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement ready to run: rewritten, with its tables."""

    parsed: ParsedSelect
    rewritten: Rewritten
    sources: tuple[Source, ...]
    """The table of each slot."""
    setting: str = ""
    """A setting because of which ClickHouse has to read the parts itself; empty if there is none."""

    def must(self, slot: Slot) -> bool:
        """Whether ClickHouse has to read the table itself."""
        return bool(self.setting) or slot.refused is not None

    def source_of(self, slot: Slot) -> Source:
        """The table of a slot."""
        return self.sources[self.rewritten.slots.index(slot)]

    def marked(self, now_ms: int) -> str:
        """The statement with marks for its tables (`Rewritten.marked`), at the time `now_ms`."""
        return self.rewritten.marked(self._numbers(now_ms))

    def text(self, now_ms: int, attached: Mapping[str, Layers] | None = None) -> str:
        """The statement for ClickHouse at the time `now_ms`; `attached` as in `Rewritten.text`."""
        return self.rewritten.text(self._numbers(now_ms), attached)

    def _numbers(self, now_ms: int) -> dict[int, int]:
        numbers = {NOW: now_ms // 1000}
        for index, slot in enumerate(self.rewritten.slots):
            if slot.counted:
                numbers[index] = self.sources[index].exact_rows() or 0
        return numbers

    def columns(self, context: Context) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names and types of the statement's columns.

        Cached by the statement without the literals of its filters, which do not affect them, so that a look-up of
        another key needs no DESCRIBE.
        """
        versions = tuple(source.version for source in self.sources)
        try:
            return described(self.rewritten.shape(), context, (_without_filters(self.parsed), versions))
        except MergelakeError as failure:
            raise in_words(failure, self.parsed, self.sources) from None


Explained = Callable[[str, Resolve, Context, str], list[str]]
"""Returns the lines of EXPLAIN for a statement, for `SELECT … FROM (EXPLAIN …)`."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a statement."""

    by_name: Mapping[tuple[str, str, AsOf | None], Source | None]
    by_reference: Mapping[TableReference, Source]
    """Tables by reference, without those of ClickHouse itself."""


def look_up_tables(
    parsed: ParsedSelect, resolve: Resolve, context: Context, explained: Explained, before: str = ""
) -> Tables:
    """Look up the tables of a statement. Raises ACCESS_DENIED if it, or a computed column, accesses anything else."""
    check_fixed(set_names(parsed.tokens))
    external = context.external
    if not external:
        check_access(parsed, before)
    seen: dict[tuple[str, str, AsOf | None], Source | None] = {}

    def look_up(database: str, name: str, moment: AsOf | None) -> Source | None:
        if (database, name, moment) not in seen:
            newest = resolve(database, name) if moment is None else look_up(database, name, None)
            if moment is not None and newest is None:
                raise error("NOT_IMPLEMENTED", f"{database}.{name} has no older versions", "Leave out AS OF")
            seen[database, name, moment] = newest if moment is None or newest is None else newest.at(moment)
        return seen[database, name, moment]

    sources: dict[TableReference, Source] = {}
    for reference in parsed.references:
        if reference.explain:
            kind, query = reference.explain
            lines = pa.table({"explain": pa.array(explained(query, resolve, context, kind), pa.large_binary())})
            seen[reference.table] = sources[reference] = ArrowSource(lines, {"explain": STRING})
            continue
        try:
            source = look_up(reference.database, reference.name, reference.as_of)
        except NotFoundError:
            outside = reference.database == DATABASE or (not external and not reference.name.replace("_", "").isalnum())
            if not reference.in_operator or outside:
                raise  # ClickHouse would read a file, or the attached table of another statement
            continue  # `x IN list`: a column or an alias, not a table
        if source is not None:
            sources[reference] = source
            for _, expression in source.computed.values() if not external else ():
                check_expression(expression)
    return Tables(seen, sources)


def prepared_of(parsed: ParsedSelect, tables: Tables, context: Context) -> Prepared:
    """Rewrite the statement; cached by its text and the columns of its tables."""
    database, setting = context.database, reading({**context.settings, **statement_settings(parsed)})
    key = (
        parsed.text,
        database,
        bool(setting),
        tuple(_key(tables.by_reference.get(reference)) for reference in parsed.references),
    )
    rewritten = context.cache.rewritten.get(
        key, lambda: rewrite(parsed, tables.by_reference, database, counts=not setting)
    )
    if context.format and not rewritten.format:
        rewritten = replace(rewritten, format=context.format)
    sources = [tables.by_name[slot.table] for slot in rewritten.slots]
    return Prepared(parsed, rewritten, tuple(source for source in sources if source is not None), setting)


def _key(source: Source | None) -> Hashable:
    return None if source is None else (source.version, source.exact_rows() is None)


def checked(parsed: ParsedSelect, context: Context) -> ReadLimits:
    """Check that the statement is supported; returns the limits of what it may read."""
    check_meaning(parsed)
    chosen = {**context.honoured, **engine.plain_values(honoured(statement_settings(parsed)))}
    check_size(parsed.text, chosen)
    return read_limits(chosen)


def with_last_settings(parsed: ParsedSelect, context: Context) -> Context:
    """The context with the SETTINGS after brackets at the end of the statement, which the rewriting removes."""
    last = last_settings(parsed)
    if last is None:
        return context
    values = {name: value for name, value, _ in setting_items(parsed, last[0] + 1, last[1])}
    return replace(context, settings={**context.settings, **for_clickhouse(values)})


def plan_scans(
    prepared: Prepared, settings: Mapping[str, str], only: Collection[str] | None = None
) -> dict[str, SourceScan]:
    """Plan a scan for each slot that reads (or those in `only`), without conditions that `settings` may affect."""
    return {
        slot.object_name: source.plan(slot.judged(settings))
        for slot, source in zip(prepared.rewritten.slots, prepared.sources, strict=True)
        if not slot.counted and (only is None or slot.object_name in only)
    }


def described(text: str, context: Context, key: Hashable = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and types of the columns of a statement on empty tables; cached by `key` (default: the text)."""

    def describe() -> tuple[tuple[str, ...], tuple[str, ...]]:
        rows = engine.run(f"DESCRIBE TABLE ({text}\n)", settings=describes(context.settings)).table()
        return tuple(rows["name"].to_pylist()), tuple(rows["type"].to_pylist())

    return context.cache.columns.get((text if key is None else key, tuple(context.settings.items())), describe)


def _without_filters(parsed: ParsedSelect) -> tuple[str, ...]:
    """The statement's tokens without the literals of WHERE and PREWHERE, except in expressions with an alias."""
    out = [token.text for token in parsed.tokens]
    for scope in parsed.scopes:
        for clause in ("WHERE", "PREWHERE"):
            first, end = scope.clause(clause)
            if any(token.upper == "AS" for token in parsed.tokens[first:end]):
                continue
            for at in range(first, end):
                if parsed.tokens[at].kind in ("number", "string"):
                    out[at] = ""
    return tuple(out)


def empty_tables(prepared: Prepared, only: str = "") -> dict[str, pa.Table]:
    """An empty table in storage form for each slot that reads, or for the slot `only`."""
    out = {}
    for slot, source in zip(prepared.rewritten.slots, prepared.sources, strict=True):
        if not slot.counted and only in ("", slot.object_name):
            schema = storage_schema({name: source.columns[name] for name in slot.wanted.columns})
            out[slot.object_name] = schema.empty_table()
    return out
