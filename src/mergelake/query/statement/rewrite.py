"""Rewriting of a SELECT: tables are replaced by scans, by edits of the text.

`FROM events AS e FINAL SAMPLE 1/10 PREWHERE p WHERE w` becomes
`FROM (SELECT exact columns FROM Python(ml_0)) AS e WHERE (p) AND (w)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mergelake.core.base.errors import MergelakeError, UnsupportedError, error
from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.types import types as t
from mergelake.query.embedded.arrow_bridge import exact_expression
from mergelake.query.source import AsOf, Layers, ReadRequest, Source
from mergelake.query.statement.edits import applied, qualifier_edits
from mergelake.query.statement.needs import computed_names, matched, prewhere_alone, star_tokens, wanted
from mergelake.query.statement.parsed_select import ParsedSelect, Scope, TableReference
from mergelake.query.statement.settings import keeps_conditions
from mergelake.query.statement.settings_semantics import last_settings, statement_settings
from mergelake.scan.read.explain import applied_line
from mergelake.table.pending.select import UNCHANGED, SourceText


@dataclass(frozen=True, slots=True)
class Slot:
    """A table of the rewritten statement."""

    object_name: str
    """Name of its Arrow object: `Python(object_name)`."""
    table: tuple[str, str, AsOf | None]
    """Database (or empty), name and version, as in the statement."""
    wanted: ReadRequest
    counted: bool
    """Whether only the number of rows is needed and it is known, so that nothing is scanned."""
    columns: tuple[str, ...] = ()
    """The columns that the statement sees."""
    structure: str = ""
    """The needed columns and their types, as text."""
    scanned: str = ""
    """Subquery over its scan, with the columns in their exact types."""
    refused: MergelakeError | None = None
    """Why the table cannot be scanned, so that ClickHouse has to read it: types that Arrow cannot pass exactly, or
    `before_final`."""
    before_final: str = ""
    """The PREWHERE of a statement with FINAL, which filters rows before they replace others."""

    @property
    def place(self) -> str:
        """Placeholder of the table in the pieces of a statement."""
        return _place(self.object_name)

    @property
    def shape(self) -> str:
        """Subquery of an empty table with the same columns and types."""
        return f"(SELECT {', '.join(map(back_quote, self.columns))} FROM null({quote_string(self.structure)}))"

    def judged(self, settings: Mapping[str, str]) -> ReadRequest:
        """The request, without conditions if the settings may change their meaning."""
        if keeps_conditions(settings):
            return self.wanted
        return replace(self.wanted, where="", prewhere="", settings_matter=True)

    def attached(self, layers: Layers, where: str = "") -> str:
        """Subquery over attached tables; `where` is a condition on their rows, before mutations."""
        sample = f"SAMPLE {self.wanted.sample}" if self.wanted.sample else ""
        sample += f" OFFSET {self.wanted.sample_offset}" if self.wanted.sample_offset else ""
        view, selects = layers.view or UNCHANGED, []
        for name, without in layers.tables:
            conditions = [where] if where else []
            conditions += [f"_part NOT IN ({', '.join(map(quote_string, without))})"] if without else []
            source = SourceText(name, self.wanted.final, sample, " AND ".join(conditions), self.before_final)
            selects.append(view.select(self.columns, source))
        if layers.rest is not None:
            selects.append(self.scanned.removeprefix("(").removesuffix(")"))
        return f"({' UNION ALL '.join(selects)})"

    def explain(self, layers: Layers, why: str) -> list[str]:
        """Lines of EXPLAIN: the scan beside attached tables, with `why` it is scanned, and several attached tables."""
        name, out = ".".join(filter(None, self.table[:2])), []
        if layers.rest is not None:
            out.append(f"Scan of {name} ({why or 'parts that are not attached'})")
            out += [f"  {line}" for line in layers.rest.explain()]
        out += [f"{name}: {note}" for note in layers.notes]
        without = sum(len(gone) for _, gone in layers.tables)
        if layers.view is not None:
            out.append(applied_line(layers.view.versions))
        if without or len(layers.tables) > 1:
            out.append(f"{name} is read by {len(layers.tables)} attached tables, without {without} of their parts")
        return out


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A rewritten statement."""

    pieces: tuple[str, ...]
    """Its text, split at variable numbers: `pieces[0] + number + pieces[1] + …`."""
    gaps: tuple[int, ...]
    """For each number the slot whose row count it is, or `NOW` for the current second."""
    slots: tuple[Slot, ...]
    format: str
    """The statement's own FORMAT, or empty."""

    def text(self, numbers: Mapping[int, int], attached: Mapping[str, Layers] | None = None) -> str:
        """The statement with `numbers`: row counts of slots, and the second at `NOW`.

        `attached` are attached tables by object name.
        """
        out = [self.pieces[0]]
        for gap, piece in zip(self.gaps, self.pieces[1:], strict=True):
            out += [str(numbers[gap]), piece]
        layered, text = attached or {}, "".join(out)
        for slot in self.slots:
            layers = layered.get(slot.object_name)
            text = text.replace(slot.place, slot.scanned if layers is None else slot.attached(layers))
        return text

    def marked(self, numbers: Mapping[int, int]) -> str:
        """The statement with object names as tables, to be parsed and completed later by `filled`."""
        out = [self.pieces[0]]
        for gap, piece in zip(self.gaps, self.pieces[1:], strict=True):
            out += [str(numbers[gap]), piece]
        text = "".join(out)
        for slot in self.slots:
            text = text.replace(slot.place, back_quote(slot.place))
        return text

    def shape(self) -> str:
        """The statement over empty tables, which has the same columns and types."""
        text = "0".join(self.pieces)
        for slot in self.slots:
            text = text.replace(slot.place, slot.shape)
        return text


