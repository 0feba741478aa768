"""One SELECT as a partial statement for each task and a final one for the caller.

*Rows* (no aggregates): a task keeps the columns that are needed, filters, and with ORDER BY … LIMIT keeps the
first rows of its own; the final statement is the original over what is left.

*Groups*: a task computes `SELECT key AS ml_k0, fState(x) AS ml_a0 … GROUP BY key`; the final statement is the
original with every aggregate call replaced by `fMerge(ml_a0)` and every key by `ml_k0`.

States and rows travel as ClickHouse's Native format, which keeps types exactly. What does not fit is not
split, and the sentence that says why is shown by EXPLAIN.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mergelake.core.text import back_quote, quote_string
from mergelake.query import engine
from mergelake.query.aggregates import AggregateCall, find_calls
from mergelake.query.needs import scope_aliases
from mergelake.query.outline import Outline, Scope, names_in, outline
from mergelake.query.tokens import Token

if TYPE_CHECKING:
    from mergelake.query.prepare import Prepared
    from mergelake.query.source import Layers

_NO_TOP = frozenset(("DISTINCT", "TIES", "FILL", "OVER", "ARRAYJOIN", "HAVING"))
"""With these the first rows of each part are not enough for the first rows of all."""
_FILES = "\ue000files\ue000"


@dataclass(frozen=True, slots=True)
class Split:
    """Both halves."""

    partial: str
    """Reads `Python(ml_0)`, gives Native."""
    final: str
    """Reads the partial answers where `source` goes."""

    def final_text(self, source: str) -> str:
        """The final statement over a table function that reads the partial answers."""
        return self.final.replace(_FILES, source)


@dataclass(frozen=True, slots=True)
class PartialTask:
    """What a task runs: picklable, harmless to repeat."""

    read: Callable[[Any], Iterator[pa.RecordBatch]]
    schema: pa.Schema
    sql: str
    settings: Mapping[str, str]

    def __call__(self, item: Any) -> tuple[bytes, int, int]:
        """(Native bytes, rows scanned, their bytes) of one item."""
        seen = [0, 0]

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in self.read(item):
                seen[0] += batch.num_rows
                seen[1] += batch.nbytes
                yield batch

        reader = pa.RecordBatchReader.from_batches(self.schema, counted())
        answer = engine.run(self.sql, {"ml_0": reader}, output="Native", settings=self.settings)
        return answer.data.to_pybytes(), seen[0], seen[1]


def split(prepared: Prepared, now_ms: int, attached: Mapping[str, Layers] | None = None) -> tuple[Split | None, str]:
    """How the statement is split, or None, and why; `attached` as in `Rewritten.text`."""
    plan = prepared.plan
    slots = prepared.rewritten.slots
    if len(plan.scopes) != 1:
        return None, "subqueries and set operations are not split"
    if len(slots) != 1 or len(plan.occurrences) != 1 or len(plan.scopes[0].sources) != 1:
        return None, "only a SELECT from one table is split"
    if slots[0].counted:
        return None, "answered from the parts' row counts"
    if slots[0].wanted.final:
        return None, "FINAL compares rows of all parts"
    found = outline(prepared.text(now_ms, attached))
    scope = found.scopes[0]
    refused = next((word for word in ("WITH", "WINDOW", "QUALIFY") if word in scope.clauses), None)
    if refused or scope.array_join:
        return None, f"{refused or 'ARRAY JOIN'} is not split"
    first, end = scope.clauses.get("SELECT", (0, 0))
    having = scope.clauses.get("HAVING", (0, 0))
    order = scope.clauses.get("ORDER", (0, 0))
    calls: list[AggregateCall] = []
    for begin, stop in ((first, end), having, order):
        inside = find_calls(found.text, found.tokens, begin, stop)
        if isinstance(inside, str):
            return None, inside
        calls += inside
    if calls or "GROUP" in scope.clauses:
        return _groups(found, scope, calls)
    return _rows(found, scope, slots[0].wanted.columns)


def _rows(plan: Outline, scope: Scope, columns: tuple[str, ...]) -> tuple[Split | None, str]:
    source = plan.slice(*scope.clauses["FROM"])
    aliases = scope_aliases(plan, scope, select_only=True)
    words = {token.upper for token in plan.tokens[scope.first : scope.end] if token.kind == "word"}
    kept = ", ".join(back_quote(name) for name in columns)
    partial = f"SELECT {kept} FROM {source}"
    why = "filter and projection in each task"
    where = scope.clauses.get("WHERE")
    if where is not None:
        if aliases & set(names_in(plan.tokens[where[0] : where[1]])):
            return None, "WHERE uses an alias"
        if set(columns) & _named_inside(plan, where):
            return None, "WHERE gives a column's name to something else"
        partial += f" WHERE {plan.slice(*where)}"
    limit = _limit(plan, scope)
    plain = not words & _NO_TOP and limit is not None and _limits(plan, scope) == 1
    order = scope.clauses.get("ORDER")
    if plain and (order is None or not (_by_place(plan, order) or aliases & set(names_in(plan.tokens[slice(*order)])))):
        if order is not None:
            partial += f" ORDER BY {plan.slice(*order)}"
            why = "filter and top rows in each task"
        partial += f" LIMIT {limit}"
    start, stop = _from_range(plan, scope)
    partial += _settings(plan, scope)
    # The final statement filters again: it costs little and changes nothing.
    return Split(partial, plan.text[:start] + _FILES + _source_alias(plan, scope) + plan.text[stop:]), why


def _from_range(plan: Outline, scope: Scope) -> tuple[int, int]:
    first, end = scope.clauses["FROM"]
    return plan.tokens[first].start, plan.tokens[end - 1].end


def _source_alias(plan: Outline, scope: Scope) -> str:
    """` AS name` of the rewritten table."""
    first, end = scope.clauses["FROM"]
    if end - first >= 2 and plan.tokens[end - 1].is_name:
        return f" AS {plan.tokens[end - 1].text}"
    return ""


def _limits(plan: Outline, scope: Scope) -> int:
    """How many LIMIT clauses there are (LIMIT 1 BY x LIMIT 10 has two)."""
    return sum(
        token.upper == "LIMIT" and not any(s is not scope and s.first <= i < s.end for s in plan.scopes)
        for i, token in enumerate(plan.tokens[: scope.end])
    )


def _limit(plan: Outline, scope: Scope) -> int | None:
    """Rows that LIMIT and OFFSET together can reach; None where they are no plain numbers."""
    first, end = scope.clauses.get("LIMIT", (0, 0))
    tokens = plan.tokens[first:end]
    offset = plan.tokens[slice(*scope.clauses["OFFSET"])] if "OFFSET" in scope.clauses else []
    numbers = [token for token in (*tokens, *offset) if token.text not in (",", "OFFSET") and token.upper != "OFFSET"]
    if not tokens or not all(token.kind == "number" and token.text.isdigit() for token in numbers):
        return None
    return sum(int(token.text) for token in numbers)


def _settings(plan: Outline, scope: Scope) -> str:
    """The statement's SETTINGS: they may change what its conditions mean, so the tasks have them as well."""
    return f" SETTINGS {plan.slice(*scope.clauses['SETTINGS'])}" if "SETTINGS" in scope.clauses else ""


