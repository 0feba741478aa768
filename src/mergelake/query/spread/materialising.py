"""Which subqueries of a statement are computed first, and the statement that is left over. Pure: cuts in the text.

A subquery becomes a table, so `FROM (SELECT …) AS q` is `FROM _ml_result_0 AS q` and `x IN (SELECT …)` is
`x IN (SELECT * FROM _ml_result_0)`. A CTE that is named once stands where it is named; one that is named more often
becomes a table that all its places read. A subquery stays that only filters and projects the table to be spread.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mergelake.core.lexer import Token, closing
from mergelake.query.spread.cutting import ScopeText
from mergelake.query.spread.halves import NotSplitError
from mergelake.query.statement.parsed_select import CteUse, ParsedSelect, Scope

RESULT = "_ml_result_"
"""How the names of these tables begin."""
_SET_OPERATIONS = frozenset(("UNION", "EXCEPT", "INTERSECT"))
_IN_SET_OPERATION = _SET_OPERATIONS | {"ALL", "DISTINCT"}
_NOT_TWICE = ("rand", "generate", "fuzz", "now64")
"""How the names of functions begin whose value is another one each time."""

Edit = tuple[int, int, str]
"""Characters [start, end) and what replaces them."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A subquery that is computed first."""

    text: str
    around: str
    """Items of the WITH around it, which it may need."""
    edits: tuple[Edit, ...]
    """What puts a table in its place: `{}` stands for its name."""


def edited(text: str, edits: Collection[Edit], name: str = "") -> str:
    """The text with these pieces replaced, and a table's name in them."""
    out, at = [], 0
    for start, end, new in sorted(edits):
        out += [text[at:start], new.replace("{}", name)]
        at = end
    return "".join((*out, text[at:]))


def with_ctes_in_place(plan: ParsedSelect) -> str:
    """The statement with the first CTE that is named once, or never, where it is named; the same text without one."""
    for cte in _ctes(plan):
        if len(cte.uses) <= 1:
            body = plan.text[cte.start : cte.end]
            edits = [(*cte.cut, ""), *(_in_place(use, f"({body})") for use in cte.uses)]
            if any(cte.cut[0] <= use.start < cte.cut[1] for use in cte.uses):
                raise NotSplitError("a CTE names itself")
            return edited(plan.text, edits)
    return plan.text


def shared_cte(plan: ParsedSelect) -> Piece | None:
    """The first CTE, which is named more than once."""
    for cte in _ctes(plan):
        words = [token.text.lower() for token in plan.tokens if cte.start <= token.start < cte.end]
        if any(word.startswith(_NOT_TWICE) for word in words):
            raise NotSplitError("a CTE that is named twice is another one each time")
        edits = [
            (*cte.cut, ""),
            *(_in_place(use, "{}" if not use.in_operator else "(SELECT * FROM {})") for use in cte.uses),
        ]
        return Piece(plan.text[cte.start : cte.end], "", tuple(edits))
    return None


def branches(plan: ParsedSelect) -> list[Piece]:
    """The SELECTs of UNION, INTERSECT and EXCEPT at the top of a statement."""
    if any("WITH" in scope.clauses for scope in plan.scopes if scope.parent is None):
        raise NotSplitError("WITH of a set operation is not split")
    if plan.loose_settings or any("SETTINGS" in scope.clauses for scope in plan.scopes):
        raise NotSplitError("SETTINGS of a set operation are not split")
    out = []
    for scope in plan.scopes:
        if scope.parent is None:
            stop = min(scope.end, scope.clause_words.get("FORMAT", scope.end))
            start, end = plan.tokens[scope.first].start, plan.tokens[stop - 1].end
            out.append(Piece(plan.text[start:end], "", ((start, end, "SELECT * FROM {}"),)))
    return out


