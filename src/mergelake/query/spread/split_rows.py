"""Splitting a SELECT without aggregates: each task filters, and computes the SELECT list of its rows.

With a LIMIT each task returns only its first rows. The final statement sorts the rows of the tasks and applies DISTINCT
and the limits again. The expressions of ORDER BY are returned as additional columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from mergelake.core.base.text import back_quote
from mergelake.query.spread.cutting import ScopeText, shape
from mergelake.query.spread.halves import FILES, Halves, NotSplitError
from mergelake.query.statement.parsed_select import Item

_DIRECTIONS = frozenset(("ASC", "DESC", "ASCENDING", "DESCENDING", "NULLS", "COLLATE", "WITH"))


def split_rows(scope: ScopeText, names: Sequence[str]) -> Halves:
    """Split a scope; `names` are those of the statement's columns."""
    if scope.has("HAVING"):
        raise NotSplitError("HAVING without groups is not split")
    if len(set(names)) < len(names):
        raise NotSplitError("two columns have one name")
    limits = scope.limits
    if limits is None:
        raise NotSplitError("LIMIT is not of plain numbers")
    extra: list[str] = []
    outputs = _Outputs(scope, names, extra)
    order = [outputs.ordered(item) for item in scope.items(*scope.range("ORDER"))]
    by = [", ".join(outputs.column_of(item) for item in scope.items(*limit.by)) for limit in limits if limit.by]
    distinct = "DISTINCT " if scope.distinct else ""
    columns = ", ".join([scope.text(*scope.select), *extra])
    partial = f"{scope.clause('WITH').lstrip()} SELECT {distinct}{columns}{scope.clause('FROM')}{scope.clause('WHERE')}"
    partial += scope.clause("WINDOW") + scope.clause("QUALIFY")
    why = "DISTINCT in each task" if distinct else "filter and projection in each task"
    if limits and "FILL" not in scope.words:
        partial += scope.clause("ORDER", "ORDER BY")
        for limit in limits:
            text = scope.text(*limit.by) if limit.by else ""
            partial += f" LIMIT {limit.reach}" + (f" BY {text}" if text else "") + " WITH TIES" * limit.ties
            if limit.by and limit.offset:
                break  # the rows that this offset skips are still included
        why = "filter and top rows in each task" if order else "filter and first rows in each task"
    final = f"SELECT {distinct}{', '.join(map(back_quote, names))} FROM {FILES}"
    final += f" ORDER BY {', '.join(order)}" if order else ""
    final += "".join(limit.text(by[0] if limit.by else "") for limit in limits)
    settings = scope.clause("SETTINGS")
    return Halves(partial.strip() + settings, final + settings, why)


class _Outputs:
    """Columns of the partial results for the expressions of ORDER BY and LIMIT BY."""

    def __init__(self, scope: ScopeText, names: Sequence[str], extra: list[str]) -> None:
        self._scope, self._names, self._extra = scope, names, extra
        self._star = any(
            scope.tokens[at].text == "*" or scope.tokens[at].upper == "COLUMNS" for at in range(*scope.select)
        )

    def ordered(self, item: Item) -> str:
        """An item of ORDER BY in the final statement."""
        tokens = self._scope.tokens
        level = [at for at in self._scope.parsed.level(item.first, item.end) if tokens[at].upper in _DIRECTIONS]
        end = level[0] if level and level[0] > item.first else item.end
        if item.alias or "INTERPOLATE" in self._scope.words:
            raise NotSplitError("ORDER BY gives a name, or interpolates")
        rest = self._scope.text(end, item.end)
        return f"{self.column_of(Item(item.first, end, ''))} {rest}".rstrip()

    def column_of(self, item: Item) -> str:
        """The column with the value of an expression; adds one if there is none."""
        scope, tokens = self._scope, self._scope.tokens[item.first : item.end]
        if any(token.text == "*" for token in tokens[:1]):
            raise NotSplitError("it orders by *")
        if not any(token.is_name for token in tokens) or (len(tokens) == 1 and tokens[0].upper == "ALL"):
            return scope.text(*item.range)  # a position in the SELECT list
        for column, name in zip(scope.columns, self._names, strict=False) if not self._star else ():
            named = len(tokens) == 1 and column.alias == tokens[0].name
            if named or (not column.alias and shape(scope.tokens[column.first : column.end]) == shape(tokens)):
                return back_quote(name)
        if scope.distinct:
            raise NotSplitError("DISTINCT is ordered by something else than its columns")
        column_name = f"ml_o{len(self._extra)}"
        self._extra.append(f"{scope.text(*item.range)} AS {column_name}")
        return column_name
