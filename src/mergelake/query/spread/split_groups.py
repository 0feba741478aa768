"""Splitting a SELECT with aggregates: tasks compute states, which the final statement merges.

A task computes `SELECT key AS ml_k0, fState(x) AS ml_a0 … GROUP BY ml_k0`; the final statement is the original with
every aggregate call replaced by `fMerge(ml_a0)` and every key by `ml_k0`. So everything that is computed from groups
(HAVING, totals, subtotals, windows over groups, DISTINCT, limits) is computed there, from whole groups.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mergelake.core.base.text import back_quote
from mergelake.query.spread.aggregates import AggregateCall
from mergelake.query.spread.cutting import ScopeText, shape
from mergelake.query.spread.halves import FILES, Halves, NotSplitError
from mergelake.query.statement.access import words
from mergelake.query.statement.parsed_select import Item, Range, names_in

_WORDS = words(
    "ALL AND AS ASC ASCENDING BETWEEN BY CASE CAST COLLATE CURRENT DAY DESC DESCENDING DISTINCT DIV ELSE END FALSE",
    "FILL FIRST FOLLOWING FROM GROUPS HOUR ILIKE IN INTERVAL IS LAST LIKE MINUTE MOD MONTH NOT NULL NULLS OR ORDER",
    "OVER PARTITION PRECEDING QUARTER RANGE ROW ROWS SECOND STEP THEN TIES TO TRUE UNBOUNDED WEEK WHEN WITH YEAR",
)
"""Words in expressions that are not columns. A column of such a name causes an error during planning."""
_AFTER_GROUPS = ("TOTALS", "ROLLUP", "CUBE")


@dataclass(frozen=True, slots=True)
class _Keys:
    """The parsed GROUP BY."""

    keys: tuple[Range, ...]
    grouping: str
    """The clause of the final statement, over `ml_k0, …`."""


def split_groups(
    scope: ScopeText, calls: Sequence[AggregateCall], names: Sequence[str], columns: Collection[str]
) -> Halves:
    """Split a scope; `names` are those of the statement's columns, `columns` those of its tables."""
    limits = scope.limits
    if limits is None:
        raise NotSplitError("LIMIT is not of plain numbers")
    if any(
        scope.tokens[at].text == "*" and scope.tokens[at - 1].upper in ("SELECT", ",", "DISTINCT")
        for at in scope.own(*scope.select)
    ):
        raise NotSplitError("* stands beside aggregates")
    keys = _keys(scope, calls)
    helpers = aliases_inside(scope, keys.keys, calls, columns)
    states: dict[tuple[str, str, str], str] = {}
    for call in calls:
        states.setdefault(call.what, f"ml_a{len(states)}")
    texts = {(call.first, call.end): call.merged(states[call.what]) for call in calls}
    by_what = {call.what: call for call in calls}
    outputs = [f"{scope.text(*key)} AS ml_k{i}" for i, key in enumerate(keys.keys)]
    outputs += [f"{by_what[what].state} AS {name}" for what, name in states.items()]
    own_with = [scope.text(*scope.range("WITH"))] if scope.has("WITH") else []
    before = ", ".join([*own_with, *helpers])
    partial = f"WITH {before} " if before else ""
    partial += f"SELECT {', '.join(outputs)}{scope.clause('FROM')}{scope.clause('WHERE')}"
    if keys.keys:
        partial += " GROUP BY " + ", ".join(f"ml_k{i}" for i in range(len(keys.keys)))
    final = _Final(scope, keys.keys, texts).statement(keys.grouping, names)
    settings = scope.clause("SETTINGS")
    return Halves(partial + settings, final + settings, "partial aggregates in each task, merged here")