_CURRENT_DATABASE = ("CURRENTDATABASE", "CURRENT_DATABASE", "DATABASE", "SCHEMA")
_AFTER_COLUMN = ("", "FROM", "WHERE", "FORMAT", "SETTINGS", "LIMIT", "ORDER", "UNION", ",", ")", ";")
NOW = -1
_GAP = "\ue000rows\ue000"  # private-use characters, which no statement contains


MARK = "\ue001"


def _place(object_name: str) -> str:
    return f"{MARK}{object_name}{MARK}"


def filled(marked: str, forms: Mapping[str, str]) -> str:
    """A marked statement, or a piece of one, with `forms` (object name -> SQL) in place of the object names."""
    for object_name, form in forms.items():
        marked = marked.replace(back_quote(_place(object_name)), form)
    return marked


def rewrite(
    parsed: ParsedSelect, sources: Mapping[TableReference, Source], database: str = "default", *, counts: bool = True
) -> Rewritten:
    """Replace every reference that has a source; others stay for ClickHouse to resolve, in `database`.

    `counts`: a table of which only the number of rows is needed is not read.
    """
    edits: list[tuple[int, int, str]] = []
    slots: list[Slot] = []
    gaps: list[tuple[int, int]] = []
    settings_matter = not keeps_conditions(statement_settings(parsed))
    for reference in parsed.references:
        source = sources.get(reference)
        if source is None:
            if not reference.database and not reference.in_operator and database != "default":
                edits.append((reference.start, reference.start, back_quote(database) + "."))
            continue
        need = wanted(parsed, reference, source, sources)
        simple = not (need.final or need.sample or need.where or need.prewhere)
        count_only = counts and not need.columns and simple and not computed_names(parsed, reference, source)
        count_only = count_only and source.exact_rows() is not None
        if not need.columns:
            need = replace(need, columns=(_narrowest(source),))
        need = replace(need, settings_matter=settings_matter)
        name = f"ml_{len(slots)}"
        columns = tuple(each for each in need.columns if not (reference.in_operator and each in source.hidden))
        structure = ", ".join(f"{back_quote(column)} {source.columns[column]}" for column in need.columns)
        slot = Slot(name, reference.table, need, count_only, columns, structure, *_scanned(source, columns, name))
        if reference.final and "PREWHERE" in parsed.scope_of[reference].clauses:
            refusal = error("NOT_IMPLEMENTED", "PREWHERE with FINAL is for ClickHouse itself", "Write WHERE")
            slot = replace(slot, refused=refusal, before_final=_before_final(parsed, reference, source))
        slots.append(slot)
        if count_only:
            gaps.append((reference.start, len(slots) - 1))
        edits += _table_edits(parsed, reference, source, slot)
    named = {(each.database or database, each.name) for each in sources if not each.alias}
    moved = _moved_prewheres(parsed)
    moments = [edit for edit in _moment_edits(parsed, sources) if not _inside(edit, moved)]
    gaps += [(start, NOW) for start, _, _ in moments]
    edits += moments
    others = (
        _database_edits(parsed, database)
        + _prewhere_edits(parsed, sources)
        + qualifier_edits(parsed, named)
        + _hidden_edits(parsed, sources)
        + _nested_edits(parsed, sources)
    )
    edits += [edit for edit in others if not _inside(edit, moved)] + [(*place, "") for place in moved]
    if (last := last_settings(parsed)) is not None:  # not possible in DESCRIBE or with INTO OUTFILE
        edits.append((parsed.tokens[last[0]].start, parsed.tokens[last[1] - 1].end, ""))
    if parsed.format_at is not None:
        edits.append((*parsed.format_at, ""))
    end = len(parsed.text) if parsed.tokens[-1].kind == "end" else parsed.tokens[-1].end
    text = applied(parsed.text[:end].rstrip().rstrip(";"), edits)
    order = tuple(gap for _, gap in sorted(gaps))
    return Rewritten(tuple(text.split(_GAP)), order, tuple(slots), parsed.format)


