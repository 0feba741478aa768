"""Aggregate calls in SQL, and their halves: `uniq(x)` is `uniqState(x)` in a task and `uniqMerge(s)` at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from mergelake.query.embedded import engine
from mergelake.query.statement.parsed_select import ParsedSelect

_COMBINATORS = ("If", "Array", "Distinct", "OrNull", "OrDefault", "ForEach", "Map", "Resample", "ArgMin", "ArgMax")
_NOT_SPLIT = ("State", "Merge", "MergeState", "SimpleState")


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One call: tokens [first, end) of a statement."""

    first: int
    end: int
    name: str
    parameters: str
    """`(0.5)` of `quantile(0.5)(x)`, or empty."""
    arguments: str
    condition: str = ""
    """` FILTER (WHERE …)`, or empty."""

    @property
    def what(self) -> tuple[str, str, str]:
        """Equal for calls with the same value."""
        return self.name, self.parameters, self.arguments + self.condition

    @property
    def state(self) -> str:
        """The call that computes a state from a part of the rows."""
        return f"{self.name}State{self.parameters}({self.arguments}){self.condition}"

    def merged(self, column: str) -> str:
        """The call that merges the states in `column`."""
        return f"{self.name}Merge{self.parameters}({column})"


@lru_cache(maxsize=1)
def _known() -> tuple[frozenset[str], dict[str, str]]:
    """(names of aggregate functions, lower-case name -> name of the case-insensitive ones)."""
    sql = "SELECT name, case_insensitive, alias_to FROM system.functions WHERE is_aggregate"
    rows = engine.run(sql).table().to_pylist()
    names = frozenset(row["name"] for row in rows)
    return names, {row["name"].lower(): row["alias_to"] or row["name"] for row in rows if row["case_insensitive"]}


def aggregate_name(word: str) -> str | None:
    """The canonical name if `word` names an aggregate function, combinators included; else None."""
    names, any_case = _known()
    if word in names:
        return word
    if word.lower() in any_case:
        return any_case[word.lower()]
    for suffix in (*_COMBINATORS, *_NOT_SPLIT):
        if word.endswith(suffix) and len(word) > len(suffix):
            inner = aggregate_name(word[: -len(suffix)])
            if inner is not None:
                return inner + suffix
    return None


def find_calls(
    parsed: ParsedSelect, first: int, end: int, subqueries: Sequence[tuple[int, int]] = ()
) -> list[AggregateCall] | str:
    """The outermost aggregate calls in tokens [first, end); the reason instead, if one of them cannot be split.

    Calls in `subqueries`, which are ranges of tokens, and window functions are omitted.
    """
    text, tokens = parsed.text, parsed.tokens
    out: list[AggregateCall] = []
    inside = dict(subqueries)
    at = first
    while at < end:
        if at in inside:
            at = inside[at]
            continue
        token = tokens[at]
        name = aggregate_name(token.text) if token.kind == "word" and tokens[at + 1].text == "(" else None
        if name is None:
            at += 1
            continue
        close = parsed.closing(at + 1)
        parameters, open_at = "", at + 1
        if tokens[close + 1].text == "(":
            parameters = text[tokens[at + 1].start : tokens[close].end]
            open_at, close = close + 1, parsed.closing(close + 1)
        if tokens[close + 1].upper == "OVER":
            at += 1  # its arguments may have aggregates
            continue
        stop, condition = close + 1, ""
        if tokens[stop].upper == "FILTER" and tokens[stop + 1].text == "(":
            stop = parsed.closing(close + 2) + 1
            condition = " " + text[tokens[close + 1].start : tokens[stop - 1].end]
            if tokens[stop].upper == "OVER":
                at += 1
                continue
        if tokens[stop].upper in ("IGNORE", "RESPECT"):
            return f"{token.text}(…) {tokens[stop].upper} is not split"
        if name.endswith(_NOT_SPLIT):
            return f"{name} is not split"
        inside_text = text[tokens[open_at].end : tokens[close].start].strip()
        if tokens[open_at + 1].upper == "DISTINCT":
            if name != "count":
                return f"{token.text}(DISTINCT …) is not split"
            name, inside_text = "uniqExact", inside_text[len("DISTINCT") :].strip()
        arguments = "" if inside_text == "*" and name == "count" else inside_text
        out.append(AggregateCall(at, stop, name, parameters, arguments, condition))
        at = stop
    return out