def _keys(scope: ScopeText, calls: Sequence[AggregateCall]) -> _Keys:
    first, end = scope.range("GROUP")
    if end == first:
        return _Keys((), "")
    suffix = ""
    while end - first > 2 and scope.tokens[end - 2].upper == "WITH" and scope.tokens[end - 1].upper in _AFTER_GROUPS:
        suffix = f" WITH {scope.tokens[end - 1].upper}{suffix}"
        end -= 2
    word = scope.tokens[first].upper
    if word == "GROUPING" and scope.tokens[first + 1].upper == "SETS":
        sets, begin = True, first + 2
    else:
        sets, begin = False, first + 1
    special = sets or (word in ("ROLLUP", "CUBE") and scope.tokens[begin].text == "(")
    if special and (scope.tokens[begin].text != "(" or scope.closing(begin) != end - 1):
        raise NotSplitError("GROUP BY has more than one list")
    keys: list[Range] = []
    shapes: dict[tuple[tuple[str, str], ...], str] = {}

    def listed(begin: int, stop: int) -> str:
        listed_keys = []
        for item in scope.items(begin, stop):
            key = _resolved(scope, item)
            if not any(scope.tokens[at].is_name for at in range(*key)):
                if special or suffix:
                    raise NotSplitError("GROUP BY has a constant")
                continue
            if any(key[0] <= call.first < key[1] for call in calls):
                raise NotSplitError("GROUP BY has an aggregate")
            known = shape(scope.tokens[key[0] : key[1]])
            if known not in shapes:
                shapes[known] = f"ml_k{len(keys)}"
                keys.append(key)
            listed_keys.append(shapes[known])
        return ", ".join(listed_keys)

    if sets:
        inner = []
        for item in scope.items(begin + 1, end - 1):
            bracketed = scope.tokens[item.first].text == "(" and scope.closing(item.first) == item.end - 1
            inner.append(f"({listed(item.first + 1, item.end - 1) if bracketed else listed(item.first, item.end)})")
        grouping = f"GROUPING SETS ({', '.join(inner)})"
    elif special:
        grouping = f"{word}({listed(begin + 1, end - 1)})"
    elif end - first == 1 and word == "ALL":
        grouping = ", ".join(
            listed(*column.range)
            for column in scope.columns
            if not any(column.first <= call.first < column.end for call in calls)
        )
    else:
        grouping = listed(first, end)
    if not keys:
        raise NotSplitError("GROUP BY has only constants")
    return _Keys(tuple(keys), grouping + suffix)


def _resolved(scope: ScopeText, item: Item) -> Range:
    """The expression of an item of GROUP BY, which may be an alias or a position in the SELECT list."""
    token = scope.tokens[item.first]
    if item.end - item.first > 1:
        return item.range
    if token.upper == "ALL" or token.text == "*":
        raise NotSplitError("GROUP BY refers to something that is not split")
    if token.is_name:
        return next((column.range for column in scope.columns if column.alias == token.name), item.range)
    if token.kind == "number":
        place = int(token.text) - 1 if token.text.isdigit() else -1
        if not 0 <= place < len(scope.columns):
            raise NotSplitError("GROUP BY refers to something that is not split")
        return scope.columns[place].range
    return item.range


def aliases_inside(
    scope: ScopeText, keys: Sequence[Range], calls: Sequence[AggregateCall], columns: Collection[str]
) -> list[str]:
    """Aliases of the SELECT list that keys, aggregates or WHERE use, as items of a WITH."""
    inside = [*keys, *((call.first, call.end) for call in calls), scope.range("WHERE")]
    used = {name for first, end in inside for name in names_in(scope.tokens[first:end])}
    defined = {
        b.name for first, end in inside for a, b in pairwise(scope.tokens[first:end]) if a.upper == "AS" and b.is_name
    }  # includes types in CASTs: at worst the statement is not split
    by_name = {column.alias: column for column in scope.columns if column.alias and not _is_itself(scope, column)}
    helpers: dict[str, str] = {}
    todo = [name for name in by_name if name in used]
    while todo:
        name = todo.pop()
        column = by_name[name]
        if name in columns or any(column.first <= call.first < column.end for call in calls):
            raise NotSplitError(f"{name} is an alias inside a key, an aggregate or WHERE")
        helpers[name] = f"({scope.text(*column.range)}) AS {back_quote(name)}"
        inner = set(names_in(scope.tokens[column.first : column.end])) & by_name.keys()
        todo += sorted(inner - helpers.keys())
    if defined & (used & (set(by_name) | set(columns))):
        raise NotSplitError(f"{min(defined & used)} is an alias inside a key, an aggregate or WHERE")
    return list(reversed(helpers.values()))


