"""Replacing subqueries of a statement that are computed first by tables. Pure: edits of the text.

A subquery becomes a table, so `FROM (SELECT …) AS q` is `FROM _ml_result_0 AS q` and `x IN (SELECT …)` is
`x IN (SELECT * FROM _ml_result_0)`. A CTE that is used once is inlined; one that is used more often becomes a table. A
subquery that only filters and projects the spread table is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mergelake.query.spread.cutting import ScopeText
from mergelake.query.spread.halves import NotSplitError
from mergelake.query.statement.parsed_select import CteUse, ParsedSelect, Scope

RESULT = "_ml_result_"
"""Prefix of the names of these tables."""
_SET_OPERATIONS = frozenset(("UNION", "EXCEPT", "INTERSECT"))
_IN_SET_OPERATION = _SET_OPERATIONS | {"ALL", "DISTINCT"}
_NOT_TWICE = ("rand", "generate", "fuzz", "now64")
"""Prefixes of functions that are not deterministic."""

Edit = tuple[int, int, str]
"""Characters [start, end) and their replacement."""


@dataclass(frozen=True, slots=True)
class SubqueryCut:
    """A subquery that is computed first."""

    text: str
    around: str
    """Items of the enclosing WITH, which it may need."""
    edits: tuple[Edit, ...]
    """Edits that replace it by a table, with `{}` in place of the table's name."""


def edited(text: str, edits: Collection[Edit], name: str = "") -> str:
    """The text after the edits, with `name` in place of `{}`."""
    out, at = [], 0
    for start, end, new in sorted(edits):
        out += [text[at:start], new.replace("{}", name)]
        at = end
    return "".join((*out, text[at:]))


def with_ctes_in_place(parsed: ParsedSelect) -> str:
    """The statement with the first CTE that is used at most once inlined; unchanged if there is none."""
    for cte in _ctes(parsed):
        if len(cte.uses) <= 1:
            body = parsed.text[cte.start : cte.end]
            edits = [(*cte.cut, ""), *(_in_place(use, f"({body})") for use in cte.uses)]
            if any(cte.cut[0] <= use.start < cte.cut[1] for use in cte.uses):
                raise NotSplitError("a CTE names itself")
            return edited(parsed.text, edits)
    return parsed.text


def shared_cte(parsed: ParsedSelect) -> SubqueryCut | None:
    """The first CTE that is used more than once; None if there is none."""
    for cte in _ctes(parsed):
        words = [token.text.lower() for token in parsed.tokens if cte.start <= token.start < cte.end]
        if any(word.startswith(_NOT_TWICE) for word in words):
            raise NotSplitError("a CTE that is named twice is another one each time")
        edits = [
            (*cte.cut, ""),
            *(_in_place(use, "{}" if not use.in_operator else "(SELECT * FROM {})") for use in cte.uses),
        ]
        return SubqueryCut(parsed.text[cte.start : cte.end], "", tuple(edits))
    return None


def branches(parsed: ParsedSelect) -> list[SubqueryCut]:
    """The SELECTs of a UNION, INTERSECT or EXCEPT at the top level."""
    if any("WITH" in scope.clauses for scope in parsed.scopes if scope.parent is None):
        raise NotSplitError("WITH of a set operation is not split")
    if parsed.loose_settings or any("SETTINGS" in scope.clauses for scope in parsed.scopes):
        raise NotSplitError("SETTINGS of a set operation are not split")
    out = []
    for scope in parsed.scopes:
        if scope.parent is None:
            stop = min(scope.end, scope.clause_words.get("FORMAT", scope.end))
            start, end = parsed.tokens[scope.first].start, parsed.tokens[stop - 1].end
            out.append(SubqueryCut(parsed.text[start:end], "", ((start, end, "SELECT * FROM {}"),)))
    return out