def subqueries(plan: ParsedSelect, kept: Sequence[Scope]) -> list[Piece]:
    """Those that stand in scopes that are kept, and are not kept themselves."""
    out: dict[int, Piece] = {}
    for scope in plan.scopes:
        if scope.parent is None or not any(scope.parent is one for one in kept) or any(scope is one for one in kept):
            continue
        first, close = bracket_of(plan.tokens, scope)
        if first in out:
            continue
        start, end = plan.tokens[first].start, plan.tokens[close].end
        around = _around(plan, scope.parent)
        new = "{}" if scope.role == "from" else "(SELECT * FROM {})"
        text = plan.text[plan.tokens[first].end : plan.tokens[close].start]
        out[first] = Piece(text, around, ((start, end, new),))
    return list(out.values())


def with_around(piece: Piece) -> str:
    """Its text with what the WITH around it names."""
    text = piece.text.strip()
    if text[:4].upper() == "WITH":
        return f"WITH {piece.around}, {text[4:]}"
    return f"WITH {piece.around} {text}"


def bracket_of(tokens: list[Token], scope: Scope) -> tuple[int, int]:
    """The brackets that hold a subquery, with all of the set operation that it is a branch of."""
    opening = _opening_before(tokens, scope.first)
    while True:
        close = closing(tokens, opening)
        if tokens[close].kind == "end":
            raise NotSplitError("a subquery stands in no brackets")
        joined = tokens[close + 1].upper in _SET_OPERATIONS or tokens[opening - 1].upper in _IN_SET_OPERATION
        if not joined or (
            tokens[opening - 1].upper in ("ALL", "DISTINCT") and tokens[opening - 2].upper not in _SET_OPERATIONS
        ):
            return opening, close
        opening = _opening_before(tokens, opening)


def _opening_before(tokens: list[Token], at: int) -> int:
    depth = 0
    for back in range(at - 1, -1, -1):
        if tokens[back].kind == "sign":
            depth += (tokens[back].text in (")", "]", "}")) - (tokens[back].text in ("(", "[", "{"))
        if depth < 0:
            return back
    raise NotSplitError("a subquery stands in no brackets")


@dataclass(frozen=True, slots=True)
class _Cte:
    name: str
    start: int
    """First character of its SELECT."""
    end: int
    cut: tuple[int, int]
    """Characters of its definition, with a comma, or with WITH where nothing else is in it."""
    uses: tuple[CteUse, ...]


def _ctes(plan: ParsedSelect) -> list[_Cte]:
    found: dict[int, _Cte] = {}
    for scope in plan.scopes:
        if scope.role != "cte" or scope.parent is None:
            continue
        opening, close = bracket_of(plan.tokens, scope)
        name = plan.tokens[opening - 2].name
        if opening not in found:
            uses = tuple(use for use in plan.cte_uses if use.name == name)
            inner = plan.tokens[opening].end, plan.tokens[close].start
            found[opening] = _Cte(name, *inner, _definition(plan, scope.parent, opening - 2, close), uses)
    names = [cte.name for cte in found.values()]
    if len(set(names)) < len(names):
        raise NotSplitError("two CTEs have one name")
    return list(found.values())


def _definition(plan: ParsedSelect, owner: Scope, first: int, last: int) -> tuple[int, int]:
    begin, end = owner.clauses["WITH"]
    if plan.tokens[begin].upper == "RECURSIVE":
        raise NotSplitError("WITH RECURSIVE is not split")
    if plan.tokens[last + 1].text == ",":
        return plan.tokens[first].start, plan.tokens[last + 1].end
    if first > begin and plan.tokens[first - 1].text == ",":
        return plan.tokens[first - 1].start, plan.tokens[last].end
    if (first, last + 1) != (begin, end):
        raise NotSplitError("a CTE has something beside its SELECT")
    return plan.tokens[owner.clause_words["WITH"]].start, plan.tokens[last].end


def _in_place(use: CteUse, new: str) -> Edit:
    alias = "" if use.aliased or use.in_operator else f" AS `{use.name}`"
    return use.start, use.end, new + alias


def _around(plan: ParsedSelect, scope: Scope) -> str:
    """The items of its WITH that are no subqueries."""
    text = ScopeText(plan, scope)
    items = text.items(*text.range("WITH"))
    plain = [item for item in items if not any(item.first <= first < item.end for first, _ in text.inner)]
    return ", ".join(f"{text.text(*item.range)} AS `{item.alias}`" for item in plain if item.alias)