def _is_itself(scope: ScopeText, column: Item) -> bool:
    return column.end - column.first == 1 and scope.tokens[column.first].name == column.alias


class _Final:
    """Builds the final statement: the original with calls and keys replaced."""

    def __init__(self, scope: ScopeText, keys: Sequence[Range], texts: Mapping[Range, str]) -> None:
        self._scope, self._tokens = scope, scope.tokens
        self._shapes = [shape(scope.tokens[first:end]) for first, end in keys]
        self._calls = {first: (end, text) for (first, end), text in texts.items()}
        self._inner = dict(scope.inner)
        self._known = {column.alias for column in scope.columns if column.alias}

    def statement(self, grouping: str, names: Sequence[str]) -> str:
        """The final statement without SETTINGS."""
        scope = self._scope
        before = self._constants()
        columns = []
        for column, name in zip(scope.columns, names, strict=True):
            columns.append(f"{self.replaced(*column.range)} AS {back_quote(column.alias or name)}")
        distinct = "DISTINCT " if scope.distinct else ""
        out = [f"{before}SELECT {distinct}{', '.join(columns)} FROM {FILES}"]
        if grouping:
            out.append(f"GROUP BY {grouping}")
        out += [
            ("ORDER BY" if word == "ORDER" else word) + " " + self.replaced(*scope.range(word))
            for word in ("HAVING", "WINDOW", "QUALIFY", "ORDER")
            if scope.has(word)
        ]
        limits = "".join(limit.text(self.replaced(*limit.by) if limit.by else "") for limit in scope.limits or ())
        return " ".join(out) + limits

    def _constants(self) -> str:
        """The items of WITH that use no column."""
        kept = []
        for item in self._scope.items(*self._scope.range("WITH")):
            try:
                kept.append(f"{self.replaced(*item.range)} AS {back_quote(item.alias)}")
            except NotSplitError:
                continue
            self._known.add(item.alias)
        return f"WITH {', '.join(kept)} " if kept else ""

    def replaced(self, first: int, end: int) -> str:
        """Text of tokens [first, end) with replacements. Raises NotSplitError if a column of a table remains."""
        pieces: list[str] = []
        parameters = {self._tokens[at - 1].name for at in range(first + 1, end) if self._tokens[at].text == "->"}
        at = first
        while at < end:
            token = self._tokens[at]
            gap = " " if pieces and token.start > self._tokens[at - 1].end else ""
            if at in self._inner:
                pieces.append(gap + self._scope.text(at, self._inner[at]))
                at = self._inner[at]
                continue
            if at in self._calls:
                stop, text = self._calls[at]
                pieces.append(gap + text)
                at = stop
                continue
            key = self._key_at(at, end)
            if key is not None:
                pieces.append(f"{gap}ml_k{key}")
                at += len(self._shapes[key])
                continue
            if token.is_name and self._is_free(at) and token.name not in parameters:
                raise NotSplitError("a column stands outside of keys and aggregates")
            pieces.append(gap + token.text)
            at += 1
        return "".join(pieces)

    def _is_free(self, at: int) -> bool:
        """Whether the name at `at` may be a column."""
        token, before = self._tokens[at], self._tokens[at - 1]
        if self._tokens[at + 1].text == "(" or token.upper in _WORDS or token.name in self._known:
            return False
        return before.text != "::" and not token.name.startswith("\ue001")

    def _key_at(self, at: int, end: int) -> int | None:
        if self._tokens[at - 1].upper == "AS":
            return None  # the name after AS
        best, length = None, 0
        for index, each in enumerate(self._shapes):
            fits = length < len(each) <= end - at
            if fits and shape(self._tokens[at : at + len(each)]) == each:
                best, length = index, len(each)
        return best
