"""Splitting a SELECT with windows: rows are shuffled by a hash of the expressions that all windows partition by. Pure.

In the first stage each task filters its share and puts rows into buckets; in the second each task has whole partitions.
So the scope with the windows reads a table that is spread by buckets, and the rest is split like any other statement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mergelake.core.base.text import back_quote
from mergelake.query.spread.cutting import ScopeText
from mergelake.query.spread.halves import NotSplitError
from mergelake.query.spread.split_groups import aliases_inside
from mergelake.query.spread.windows import common_partition
from mergelake.query.statement.parsed_select import ParsedSelect, Scope
from mergelake.query.statement.rewrite import MARK

BUCKET = "ml_bucket"
"""Object name of the table that is spread by buckets; also the column with the bucket in the first stage."""
BUCKETS = 64
"""Number of buckets."""


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The first stage, and the remaining statement."""

    first: str
    """Statement of each task on its share: returns all columns, and `BUCKET`."""
    keys: str
    """A statement that returns the expressions of the hash, to determine their types."""
    rest: str
    """The marked statement over the table `BUCKET`."""


def without_bucket(table: str, columns: Iterable[str]) -> str:
    """A subquery with all `columns` of a table but `BUCKET`."""
    return f"(SELECT {', '.join(back_quote(name) for name in columns if name != BUCKET)} FROM {table})"


def is_windowed(parsed: ParsedSelect, scope: Scope) -> bool:
    """Whether a scope computes windows of rows, not of groups, and all windows have common partition expressions."""
    text = ScopeText(parsed, scope)
    plain = len(scope.sources) == 1 and not scope.array_join and "GROUP" not in scope.clauses
    return plain and "OVER" in text.words and bool(common_partition(text))


def shuffled(parsed: ParsedSelect, scope: Scope, columns: Collection[str]) -> Shuffle:
    """Split the windows of a scope of a marked statement; `columns` are those of its tables."""
    text = ScopeText(parsed, scope)
    words, keys = scope.clause_words, common_partition(text)
    last = "WHERE" if text.has("WHERE") else "FROM"
    if not words["SELECT"] < words["FROM"] <= words[last]:
        raise NotSplitError("its clauses stand in another order")
    helpers = aliases_inside(text, keys, (), columns)
    before = ", ".join([*([text.text(*text.range("WITH"))] if text.has("WITH") else []), *helpers])
    start = f"WITH {before} SELECT" if before else "SELECT"
    by = ", ".join(text.text(*key) for key in keys)
    rows = f"{text.clause('FROM')}{text.clause('WHERE')}"
    bucket = f"toUInt8(ifNull(cityHash64({by}), 0) % {BUCKETS}) AS {BUCKET}"
    first, end = parsed.tokens[words["FROM"]].start, parsed.tokens[text.range(last)[1] - 1].end
    rest = f"{parsed.text[:first]}FROM {back_quote(MARK + BUCKET + MARK)}{_alias(text)}{parsed.text[end:]}"
    return Shuffle(f"{start} *, {bucket}{rows}", f"{start} {by}{rows}", rest)


def _alias(scope: ScopeText) -> str:
    first, end = scope.range("FROM")
    if end - first >= 2 and scope.tokens[end - 1].is_name:
        return f" AS {scope.tokens[end - 1].text}"
    return ""
