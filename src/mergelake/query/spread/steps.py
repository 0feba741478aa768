"""Planning of the steps of one SELECT: its subqueries from the inside out, then the statement itself.

Each step is one SELECT, spread over tasks if possible (`splitting`), else run in this process. The result of a subquery
is a table for later steps. Planning reads no rows: names and types come from DESCRIBE with empty tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.types.types import parse_type
from mergelake.query.context import Context
from mergelake.query.prepare import Prepared, Tables, checked, described, look_up_tables, prepared_of
from mergelake.query.source import ReadRequest, Resolve, Source, SourceScan
from mergelake.query.spread import distributing, materialising
from mergelake.query.spread.final_shares import FinalShare, final_shares
from mergelake.query.spread.given_table import GivenTable, structure
from mergelake.query.spread.halves import NotSplitError
from mergelake.query.spread.materialising import SubqueryCut
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
"""Parts of the names of types whose equal values may have different hashes."""
STEPS_MAX = 64
"""Maximum number of subqueries that are computed as steps."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of one SELECT."""

    prepared: Prepared
    split: Split | None
    """None if it runs in this process."""
    why: str
    partial: Mapping[str, str]
    """Names and types of the columns of partial results."""
    finals: tuple[FinalShare, ...] = ()
    """The shares of a table that is read with FINAL."""
    rows: Mapping[str, str] = field(default_factory=dict)
    """Names and types of the columns of shuffled rows."""