def _scanned(source: Source, columns: Sequence[str], object_name: str) -> tuple[str, MergelakeError | None]:
    """`Slot.scanned` and `Slot.refused`."""
    try:
        return f"(SELECT {_list(source, columns)} FROM Python({object_name}))", None
    except UnsupportedError as refused:
        return "", refused


def _moved_prewheres(parsed: ParsedSelect) -> list[tuple[int, int]]:
    """Positions of PREWHERE clauses of scopes with FINAL, which are moved to the tables (`Slot.before_final`)."""
    return [
        (parsed.tokens[scope.clause_words["PREWHERE"]].start, parsed.tokens[scope.clauses["PREWHERE"][1] - 1].end)
        for scope in parsed.scopes
        if "PREWHERE" in scope.clauses and _is_moved(scope)
    ]


def _is_moved(scope: Scope) -> bool:
    return any(reference is not None and reference.final for reference in scope.sources)


def _inside(edit: tuple[int, int, str], places: Sequence[tuple[int, int]]) -> bool:
    return any(start <= edit[0] and edit[1] <= end for start, end in places)


def _before_final(parsed: ParsedSelect, reference: TableReference, source: Source) -> str:
    """`Slot.before_final`."""
    text = prewhere_alone(parsed, reference, source)
    if not text:
        what = "PREWHERE with FINAL is supported over the columns of one table, without aliases and subqueries"
        raise error("NOT_IMPLEMENTED", what, "Write WHERE, which filters after rows are replaced")
    return text


def _narrowest(source: Source) -> str:
    def width(data_type: t.DataType) -> int:
        match data_type:
            case t.Bool() | t.Enum(8):
                return 1
            case t.Int(bits) | t.Float(bits) | t.Enum(bits):
                return bits // 8
            case t.Date():
                return 2
            case t.DateTime() | t.Date32() | t.IPv4():
                return 4
            case t.DateTime64():
                return 8
            case t.LowCardinality():
                return 3
            case _:
                return 64

    return min(source.columns, key=lambda name: width(source.columns[name]))


def _table_edits(
    parsed: ParsedSelect, reference: TableReference, source: Source, slot: Slot
) -> list[tuple[int, int, str]]:
    edits: list[tuple[int, int, str]] = []
    if slot.counted:
        inner = f"(SELECT 1 FROM numbers({_GAP}))"
    else:
        inner = slot.place
        computed = computed_names(parsed, reference, source)
        if computed:
            extra = ", ".join(
                f"CAST({source.computed[n][1]} AS {source.computed[n][0]}) AS {back_quote(n)}" for n in computed
            )
            inner = f"(SELECT *, {extra} FROM {inner})"
    if not reference.in_operator and not reference.alias and not reference.explain:
        inner += f" AS {back_quote(reference.name)}"
    edits.append((reference.start, reference.end, inner))
    return [*edits, *((*place, "") for place in reference.outside)]


def _list(source: Source, columns: Sequence[str]) -> str:
    out = []
    for name in columns:
        quoted, expression = back_quote(name), exact_expression(name, source.columns[name])
        out.append(quoted if quoted == expression else f"{expression} AS {quoted}")
    return ", ".join(out)


def _prewhere_edits(parsed: ParsedSelect, sources: Mapping[TableReference, Source]) -> list[tuple[int, int, str]]:
    edits: list[tuple[int, int, str]] = []
    for scope in parsed.scopes:
        if (
            "PREWHERE" not in scope.clauses
            or _is_moved(scope)
            or not any(s is not None and s in sources for s in scope.sources)
        ):
            continue
        keyword = parsed.tokens[scope.clause_words["PREWHERE"]]
        if "WHERE" not in scope.clauses:
            edits.append((keyword.start, keyword.end, "WHERE"))
            continue
        second = parsed.tokens[scope.clause_words["WHERE"]]
        last = parsed.tokens[scope.clauses["WHERE"][1] - 1]
        edits += [
            (keyword.start, keyword.end, "WHERE ("),
            (second.start, second.end, ") AND ("),
            (last.end, last.end, ")"),
        ]
    return edits


