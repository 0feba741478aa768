"""Splitting one SELECT into a partial statement for each task and a final one.

One table is *spread*: each task has a share of its rows, and all rows of the other tables. *Rows* (`split_rows`): a
task filters, computes the SELECT list, and with a LIMIT returns its first rows. *Groups* (`split_groups`): a task
computes states of aggregates, which the final statement merges.

States and rows are sent in ClickHouse's Native format, which preserves types. A statement that does not qualify is not
split, and EXPLAIN shows the reason. Other subqueries have been computed before (`steps`), so the remaining ones are the
same for every task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mergelake.core.base.lexer import tokenize
from mergelake.query.spread import distributing
from mergelake.query.spread.aggregates import AggregateCall, find_calls
from mergelake.query.spread.cutting import ScopeText
from mergelake.query.spread.halves import Halves, NotSplitError
from mergelake.query.spread.shuffling import BUCKET, Shuffle, is_windowed, shuffled
from mergelake.query.spread.split_groups import split_groups
from mergelake.query.spread.split_rows import split_rows
from mergelake.query.statement.access import words
from mergelake.query.statement.parsed_select import ParsedSelect, Scope, TableReference
from mergelake.query.statement.rewrite import MARK
from mergelake.query.statement.select_parser import parse_select

_ONE_VALUE = words(
    "connectionid current_date current_timestamp fqdn getosversion hostname initialqueryid localtimestamp now now64",
    "queryid query_id randconstant serveruuid today uptime utc_timestamp utctimestamp version yesterday",
)
"""Functions with one value per statement. `now()` and `today()` in conditions have been replaced before."""


@dataclass(frozen=True, slots=True)
class Split:
    """A split statement."""

    halves: Halves
    """The halves, over marked tables (`Rewritten.marked`)."""
    spread: str
    """Object name of the spread table."""
    shuffle: Shuffle | None = None
    """A first stage that shuffles rows, so that the partial statement reads whole partitions of windows."""


def split(marked: str, rows: Mapping[str, int], names: Sequence[str], columns: Collection[str]) -> Split:
    """Split a marked statement. Raises NotSplitError.

    `rows` are the numbers of rows to read, by object name, of the tables that may be spread; `names` are those of the
    statement's columns, `columns` those of its tables.
    """
    parsed = parse_select(marked)
    scope = next((scope for scope in parsed.scopes if scope.parent is None), None)
    if scope is None or scope.in_set_operation:
        raise NotSplitError("it is no single SELECT")
    text = ScopeText(parsed, scope)
    if "FROM" not in scope.clauses or "INTO" in text.words or text.picks:
        raise NotSplitError("it reads no table, writes a file, or has a limit that is no LIMIT")
    by_id = {o: rows[name] for o in parsed.references if (name := o.name.strip(MARK)) in rows and not o.in_operator}
    reference = distributing.table_to_spread(parsed, scope, by_id)
    if reference is None:
        raise NotSplitError("no table stands in FROM by itself")
    calls = _calls(text)
    spread, shuffle = reference.name.strip(MARK), None
    windowed = [each for each in distributing.path_to(parsed, scope, reference) if is_windowed(parsed, each)]
    if calls and windowed[:1] == [scope]:
        del windowed[0]  # its windows are over groups
    if windowed:
        shuffle = _shuffle(parsed, windowed, reference, columns)
        parsed = parse_select(shuffle.rest)
        scope = next(scope for scope in parsed.scopes if scope.parent is None)
        text = ScopeText(parsed, scope)
        reference = next(each for each in parsed.references if each.name.strip(MARK) == BUCKET)
        calls = _calls(text)
    why = distributing.why_not(parsed, scope, reference)
    if why:
        raise NotSplitError(why)
    if calls or text.has("GROUP"):
        halves = split_groups(text, calls, names, columns)
    elif "OVER" in text.words and reference.name.strip(MARK) != BUCKET:
        raise NotSplitError("a window has another PARTITION BY than the others, or none, or is over a join")
    else:
        halves = split_rows(text, names)
    for each in (halves.partial, *([shuffle.first] if shuffle is not None else [])):
        _check_constants(each)
    return Split(halves, spread, shuffle)


def _check_constants(partial: str) -> None:
    """Raise NotSplitError for a function with one value per statement, which would differ between tasks."""
    for token, after in pairwise(tokenize(partial)):
        word = token.text.lower()
        if token.kind == "word" and word in _ONE_VALUE and (after.text == "(" or "_" in word):
            raise NotSplitError(f"{token.text} would be another one in each task")


def _shuffle(
    parsed: ParsedSelect, windowed: Sequence[Scope], spread: TableReference, columns: Collection[str]
) -> Shuffle:
    if len(windowed) > 1:
        raise NotSplitError("windows are computed from windows")
    why = distributing.why_not(parsed, windowed[0], spread)
    if why:
        raise NotSplitError(why)
    return shuffled(parsed, windowed[0], columns)


def _calls(scope: ScopeText) -> list[AggregateCall]:
    """The aggregate calls in clauses that are computed from groups."""
    out: list[AggregateCall] = []
    for clause in ("SELECT", "HAVING", "WINDOW", "QUALIFY", "ORDER"):
        clause_calls = find_calls(scope.parsed, *scope.range(clause), scope.inner)
        if isinstance(clause_calls, str):
            raise NotSplitError(clause_calls)
        out += clause_calls
    return out