def subqueries(parsed: ParsedSelect, kept: Sequence[Scope]) -> list[SubqueryCut]:
    """The subqueries directly inside of the scopes `kept` that are not in `kept`."""
    out: dict[int, SubqueryCut] = {}
    for scope in parsed.scopes:
        if scope.parent is None or not any(scope.parent is one for one in kept) or any(scope is one for one in kept):
            continue
        first, close = bracket_of(parsed, scope)
        if first in out:
            continue
        start, end = parsed.tokens[first].start, parsed.tokens[close].end
        around = _around(parsed, scope.parent)
        new = "{}" if scope.role == "from" else "(SELECT * FROM {})"
        text = parsed.text[parsed.tokens[first].end : parsed.tokens[close].start]
        out[first] = SubqueryCut(text, around, ((start, end, new),))
    return list(out.values())


def with_around(piece: SubqueryCut) -> str:
    """The text of a piece, after the items of the enclosing WITH."""
    text = piece.text.strip()
    if text[:4].upper() == "WITH":
        return f"WITH {piece.around}, {text[4:]}"
    return f"WITH {piece.around} {text}"


def bracket_of(parsed: ParsedSelect, scope: Scope) -> tuple[int, int]:
    """Indices of the brackets around a subquery, or around the set operation that it is a branch of."""
    tokens, opening = parsed.tokens, parsed.opening(scope.first)
    while opening >= 0:
        close = parsed.closing(opening)
        if tokens[close].kind == "end":
            break
        joined = tokens[close + 1].upper in _SET_OPERATIONS or tokens[opening - 1].upper in _IN_SET_OPERATION
        if not joined or (
            tokens[opening - 1].upper in ("ALL", "DISTINCT") and tokens[opening - 2].upper not in _SET_OPERATIONS
        ):
            return opening, close
        opening = parsed.opening(opening)
    raise NotSplitError("a subquery stands in no brackets")


@dataclass(frozen=True, slots=True)
class _Cte:
    name: str
    start: int
    """First character of its SELECT."""
    end: int
    cut: tuple[int, int]
    """Characters of its definition with a comma, or with the WITH if it is the only item."""
    uses: tuple[CteUse, ...]


def _ctes(parsed: ParsedSelect) -> list[_Cte]:
    by_opening: dict[int, _Cte] = {}
    for scope in parsed.scopes:
        if scope.role != "cte" or scope.parent is None:
            continue
        opening, close = bracket_of(parsed, scope)
        name = parsed.tokens[opening - 2].name
        if opening not in by_opening:
            uses = tuple(use for use in parsed.cte_uses if use.name == name)
            inner = parsed.tokens[opening].end, parsed.tokens[close].start
            by_opening[opening] = _Cte(name, *inner, _definition(parsed, scope.parent, opening - 2, close), uses)
    names = [cte.name for cte in by_opening.values()]
    if len(set(names)) < len(names):
        raise NotSplitError("two CTEs have one name")
    return list(by_opening.values())


def _definition(parsed: ParsedSelect, owner: Scope, first: int, last: int) -> tuple[int, int]:
    begin, end = owner.clauses["WITH"]
    if parsed.tokens[begin].upper == "RECURSIVE":
        raise NotSplitError("WITH RECURSIVE is not split")
    if parsed.tokens[last + 1].text == ",":
        return parsed.tokens[first].start, parsed.tokens[last + 1].end
    if first > begin and parsed.tokens[first - 1].text == ",":
        return parsed.tokens[first - 1].start, parsed.tokens[last].end
    if (first, last + 1) != (begin, end):
        raise NotSplitError("a CTE has something beside its SELECT")
    return parsed.tokens[owner.clause_words["WITH"]].start, parsed.tokens[last].end


def _in_place(use: CteUse, new: str) -> Edit:
    alias = "" if use.aliased or use.in_operator else f" AS `{use.name}`"
    return use.start, use.end, new + alias


def _around(parsed: ParsedSelect, scope: Scope) -> str:
    """The items of the WITH of a scope that are not subqueries."""
    text = ScopeText(parsed, scope)
    items = text.items(*text.range("WITH"))
    plain = [item for item in items if not any(item.first <= first < item.end for first, _ in text.inner)]
    return ", ".join(f"{text.text(*item.range)} AS `{item.alias}`" for item in plain if item.alias)
