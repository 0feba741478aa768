"""What is computed one after another for one SELECT: its subqueries from the inside out, then itself.

Each is one SELECT, spread over tasks where it can be (`splitting`), else run here. What a subquery gives is a table of
those that come after it. Planning reads no rows: names and types are asked for with tables that have none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mergelake.core.errors import MergelakeError, error
from mergelake.core.types import parse_type
from mergelake.query.context import Context
from mergelake.query.prepare import Prepared, Tables, checked, described, look_up_tables, prepared_of
from mergelake.query.source import ReadRequest, Resolve, Scan, Source
from mergelake.query.spread import distributing, materialising
from mergelake.query.spread.final_shares import FinalShare, final_shares
from mergelake.query.spread.given_table import GivenTable, structure
from mergelake.query.spread.halves import NotSplitError
from mergelake.query.spread.materialising import Piece
from mergelake.query.spread.shuffling import BUCKET, Shuffle, without_bucket
from mergelake.query.spread.splitting import Split, split
from mergelake.query.spread.task import TASKS_A_CORE
from mergelake.query.statement.parsed_select import ParsedSelect, Scope
from mergelake.query.statement.rewrite import filled
from mergelake.query.statement.select_parser import parse_select
from mergelake.query.statement.settings import for_clickhouse
from mergelake.query.statement.settings_semantics import statement_settings, writes_file
from mergelake.query.table_source import TableSource

_NOT_HASHED = ("Float", "Dynamic", "Variant", "JSON", "AggregateFunction", "Object")
"""In types whose equal values may have different hashes."""
STEPS_MAX = 64
"""Subqueries of a statement that are computed one by one."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One SELECT, and how it runs."""

    prepared: Prepared
    split: Split | None
    """None where it runs here."""
    why: str
    partial: Mapping[str, str]
    """Names and types of what the tasks give."""
    finals: tuple[FinalShare, ...] = ()
    """The shares of a table that is read with FINAL."""
    rows: Mapping[str, str] = field(default_factory=dict)
    """Names and types of what goes into buckets, where windows are computed."""


@dataclass(frozen=True, slots=True)
class SpreadStep:
    """A subquery."""

    gives: GivenTable
    planned: Planned


@dataclass(frozen=True, slots=True)
class Steps:
    """All of a statement."""

    before: tuple[SpreadStep, ...]
    last: Planned

    @property
    def spread(self) -> bool:
        """Whether any of it runs in tasks."""
        return any(planned.split is not None for planned in (*(step.planned for step in self.before), self.last))


