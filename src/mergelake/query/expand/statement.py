"""A SELECT with views and unions as one over tables alone.

Each pass replaces what the statement names by subqueries, whose own views are left to the next one. A column, a
condition or a FINAL of the statement goes along as far as it may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mergelake.core.base.errors import error
from mergelake.core.base.text import back_quote
from mergelake.core.model.schema import TableSchema
from mergelake.log.storage.catalog import VirtualTable
from mergelake.query.context import Context
from mergelake.query.expand.columns import Columns
from mergelake.query.expand.pushing import with_columns, with_condition
from mergelake.query.expand.unions import (
    VIRTUAL,
    as_union,
    kept_by,
    members_of,
    pattern_of,
    seen_by,
    union_columns,
)
from mergelake.query.expand.views import as_empty, as_subquery, columns_of, with_arguments
from mergelake.query.prepare import checked, look_up_tables, prepared_of
from mergelake.query.source import Names, ReadRequest, Resolve
from mergelake.query.statement.edits import Edit, applied, qualifier_edits
from mergelake.query.statement.needs import star_tokens, wanted
from mergelake.query.statement.parsed_select import ParsedSelect, TableReference
from mergelake.query.statement.select_parser import parse_select
from mergelake.query.statement.wording import check_syntax

LEVELS_MAX = 32
"""Views in views, at most."""
TEXT_MAX = 4_000_000
"""Maximum characters of a statement with its views."""


def expanded(text: str, resolve: Resolve, context: Context) -> ParsedSelect:
    """The statement with a subquery for each view and union that it names; parsed.

    Raises ILLEGAL_PREWHERE, TOO_DEEP_RECURSION, and the errors of the queries of views.
    """
    return _Statement(resolve, context, {}).expanded(text) if isinstance(resolve, Names) else parse_select(text)


@dataclass(slots=True)
class _Statement:
    names: Names
    context: Context
    known: dict[str, Mapping[str, str]]
    """The columns that queries of views return."""
    depth: int = 0
    """How many views it is in, while their columns are asked for."""
    by_name: bool = False
    """Views and unions are taken for empty tables with their columns: enough to describe a query."""
    called: dict[str, VirtualTable] = field(default_factory=dict)
    """Views with arguments, by the names that stand for them."""

    def expanded(self, text: str) -> ParsedSelect:
        """See `expanded`."""
        parsed = parse_select(text)
        for level in range(LEVELS_MAX - self.depth):
            after = self.next(parsed)
            if after is None:
                return parsed
            if not level:
                check_syntax(parsed)  # what is wrong with it is told of the text as it was written
            if len(after) > TEXT_MAX:
                break
            parsed = parse_select(after)
        what = f"Views read views more than {LEVELS_MAX} levels deep, or become too large a statement"
        raise error("TOO_DEEP_RECURSION", what, "A Merge whose pattern finds a view of itself never ends")

    def next(self, parsed: ParsedSelect) -> str | None:
        """The text with the views that it names replaced; None if it names none."""
        found = [(reference, view) for reference in parsed.references if (view := self._virtual(reference)) is not None]
        edits = [edit for reference, view in found for edit in self._edits(parsed, reference, view)]
        calls = self._call_edits(parsed)
        if not edits and not calls:
            return None
        called = {(call.database, call.name) for call in parsed.calls if not call.aliased} if calls else set()
        named = {(each.database, each.name) for each, _ in found if not each.alias}
        own = self.context.database
        edits += calls + qualifier_edits(parsed, {(database or own, name) for database, name in called | named})
        return applied(parsed.text, edits)

    def _virtual(self, reference: TableReference) -> VirtualTable | None:
        if reference.explain:
            return None
        if not reference.database and reference.name in self.called:
            return self.called[reference.name]
        return self.names.virtual(reference.database, reference.name)

    def _edits(self, parsed: ParsedSelect, reference: TableReference, view: VirtualTable) -> list[Edit]:
        name = ".".join(filter(None, (reference.database, reference.name)))
        scope = parsed.scope_of[reference]
        if reference.as_of is not None:
            raise error("NOT_IMPLEMENTED", f"{name} is a {view.schema.engine}, which has no older versions", _AS_OF)
        if "PREWHERE" in scope.clauses and scope.sources[:1] == (reference,):
            raise error("ILLEGAL_PREWHERE", f"{name} is a {view.schema.engine}: it has no PREWHERE", "Write WHERE")
        if self.by_name and view.is_view and view.schema.columns:
            return _replacement(reference, as_empty(view.schema.types))
        if not view.is_view:
            return self._union_edits(parsed, reference, view)
        now = self.described(view.query)
        columns = columns_of(view, now)
        need = wanted(parsed, reference, Columns(columns), {})
        needed = tuple(columns) if reference.in_operator else need.columns
        query = with_columns(view.query, needed)
        if all(str(kind) == now.get(name) for name, kind in columns.items()):  # casts may change what conditions mean
            query = with_condition(query, need.where, frozenset(columns))
        return _replacement(reference, as_subquery(query, columns, needed, now))

    def _union_edits(self, parsed: ParsedSelect, reference: TableReference, union: VirtualTable) -> list[Edit]:
        own = reference.database or self.context.database, reference.name
        is_known = bool(union.schema.columns)
        found = [] if self.by_name and is_known else self.found(union, own)
        kept = found if reference.in_operator else self._kept(parsed, reference, found)
        members = members_of(self.names, kept if is_known else found)
        columns = Columns(union.schema.types) if is_known else union_columns(members)
        if not columns.columns:
            what = f"There are no tables that Merge({', '.join(union.schema.engine_args)}) finds, and so no columns"
            raise error("CANNOT_EXTRACT_TABLE_STRUCTURE", what, "ENGINE = Merge takes columns of its own")
        if reference.in_operator:
            shown = tuple(name for name in columns.columns if name not in columns.hidden)
            return _replacement(reference, as_union(members, columns.columns, ReadRequest(shown)))
        scope = parsed.scope_of[reference]
        seen = seen_by(columns, parsed.names(scope.first, scope.end))
        need = wanted(parsed, reference, seen, {})
        edits = _replacement(reference, as_union([m for m in members if m.where in kept], seen.columns, need))
        if hidden := sorted(seen.hidden & set(need.columns)):
            listed = ", ".join(map(back_quote, hidden))
            edits += [
                (parsed.tokens[at].end, parsed.tokens[at].end, f" EXCEPT ({listed})")
                for at in star_tokens(parsed, scope)
            ]
        return edits

    def found(self, union: VirtualTable, own: tuple[str, str]) -> list[tuple[str, str]]:
        """The names of the tables of a union, at this moment; not its own."""
        pattern = pattern_of(union.schema.engine_args, self.context.database)
        return [where for where in pattern.find(self.names.databases, self.names.tables) if where != own]

    def _kept(
        self, parsed: ParsedSelect, reference: TableReference, found: list[tuple[str, str]]
    ) -> list[tuple[str, str]]:
        """The tables that conditions on their names leave. A union among them is asked itself: its rows have others."""
        condition = wanted(parsed, reference, Columns(VIRTUAL), {}).where
        left = kept_by(found, condition)
        return [where for where in found if where in left or self._is_union(where)]

    def _is_union(self, where: tuple[str, str]) -> bool:
        virtual = self.names.virtual(*where)
        return virtual is not None and not virtual.is_view

    def _call_edits(self, parsed: ParsedSelect) -> list[Edit]:
        """Calls of parameterised views become names, which stand for the views with these arguments."""
        edits = []
        for call in parsed.calls:
            view = self.names.virtual(call.database, call.name)
            if view is not None and view.is_view:
                query = with_arguments(view, call.name, parsed, call, self.context)
                view = VirtualTable(view.id, view.schema, query)
            elif not call.database and call.name == "merge":
                arguments = [parsed.slice(*item.range) for item in parsed.items(*call.arguments)]
                pattern = pattern_of(arguments, self.context.database)
                view = VirtualTable("", TableSchema((), engine="Merge", engine_args=pattern.arguments))
            else:
                continue
            name = f"_ml_called_{len(self.called)}"
            self.called[name] = view
            alias = "" if call.aliased or not view.is_view else f" AS {back_quote(call.name)}"
            edits.append((call.start, call.end, name + alias))
        return edits

    def described(self, query: str) -> Mapping[str, str]:
        """The columns that a query returns now."""
        if query not in self.known:
            inner = _Statement(self.names, self.context, self.known, self.depth + 1, by_name=True)
            self.known[query] = dict(zip(*inner.columns(query), strict=True))
        return self.known[query]

    def columns(self, query: str) -> tuple[Sequence[str], Sequence[str]]:
        """Names and types of the columns of a query."""
        parsed = self.expanded(query)
        tables = look_up_tables(parsed, self.names, self.context, _no_explain)
        checked(parsed, self.context)
        return prepared_of(parsed, tables, self.context).columns(self.context)


def described_by_name(query: str, names: Names, context: Context) -> tuple[Sequence[str], Sequence[str]]:
    """Names and types of the columns of a query over the views and unions that there are, whatever these could read.

    Raises the errors of the query itself.
    """
    return _Statement(names, context, {}, by_name=True).columns(query)


def _replacement(reference: TableReference, text: str) -> list[Edit]:
    """Edits that put a subquery in the place of a name."""
    if not reference.in_operator and not reference.alias:
        text += f" AS {back_quote(reference.name)}"
    return [(reference.start, reference.end, text), *((*place, "") for place in reference.outside)]


_AS_OF = "Write AS OF after the tables that it reads"


def _no_explain(query: str, resolve: Resolve, context: Context, kind: str) -> list[str]:
    raise error("NOT_IMPLEMENTED", "An EXPLAIN in a view is not supported", "EXPLAIN the SELECT itself")