def _named_inside(plan: Outline, clause: tuple[int, int]) -> set[str]:
    """Names that a clause gives with AS (the type in a CAST counts too: a split less, never a wrong row)."""
    tokens = plan.tokens[slice(*clause)]
    return {b.name for a, b in pairwise(tokens) if a.upper == "AS" and b.is_name}


def _by_place(plan: Outline, order: tuple[int, int]) -> bool:
    """Whether ORDER BY counts the columns of the SELECT list, which a task does not have: by number, ALL or `*`."""
    starts = [plan.tokens[first] for first, _, _ in _items(plan, *order)]
    if any(token.kind == "number" or token.upper == "ALL" for token in starts):
        return True
    return any(token.text == "*" for token in plan.tokens[slice(*order)])


def _groups(plan: Outline, scope: Scope, calls: list[AggregateCall]) -> tuple[Split | None, str]:
    words = {token.upper for token in plan.tokens[scope.first : scope.end] if token.kind == "word"}
    for word in ("ROLLUP", "CUBE", "TOTALS", "GROUPING", "DISTINCT"):
        if word in words and not (word == "DISTINCT" and not _select_distinct(plan, scope)):
            return None, f"{word} is not split"
    limit = plan.tokens[slice(*scope.clauses.get("LIMIT", (0, 0)))]
    if _limits(plan, scope) > 1 or any(token.upper == "BY" for token in limit):
        return None, "LIMIT BY is not split"
    items = _items(plan, *scope.clauses["SELECT"])
    aliases = {name: (first, end) for first, end, name in items if name}
    keys: list[tuple[int, int]] = []
    for first, end, _ in _items(plan, *scope.clauses.get("GROUP", (0, 0))):
        key = _resolved(plan, first, end, items, aliases)
        if key is None:
            return None, "GROUP BY refers to something that is not split"
        if any(token.kind == "word" or token.kind == "quoted" for token in plan.tokens[key[0] : key[1]]):
            keys.append(key)
    if not keys and "GROUP" in scope.clauses:
        return None, "GROUP BY has only constants"
    where = scope.clauses.get("WHERE")
    inner = [*keys, *((call.first, call.end) for call in calls), *([where] if where else [])]
    used = {name for first, end in inner for name in names_in(plan.tokens[first:end])}
    shadowing = {
        name for name, (first, end) in aliases.items() if not (end - first == 1 and plan.tokens[first].name == name)
    }
    if where:
        shadowing |= _named_inside(plan, where)
    if used & shadowing:
        return None, f"{min(used & shadowing)} is an alias inside a key, an aggregate or WHERE"
    states: dict[tuple[str, str, str], str] = {}
    for call in calls:
        states.setdefault((call.name, call.parameters, call.arguments), f"ml_a{len(states)}")
    by_call = {(c.first, c.end): c.merged(states[c.name, c.parameters, c.arguments]) for c in calls}
    partial_list = [f"{plan.slice(*key)} AS ml_k{i}" for i, key in enumerate(keys)]
    partial_list += [
        f"{next(c for c in calls if (c.name, c.parameters, c.arguments) == k).state} AS {n}" for k, n in states.items()
    ]
    partial = f"SELECT {', '.join(partial_list)} FROM {plan.slice(*scope.clauses['FROM'])}"
    if where:
        partial += f" WHERE {plan.slice(*where)}"
    if keys:
        partial += " GROUP BY " + ", ".join(f"ml_k{i}" for i in range(len(keys)))
    partial += _settings(plan, scope)
    final = _final(plan, scope, keys, by_call, set(aliases))
    if final is None:
        return None, "a column stands outside of keys and aggregates"
    return Split(partial, final), "partial aggregates in each task, merged here"