class Planner:
    """Plans one statement."""

    def __init__(self, tables: Tables, context: Context, folder: Path) -> None:
        """`tables` are those that the statement names; answers of its subqueries will lie in `folder`."""
        self._tables, self._context, self._folder = tables, context, folder
        self._given: dict[str, GivenTable] = {}
        self._scans: dict[tuple[int, ReadRequest], Scan] = {}

    def steps(self, sql: str) -> Steps:
        """Those of a statement; none before it, and no split, where nothing of it can be spread."""
        parsed = parse_select(sql)
        if materialising.RESULT in sql or any(reference.explain for reference in parsed.references):
            raise NotSplitError("it reads what is made while it runs")
        if writes_file(parsed):
            raise NotSplitError("it writes a file")
        context = replace(
            self._context, settings={**self._context.settings, **for_clickhouse(statement_settings(parsed))}
        )
        return self._steps(sql, self._context, replace(context, format=""))

    def scan(self, source: Source, wanted: ReadRequest) -> Scan:
        """A planned read; planned once."""
        key = id(source), wanted
        if key not in self._scans:
            self._scans[key] = source.plan(wanted)
        return self._scans[key]

    def _resolve(self, database: str, name: str) -> Source | None:
        if not database and name in self._given:
            return self._given[name]
        if (database, name, None) not in self._tables.by_name:
            raise error("UNKNOWN_TABLE", f"There is no table {name}")
        return self._tables.by_name[database, name, None]

    def _prepare(self, sql: str, context: Context) -> tuple[Prepared, Tables]:
        """The statement over the same versions of its tables."""
        parsed = parse_select(sql)
        tables = look_up_tables(parsed, self._resolve, context, _unexplained)
        checked(parsed, context)
        return prepared_of(parsed, tables, context), tables

    def _steps(self, sql: str, context: Context, inside: Context) -> Steps:
        """`context` is the statement's, `inside` that of its subqueries."""
        original, _ = self._prepare(sql, context)
        before: list[SpreadStep] = []
        try:
            last = self._reduced(sql, context, inside, before)
            same = last.prepared.columns(context) == original.columns(context)
        except NotSplitError as why:
            return Steps((), Planned(original, None, str(why), {}))
        except MergelakeError as failure:  # it is told when the statement runs
            return Steps((), Planned(original, None, f"ClickHouse refuses it: {failure.message}", {}))
        if not same:
            return Steps((), Planned(original, None, "its columns would have other names or types", {}))
        found = Steps(tuple(before), last)
        return found if found.spread else Steps((), Planned(original, None, last.why, {}))

    def _reduced(self, text: str, context: Context, inside: Context, before: list[SpreadStep]) -> Planned:
        while True:
            parsed = parse_select(text)
            in_place = materialising.with_ctes_in_place(parsed)
            cte = materialising.shared_cte(parsed) if in_place == text else None
            if in_place == text and cte is None:
                break
            text = in_place if cte is None else self._without(text, [cte], inside, before)
        prepared, tables = self._prepare(text, context)
        top = next(scope for scope in parsed.scopes if scope.parent is None)
        if top.in_set_operation:
            pieces = materialising.branches(parsed)
        else:
            pieces = materialising.subqueries(parsed, self._kept(parsed, prepared, tables))
        if pieces:
            text = self._without(text, pieces, inside, before)
            prepared, _ = self._prepare(text, context)
        if top.in_set_operation:
            return Planned(prepared, None, "its branches are put together here", {})
        try:
            return self._split(prepared, context)
        except NotSplitError as why:
            return Planned(prepared, None, str(why), {})

    def _without(self, text: str, pieces: Collection[Piece], inside: Context, before: list[SpreadStep]) -> str:
        """The text with subqueries replaced by tables of what they give, which are computed before it."""
        edits = []
        for piece in pieces:
            sql = self._alone(piece, inside)
            found = self._steps(sql, inside, inside)
            before += found.before
            if len(before) >= STEPS_MAX:
                raise NotSplitError(f"it has more than {STEPS_MAX} subqueries")
            gives = self._table_of(found.last.prepared, inside)
            before.append(SpreadStep(gives, found.last))
            edits += [(start, end, new.replace("{}", gives.name)) for start, end, new in piece.edits]
        return materialising.edited(text, edits)

    def _alone(self, piece: Piece, context: Context) -> str:
        """The subquery as a statement; NotSplitError if it needs the statement around it."""
        for sql in (piece.text, *([materialising.with_around(piece)] if piece.around else [])):
            try:
                self._prepare(sql, context)[0].columns(context)
            except MergelakeError:
                continue
            return sql
        raise NotSplitError("a subquery does not stand alone")

    def _table_of(self, prepared: Prepared, context: Context) -> GivenTable:
        names, kinds = prepared.columns(context)
        if len(set(names)) < len(names):
            raise NotSplitError("a subquery has two columns of one name")
        try:
            columns = {name: parse_type(kind) for name, kind in zip(names, kinds, strict=True)}
        except MergelakeError as unknown:
            raise NotSplitError(f"a subquery has a column of another kind: {unknown.message}") from None
        found = GivenTable(f"{materialising.RESULT}{len(self._given)}", columns, kinds, self._folder)
        self._given[found.name] = found
        return found

    def _kept(self, parsed: ParsedSelect, prepared: Prepared, tables: Tables) -> list[Scope]:
        """The scopes that stay: the outermost, and those that lead down from it to the table that will be spread."""
        top = next(scope for scope in parsed.scopes if scope.parent is None)
        ours = [found for found in parsed.references if found in tables.by_reference]
        rows = self._rows(prepared)
        by_id = {
            found: rows[slot.object_name]
            for found, slot in zip(ours, prepared.rewritten.slots, strict=True)
            if slot.object_name in rows and not found.in_operator
        }
        if "FROM" not in top.clauses:
            return [top]
        spread = distributing.table_to_spread(parsed, top, by_id)
        return [top] if spread is None else distributing.path_to(parsed, top, spread)

    def _rows(self, prepared: Prepared) -> dict[str, int]:
        """Rows to read of the tables that may be spread."""
        pairs = zip(prepared.rewritten.slots, prepared.sources, strict=True)
        return {
            slot.object_name: self.scan(source, slot.judged(self._context.settings)).rows
            for slot, source in pairs
            if isinstance(source, TableSource) and not slot.counted
        }

    def _split(self, prepared: Prepared, context: Context) -> Planned:
        rewritten = prepared.rewritten
        if any(slot.counted for slot in rewritten.slots):
            raise NotSplitError("answered from the parts' row counts")
        names, kinds = prepared.columns(context)
        columns = {name for source in prepared.sources for name in (*source.columns, *source.computed)}
        found = split(prepared.marked(context.now_ms), self._rows(prepared), names, columns)
        slot = next(slot for slot in rewritten.slots if slot.object_name == found.spread)
        source, wanted = prepared.source_of(slot), slot.judged(self._context.settings)
        if not self.scan(source, wanted).items:
            raise NotSplitError("nothing to read")
        finals = self._final_shares(source, wanted) if wanted.final else ()
        if slot.refused is not None and source.shared(wanted) is None:
            raise NotSplitError("it has types for ClickHouse's own reading, and tasks do not attach the parts")
        shapes = {each.object_name: each.shape for each in rewritten.slots}
        rows: Mapping[str, str] = {}
        try:
            if found.shuffle is not None:
                rows = _shuffled_rows(found.shuffle, shapes, context)
                shapes[BUCKET] = without_bucket(f"null({structure(rows)})", rows)
            partial = dict(zip(*described(filled(found.halves.partial, shapes), context), strict=True))
            answers = f"null({structure(partial)})"
            final = described(filled(found.halves.final_text(answers), shapes), context)
        except MergelakeError as failure:
            raise NotSplitError(f"its halves do not fit: {failure.message}") from None
        if final != (names, kinds):
            raise NotSplitError("the answer would have other names or types")
        why = found.halves.why + ", by ranges of the key" * bool(finals)
        why += ", after a shuffle by the partitions of windows" * (found.shuffle is not None)
        return Planned(prepared, found, why, partial, finals, rows)

    def _final_shares(self, source: Source, wanted: ReadRequest) -> tuple[FinalShare, ...]:
        shared = source.shared(wanted)
        if shared is None or self._context.run_tasks is None:
            raise NotSplitError("FINAL of parts that tasks do not attach")
        return tuple(final_shares(shared[1], TASKS_A_CORE * self._context.run_tasks.at_once()))


def _unexplained(query: str, resolve: Resolve, context: Context, kind: str) -> list[str]:
    raise NotSplitError("it reads what EXPLAIN tells")


def _shuffled_rows(shuffle: Shuffle, shapes: Mapping[str, str], context: Context) -> dict[str, str]:
    """Names and types of the rows that go into buckets; NotSplitError where equal values may lie in different ones."""
    _, keys = described(filled(shuffle.keys, shapes), context)
    told = next((kind for kind in keys for word in _NOT_HASHED if word in kind), None)
    if told is not None:
        raise NotSplitError(f"a window is partitioned by {told}")
    names, kinds = described(filled(shuffle.first, shapes), context)
    if len(set(names)) < len(names):
        raise NotSplitError("a subquery has two columns of one name")
    return dict(zip(names, kinds, strict=True))