@dataclass(frozen=True, slots=True)
class SpreadStep:
    """A step that computes a subquery."""

    gives: GivenTable
    planned: Planned


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a statement."""

    before: tuple[SpreadStep, ...]
    last: Planned

    @property
    def spread(self) -> bool:
        """Whether any step runs in tasks."""
        return any(planned.split is not None for planned in (*(step.planned for step in self.before), self.last))


class Planner:
    """Plans one statement."""

    def __init__(self, tables: Tables, context: Context, folder: Path) -> None:
        """`tables` are those of the statement; the results of its subqueries will be stored in `folder`."""
        self._tables, self._context, self._folder = tables, context, folder
        self._results: dict[str, GivenTable] = {}
        self._scans: dict[tuple[int, ReadRequest], SourceScan] = {}

    def steps(self, sql: str) -> Steps:
        """The steps of a statement; a single one that is not split, if nothing can be spread."""
        parsed = parse_select(sql)
        if materialising.RESULT in sql or any(reference.explain for reference in parsed.references):
            raise NotSplitError("it reads what is made while it runs")
        if writes_file(parsed):
            raise NotSplitError("it writes a file")
        context = replace(
            self._context, settings={**self._context.settings, **for_clickhouse(statement_settings(parsed))}
        )
        return self._steps(sql, self._context, replace(context, format=""))

    def scan(self, source: Source, wanted: ReadRequest) -> SourceScan:
        """Plan a scan; cached."""
        key = id(source), wanted
        if key not in self._scans:
            self._scans[key] = source.plan(wanted)
        return self._scans[key]

    def _resolve(self, database: str, name: str) -> Source | None:
        if not database and name in self._results:
            return self._results[name]
        if (database, name, None) not in self._tables.by_name:
            raise error("UNKNOWN_TABLE", f"There is no table {name}")
        return self._tables.by_name[database, name, None]

    def _prepare(self, sql: str, context: Context) -> tuple[Prepared, Tables]:
        """Prepare a statement over the same versions of the tables."""
        parsed = parse_select(sql)
        tables = look_up_tables(parsed, self._resolve, context, _unexplained)
        checked(parsed, context)
        return prepared_of(parsed, tables, context), tables

    def _steps(self, sql: str, context: Context, inside: Context) -> Steps:
        """Plan the steps of `sql`; `context` is that of the statement, `inside` that of its subqueries."""
        original, _ = self._prepare(sql, context)
        before: list[SpreadStep] = []
        try:
            last = self._reduced(sql, context, inside, before)
            same = last.prepared.columns(context) == original.columns(context)
        except NotSplitError as why:
            return Steps((), Planned(original, None, str(why), {}))
        except MergelakeError as failure:  # raised again when the statement runs
            return Steps((), Planned(original, None, f"ClickHouse refuses it: {failure.message}", {}))
        if not same:
            return Steps((), Planned(original, None, "its columns would have other names or types", {}))
        steps = Steps(tuple(before), last)
        return steps if steps.spread else Steps((), Planned(original, None, last.why, {}))

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

    def _without(self, text: str, pieces: Collection[SubqueryCut], inside: Context, before: list[SpreadStep]) -> str:
        """The text with subqueries replaced by tables; appends the steps that compute these to `before`."""
        edits = []
        for piece in pieces:
            sql = self._alone(piece, inside)
            steps = self._steps(sql, inside, inside)
            before += steps.before
            if len(before) >= STEPS_MAX:
                raise NotSplitError(f"it has more than {STEPS_MAX} subqueries")
            gives = self._table_of(steps.last.prepared, inside)
            before.append(SpreadStep(gives, steps.last))
            edits += [(start, end, new.replace("{}", gives.name)) for start, end, new in piece.edits]
        return materialising.edited(text, edits)

    def _alone(self, piece: SubqueryCut, context: Context) -> str:
        """The subquery as a statement. Raises NotSplitError if it depends on the enclosing statement."""
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
        table = GivenTable(f"{materialising.RESULT}{len(self._results)}", columns, kinds, self._folder)
        self._results[table.name] = table
        return table

    def _kept(self, parsed: ParsedSelect, prepared: Prepared, tables: Tables) -> list[Scope]:
        """The scopes that are not replaced: the outermost, and those on the path to the spread table."""
        top = next(scope for scope in parsed.scopes if scope.parent is None)
        ours = [reference for reference in parsed.references if reference in tables.by_reference]
        rows = self._rows(prepared)
        by_id = {
            reference: rows[slot.object_name]
            for reference, slot in zip(ours, prepared.rewritten.slots, strict=True)
            if slot.object_name in rows and not reference.in_operator
        }
        if "FROM" not in top.clauses:
            return [top]
        spread = distributing.table_to_spread(parsed, top, by_id)
        return [top] if spread is None else distributing.path_to(parsed, top, spread)

    def _rows(self, prepared: Prepared) -> dict[str, int]:
        """Numbers of rows to read, by object name, of the tables that may be spread."""
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
        chosen = split(prepared.marked(context.now_ms), self._rows(prepared), names, columns)
        slot = next(slot for slot in rewritten.slots if slot.object_name == chosen.spread)
        source, wanted = prepared.source_of(slot), slot.judged(self._context.settings)
        if not self.scan(source, wanted).items:
            raise NotSplitError("nothing to read")
        finals = self._final_shares(source, wanted) if wanted.final else ()
        if slot.refused is not None and source.shared(wanted) is None:
            raise NotSplitError("it has types for ClickHouse's own reading, and tasks do not attach the parts")
        shapes = {each.object_name: each.shape for each in rewritten.slots}
        rows: Mapping[str, str] = {}
        try:
            if chosen.shuffle is not None:
                rows = _shuffled_rows(chosen.shuffle, shapes, context)
                shapes[BUCKET] = without_bucket(f"null({structure(rows)})", rows)
            partial = dict(zip(*described(filled(chosen.halves.partial, shapes), context), strict=True))
            answers = f"null({structure(partial)})"
            final = described(filled(chosen.halves.final_text(answers), shapes), context)
        except MergelakeError as failure:
            raise NotSplitError(f"its halves do not fit: {failure.message}") from None
        if final != (names, kinds):
            raise NotSplitError("the answer would have other names or types")
        why = chosen.halves.why + ", by ranges of the key" * bool(finals)
        why += ", after a shuffle by the partitions of windows" * (chosen.shuffle is not None)
        return Planned(prepared, chosen, why, partial, finals, rows)

    def _final_shares(self, source: Source, wanted: ReadRequest) -> tuple[FinalShare, ...]:
        shared = source.shared(wanted)
        if shared is None or self._context.run_tasks is None:
            raise NotSplitError("FINAL of parts that tasks do not attach")
        return tuple(final_shares(shared.parts, TASKS_A_CORE * self._context.run_tasks.at_once()))


def _unexplained(query: str, resolve: Resolve, context: Context, kind: str) -> list[str]:
    raise NotSplitError("it reads what EXPLAIN tells")


def _shuffled_rows(shuffle: Shuffle, shapes: Mapping[str, str], context: Context) -> dict[str, str]:
    """Names and types of shuffled rows. Raises NotSplitError if equal keys may have different hashes."""
    _, keys = described(filled(shuffle.keys, shapes), context)
    unhashed = next((kind for kind in keys for word in _NOT_HASHED if word in kind), None)
    if unhashed is not None:
        raise NotSplitError(f"a window is partitioned by {unhashed}")
    names, kinds = described(filled(shuffle.first, shapes), context)
    if len(set(names)) < len(names):
        raise NotSplitError("a subquery has two columns of one name")
    return dict(zip(names, kinds, strict=True))