def _select_distinct(plan: Outline, scope: Scope) -> bool:
    return plan.tokens[scope.clauses["SELECT"][0]].upper == "DISTINCT"


def _items(plan: Outline, first: int, end: int) -> list[tuple[int, int, str]]:
    """(first, end, alias) of each expression between the commas of a list."""
    out: list[tuple[int, int, str]] = []
    depth, begin = 0, first
    for at in range(first, end + 1):
        token = plan.tokens[at] if at < end else None
        if token is not None and token.kind == "sign":
            depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if token is None or (depth == 0 and token.text == ","):
            if at > begin:
                named = at - begin >= 3 and plan.tokens[at - 2].upper == "AS" and plan.tokens[at - 1].is_name
                out.append((begin, at - 2, plan.tokens[at - 1].name) if named else (begin, at, ""))
            begin = at + 1
    return out


def _resolved(
    plan: Outline, first: int, end: int, items: list[tuple[int, int, str]], aliases: Mapping[str, tuple[int, int]]
) -> tuple[int, int] | None:
    """The expression that a GROUP BY item stands for: an alias's, a position's, or itself."""
    token = plan.tokens[first]
    if end - first == 1 and token.is_name:
        if token.upper == "ALL":
            return None
        return aliases.get(token.name, (first, end))
    if end - first == 1 and token.kind == "number":
        place = int(token.text) - 1 if token.text.isdigit() else -1
        return items[place][:2] if 0 <= place < len(items) else None
    return first, end