def _moment_edits(parsed: ParsedSelect, sources: Mapping[TableReference, Source]) -> list[tuple[int, int, str]]:
    """Replace now() and today() in filters by one instant, so that scans and ClickHouse agree."""
    edits = []
    for scope in parsed.scopes:
        if not any(s is not None and s in sources for s in scope.sources):
            continue
        for clause in ("PREWHERE", "WHERE"):
            first, end = scope.clause(clause)
            for at in parsed.own(scope, first, end - 2):
                word = parsed.tokens[at].text.lower()
                is_call = (
                    word in ("now", "today") and parsed.tokens[at + 1].text == "(" and parsed.tokens[at + 2].text == ")"
                )
                if is_call:
                    new = f"toDateTime({_GAP})" if word == "now" else f"toDate(toDateTime({_GAP}))"
                    edits.append((parsed.tokens[at].start, parsed.tokens[at + 2].end, new))
    return edits


def _database_edits(parsed: ParsedSelect, database: str) -> list[tuple[int, int, str]]:
    """Replace `currentDatabase()` by the current database: that of the embedded ClickHouse is always `default`."""
    edits: list[tuple[int, int, str]] = []
    for at in range(len(parsed.tokens) - 3 if database != "default" else 0):
        word = parsed.tokens[at]
        call = (
            word.kind == "word" and parsed.tokens[at + 1].text == "(" and (at == 0 or parsed.tokens[at - 1].text != ".")
        )
        if not call or word.upper not in (*_CURRENT_DATABASE, "CURRENTSCHEMAS", "CURRENT_SCHEMAS"):
            continue
        literal = quote_string(database)
        if word.upper in _CURRENT_DATABASE and parsed.tokens[at + 2].text == ")":
            # An alias keeps the column's name if the call is the whole expression.
            alone = parsed.tokens[at - 1].upper in ("SELECT", ",") and parsed.tokens[at + 3].upper in _AFTER_COLUMN
            name = f" AS {back_quote(word.text + '()')}" if alone and parsed.tokens[at + 3].text != "." else ""
            edits.append((word.start, parsed.tokens[at + 2].end, literal + name))
        elif parsed.tokens[at + 3].text == ")":
            edits.append((word.start, parsed.tokens[at + 3].end, f"[{literal}]"))
    return edits


def _hidden_edits(parsed: ParsedSelect, sources: Mapping[TableReference, Source]) -> list[tuple[int, int, str]]:
    """Exclude MATERIALIZED and ALIAS columns that the scan reads from stars."""
    edits = []
    for scope in parsed.scopes:
        hidden: set[str] = set()
        for found in scope.sources:
            if found is not None and found in sources:
                named = parsed.names(scope.first, scope.end)
                if "COLUMNS" in parsed.words(scope.first, scope.end):
                    named |= matched(sources[found])
                hidden |= sources[found].hidden & named
        stars = star_tokens(parsed, scope) if hidden else []
        if stars and (joined := hidden & _joined_by(parsed, scope)):
            raise error(
                "NOT_IMPLEMENTED",
                f"A star beside USING ({min(joined)}) is not supported: it is a MATERIALIZED or ALIAS column",
                "Name the columns, or join ON",
            )
        for at in stars:
            names = ", ".join(back_quote(name) for name in sorted(hidden))
            edits.append((parsed.tokens[at].end, parsed.tokens[at].end, f" EXCEPT ({names})"))
    return edits


def _joined_by(parsed: ParsedSelect, scope: Scope) -> set[str]:
    """The names after USING."""
    out: set[str] = set()
    for start in parsed.own(scope, scope.first, scope.end):
        if parsed.tokens[start].upper == "USING":
            at = start + 1 + (parsed.tokens[start + 1].text == "(")
            while parsed.tokens[at].is_name:
                out.add(parsed.tokens[at].name)
                at += 1 + (parsed.tokens[at + 1].text == ",")
    return out


def _nested_edits(parsed: ParsedSelect, sources: Mapping[TableReference, Source]) -> list[tuple[int, int, str]]:
    """Replace `ARRAY JOIN n` by the columns `n.a`, `n.b` of the Nested if the scope has a star."""
    edits = []
    for scope in parsed.scopes:
        if not scope.array_join or not star_tokens(parsed, scope):
            continue
        known = [sources[reference] for reference in scope.sources if reference is not None and reference in sources]
        for begin, stop in scope.array_join:
            for at in range(begin, stop):
                token, alone = parsed.tokens[at], at == begin or parsed.tokens[at - 1].text == ","
                if alone and (at + 1 == stop or parsed.tokens[at + 1].text == ","):
                    columns = next(filter(None, (_of_group(source, token.name) for source in known)), [])
                    if columns:
                        edits.append((token.start, token.end, ", ".join(map(back_quote, columns))))
    return edits


def _of_group(source: Source, name: str) -> list[str]:
    """The columns of the Nested `name`."""
    kind = source.computed[name][0] if name in source.computed else None
    if not isinstance(kind, t.Array) or not isinstance(kind.inner, t.Tuple):
        return []
    columns = [f"{name}.{each}" for each in kind.inner.names]
    return columns if set(columns) <= set(source.columns) else []
