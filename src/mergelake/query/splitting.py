"""One SELECT as a partial statement for each task and a final one for the caller.

One table is *spread*: each task has a share of its rows, and all of every other table. *Rows* (`split_rows`): a task
filters, computes the SELECT list, and with a LIMIT keeps the first rows of its own. *Groups* (`split_groups`): a task
computes states of aggregates, which the final statement merges.

States and rows travel as ClickHouse's Native format, which keeps types exactly. What does not fit is not
split, and the sentence that says why is shown by EXPLAIN. Statements before this had their subqueries computed
(`steps`), so here is one SELECT, with subqueries that are the same for every task.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from mergelake.query import distributing
from mergelake.query.aggregates import AggregateCall, find_calls
from mergelake.query.cutting import ScopeText
from mergelake.query.halves import Halves, NotSplitError
from mergelake.query.outline import outline
from mergelake.query.rewrite import MARK
from mergelake.query.split_groups import split_groups
from mergelake.query.split_rows import split_rows


@dataclass(frozen=True, slots=True)
class Split:
    """How a statement is split."""

    halves: Halves
    """Over marked tables (`Rewritten.marked`)."""
    spread: str
    """Object name of the table of which each task has a share."""


def split(marked: str, rows: Mapping[str, int], names: Sequence[str], columns: Collection[str]) -> Split:
    """Both halves of a marked statement; NotSplitError where it has none.

    `rows` are those to read, by object names, of the tables that may be spread; `names` are those of the statement's
    columns, `columns` those of its tables.
    """
    plan = outline(marked)
    scope = next((scope for scope in plan.scopes if scope.parent is None), None)
    if scope is None or scope.in_set_operation:
        raise NotSplitError("it is no single SELECT")
    text = ScopeText(plan, scope)
    if "FROM" not in scope.clauses or "INTO" in text.words:
        raise NotSplitError("it reads no table, or writes a file")
    by_id = {id(o): rows[name] for o in plan.occurrences if (name := o.name.strip(MARK)) in rows and not o.in_operator}
    found = distributing.table_to_spread(plan, scope, by_id)
    if found is None:
        raise NotSplitError("no table stands in FROM by itself")
    why = distributing.why_not(plan, scope, found)
    if why:
        raise NotSplitError(why)
    calls = _calls(text)
    if calls or text.has("GROUP"):
        halves = split_groups(text, calls, names, columns)
    elif "OVER" in text.words or text.has("WINDOW"):
        raise NotSplitError("a window function needs all rows of its partition")
    else:
        halves = split_rows(text, names)
    return Split(halves, found.name.strip(MARK))


def _calls(scope: ScopeText) -> list[AggregateCall]:
    """Aggregates of the clauses that are computed from groups."""
    out: list[AggregateCall] = []
    for clause in ("SELECT", "HAVING", "WINDOW", "QUALIFY", "ORDER"):
        found = find_calls(scope.plan.text, scope.tokens, *scope.range(clause), scope.inner)
        if isinstance(found, str):
            raise NotSplitError(found)
        out += found
    return out