def _final(
    plan: Outline, scope: Scope, keys: list[tuple[int, int]], by_call: Mapping[tuple[int, int], str], aliases: set[str]
) -> str | None:
    shapes = [tuple(_shape(token) for token in plan.tokens[first:end]) for first, end in keys]
    out = []
    for clause in ("SELECT", "FROM", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "SETTINGS"):
        if clause not in scope.clauses:
            continue
        if clause == "FROM":
            out.append(f"FROM {_FILES}")
        elif clause == "GROUP":
            out.append("GROUP BY " + ", ".join(f"ml_k{i}" for i in range(len(keys))))
        elif clause in ("LIMIT", "OFFSET", "SETTINGS"):
            out.append(f"{clause} {plan.slice(*scope.clauses[clause])}")
        else:
            text = _replaced(plan, *scope.clauses[clause], shapes, by_call, aliases)
            if text is None:
                return None
            out.append(("ORDER BY " if clause == "ORDER" else clause + " ") + text)
    return " ".join(out)


_WORDS = frozenset(
    [
        "AS",
        "AND",
        "OR",
        "NOT",
        "IN",
        "LIKE",
        "ILIKE",
        "BETWEEN",
        "IS",
        "NULL",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "ASC",
        "DESC",
        "NULLS",
        "FIRST",
        "LAST",
        "TRUE",
        "FALSE",
        "INTERVAL",
        "DIV",
        "MOD",
        "SECOND",
        "MINUTE",
        "HOUR",
        "DAY",
        "WEEK",
        "MONTH",
        "QUARTER",
        "YEAR",
        "COLLATE",
        "CAST",
    ]
)


def _replaced(
    plan: Outline,
    first: int,
    end: int,
    shapes: list[tuple[tuple[str, str], ...]],
    by_call: Mapping[tuple[int, int], str],
    aliases: set[str],
) -> str | None:
    """The clause with calls and keys replaced; None if a column of the table is left."""
    calls = {begin: (stop, text) for (begin, stop), text in by_call.items()}
    pieces: list[str] = []
    at = first
    while at < end:
        gap = " " if pieces and plan.tokens[at].start > plan.tokens[at - 1].end else ""
        if at in calls:
            stop, text = calls[at]
            pieces.append(gap + text)
            at = stop
            continue
        key = _key_at(plan, at, end, shapes)
        if key is not None:
            pieces.append(f"{gap}ml_k{key}")
            at += len(shapes[key])
            continue
        token = plan.tokens[at]
        free = token.is_name and plan.tokens[at + 1].text != "(" and token.upper not in _WORDS
        if free and token.name not in aliases:
            return None
        pieces.append(gap + token.text)
        at += 1
    return "".join(pieces)


def _key_at(plan: Outline, at: int, end: int, shapes: list[tuple[tuple[str, str], ...]]) -> int | None:
    if plan.tokens[at - 1].upper == "AS":
        return None  # an alias's own name
    best, length = None, 0
    for index, shape in enumerate(shapes):
        fits = length < len(shape) <= end - at
        if fits and tuple(_shape(token) for token in plan.tokens[at : at + len(shape)]) == shape:
            best, length = index, len(shape)
    return best


def _shape(token: Token) -> tuple[str, str]:
    return ("name", token.name) if token.is_name else (token.kind, token.text)


def gather(found: Split, answers: list[bytes], columns: Mapping[str, str], run: Callable[[str], Any]) -> Any:
    """Give the partial answers to the final statement: as files that ClickHouse reads, gone afterwards.

    `columns` are names and types of the partial answers: Native itself forgets the zone of a DateTime.
    """
    structure = quote_string(", ".join(f"{back_quote(name)} {kind}" for name, kind in columns.items()))
    with tempfile.TemporaryDirectory(prefix="mergelake-select-") as directory:
        for index, answer in enumerate(answers):
            (Path(directory) / f"{index:06d}.native").write_bytes(answer)
        return run(found.final_text(f"file({quote_string(directory + '/*.native')}, Native, {structure})"))
