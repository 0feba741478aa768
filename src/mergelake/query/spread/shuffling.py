"""A SELECT with windows in stages: rows go to tasks by a hash of what all windows are partitioned by. Pure.

First each task filters its share, and puts rows into buckets; then each task has whole partitions. So the scope with
the windows reads a table that is spread by buckets, and the statement around it is split as any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mergelake.core.text import back_quote
from mergelake.query.spread.cutting import ScopeText
from mergelake.query.spread.halves import NotSplitError
from mergelake.query.spread.split_groups import aliases_inside
from mergelake.query.spread.windows import common_partition
from mergelake.query.statement.parsed_select import ParsedSelect, Scope
from mergelake.query.statement.rewrite import MARK

BUCKET = "ml_bucket"
"""Object name of the table that is spread by buckets; the column of the first stage that tells the bucket."""
BUCKETS = 64
"""Into which the rows of each task are put."""


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The first stage, and what is left."""

    first: str
    """For each task, over its share: all columns, and `BUCKET`."""
    keys: str
    """A statement that gives what the rows are put into buckets by, for its types."""
    rest: str
    """The statement over the table `BUCKET`, marked."""


def without_bucket(table: str, columns: Iterable[str]) -> str:
    """The rows in buckets as the second stage reads them, of all `columns` but the one that tells the bucket."""
    return f"(SELECT {', '.join(back_quote(name) for name in columns if name != BUCKET)} FROM {table})"


def is_windowed(parsed: ParsedSelect, scope: Scope) -> bool:
    """Whether a scope computes windows of rows, not of groups, and their partitions can be told apart."""
    text = ScopeText(parsed, scope)
    plain = len(scope.sources) == 1 and not scope.array_join and "GROUP" not in scope.clauses
    return plain and "OVER" in text.words and bool(common_partition(text))


def shuffled(parsed: ParsedSelect, scope: Scope, columns: Collection[str]) -> Shuffle:
    """The stages for the scope of a marked statement; `columns` are those of its tables."""
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
