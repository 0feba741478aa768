"""A SELECT taken apart, its tables looked up, and rewritten; nothing is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from mergelake.core.arrow import storage_schema
from mergelake.core.errors import MergelakeError, NotFoundError, error
from mergelake.core.types import STRING
from mergelake.query.attach.attaching import DATABASE
from mergelake.query.context import Context
from mergelake.query.embedded import engine
from mergelake.query.source import ArrowSource, AsOf, Layers, Resolve, Scan, Source
from mergelake.query.statement.access import check_access, check_expression, check_fixed, set_names
from mergelake.query.statement.limits import ReadLimits, check_size, read_limits
from mergelake.query.statement.parsed_select import ParsedSelect, TableReference
from mergelake.query.statement.rewrite import NOW, Rewritten, Slot, rewrite
from mergelake.query.statement.settings import describes, for_clickhouse, honoured, reading
from mergelake.query.statement.settings_semantics import check_meaning, last_settings, setting_items, statement_settings
from mergelake.query.statement.wording import in_words


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement ready to run: what ClickHouse will be given, and from where."""

    parsed: ParsedSelect
    rewritten: Rewritten
    sources: tuple[Source, ...]
    """For each slot its table."""
    setting: str = ""
    """A setting under which ClickHouse has to read the parts itself; empty if there is none."""

    def must(self, slot: Slot) -> bool:
        """Whether ClickHouse has to read the table itself."""
        return bool(self.setting) or slot.refused is not None

    def source_of(self, slot: Slot) -> Source:
        """The table of a slot."""
        return self.sources[self.rewritten.slots.index(slot)]

    def marked(self, now_ms: int) -> str:
        """The statement over the names of its objects, as of now."""
        return self.rewritten.marked(self._numbers(now_ms))

    def text(self, now_ms: int, attached: Mapping[str, Layers] | None = None) -> str:
        """The statement for ClickHouse, as of now; `attached` as in `Rewritten.text`."""
        return self.rewritten.text(self._numbers(now_ms), attached)

    def _numbers(self, now_ms: int) -> dict[int, int]:
        numbers = {NOW: now_ms // 1000}
        for index, slot in enumerate(self.rewritten.slots):
            if slot.counted:
                numbers[index] = self.sources[index].exact_rows() or 0
        return numbers

    def columns(self, context: Context) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names and types of the columns that the statement gives.

        Kept by the statement without the literals of its filters, which change neither: a look-up by another key
        need not ask again.
        """
        versions = tuple(source.version for source in self.sources)
        try:
            return described(self.rewritten.shape(), context, (_without_filters(self.parsed), versions))
        except MergelakeError as failure:
            raise in_words(failure, self.parsed, self.sources) from None


Explained = Callable[[str, Resolve, Context, str], list[str]]
"""The lines of EXPLAIN for a statement, of some kind: `SELECT … FROM (EXPLAIN …)`."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What the names in a statement mean."""

    by_name: Mapping[tuple[str, str, AsOf | None], Source | None]
    by_reference: Mapping[TableReference, Source]
    """Without those that are ClickHouse's own."""


def look_up_tables(
    parsed: ParsedSelect, resolve: Resolve, context: Context, explained: Explained, before: str = ""
) -> Tables:
    """Look up what the statement names. ACCESS_DENIED if it, or an expression of a table, reaches outside of tables."""
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
    for found in parsed.references:
        if found.explain:
            kind, query = found.explain
            lines = pa.table({"explain": pa.array(explained(query, resolve, context, kind), pa.large_binary())})
            seen[found.table] = sources[found] = ArrowSource(lines, {"explain": STRING})
            continue
        try:
            source = look_up(found.database, found.name, found.as_of)
        except NotFoundError:
            outside = found.database == DATABASE or (not external and not found.name.replace("_", "").isalnum())
            if not found.in_operator or outside:
                raise  # to ClickHouse `/etc/passwd` would be a file, and what others attached a table
            continue  # `x IN list`: a column or an alias, not a table
        if source is not None:
            sources[found] = source
            for _, expression in source.computed.values() if not external else ():
                check_expression(expression)
    return Tables(seen, sources)


def prepared_of(parsed: ParsedSelect, tables: Tables, context: Context) -> Prepared:
    """The statement over the tables that were looked up; kept by its text and the columns of the tables."""
    database, setting = context.database, reading({**context.settings, **statement_settings(parsed)})
    key = (
        parsed.text,
        database,
        bool(setting),
        tuple(_key(tables.by_reference.get(found)) for found in parsed.references),
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
    """Refuse what is not done here; how much may be read."""
    check_meaning(parsed)
    chosen = {**context.honoured, **engine.plain_values(honoured(statement_settings(parsed)))}
    check_size(parsed.text, chosen)
    return read_limits(chosen)


def with_last_settings(parsed: ParsedSelect, context: Context) -> Context:
    """The context with the settings that the statement ends in after brackets: its text goes to ClickHouse without."""
    last = last_settings(parsed)
    if last is None:
        return context
    given = {name: value for name, value, _ in setting_items(parsed, last[0] + 1, last[1])}
    return replace(context, settings={**context.settings, **for_clickhouse(given)})


def plan_scans(prepared: Prepared, settings: Mapping[str, str], only: Collection[str] | None = None) -> dict[str, Scan]:
    """A scan for each slot that reads (`only` those); it judges no condition whose meaning `settings` may change."""
    return {
        slot.object_name: source.plan(slot.judged(settings))
        for slot, source in zip(prepared.rewritten.slots, prepared.sources, strict=True)
        if not slot.counted and (only is None or slot.object_name in only)
    }


def described(text: str, context: Context, key: Hashable = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and types of the columns that a statement over tables without rows gives; kept by `key`, or its text."""

    def ask() -> tuple[tuple[str, ...], tuple[str, ...]]:
        rows = engine.run(f"DESCRIBE TABLE ({text}\n)", settings=describes(context.settings)).table()
        return tuple(rows["name"].to_pylist()), tuple(rows["type"].to_pylist())

    return context.cache.columns.get((text if key is None else key, tuple(context.settings.items())), ask)


def _without_filters(parsed: ParsedSelect) -> tuple[str, ...]:
    """The statement's tokens, the literals of WHERE and PREWHERE left out. An alias made there keeps its own."""
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
    """An empty table of storage form for each slot that reads; for `only` one if it is named."""
    out = {}
    for slot, source in zip(prepared.rewritten.slots, prepared.sources, strict=True):
        if not slot.counted and only in ("", slot.object_name):
            schema = storage_schema({name: source.columns[name] for name in slot.wanted.columns})
            out[slot.object_name] = schema.empty_table()
    return out
