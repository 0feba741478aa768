"""Conditions as EXPLAIN prints them: `and((b in [5, +Inf)), (a in 2-element set))`.

ClickHouse prints the "can be true" side without operands that are unknown, and of two operands the later one first.

Source: ClickHouse, `KeyCondition::getDescription`, `FieldVisitorToString`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mergelake.core.base.text import quote_string
from mergelake.core.types import types as t
from mergelake.scan.prune.condition import (
    And,
    Condition,
    Constant,
    FunctionChain,
    InRange,
    InSet,
    IsNull,
    Not,
    Or,
    Probe,
    UnknownCondition,
    used_columns,
)

_TRUE, _FALSE = "true", "false"


def describe(condition: Condition, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The condition's text and the key columns that it mentions; `true` and no columns if it is unknown."""
    text = _pair(condition, names)[0]
    used = tuple(names[i] for i in used_columns(condition) if names[i] in text)
    return text, used if text not in (_TRUE, _FALSE) else ()


def _pair(node: Condition, names: Sequence[str]) -> tuple[str, str]:
    """Texts of "can be true" and "can be false"."""
    match node:
        case UnknownCondition() | Probe():
            return _TRUE, _TRUE
        case Constant(value):
            return (_TRUE, _FALSE) if value else (_FALSE, _TRUE)
        case Not(child):
            can_be_true, can_be_false = _pair(child, names)
            return can_be_false, can_be_true
        case And(left, right):
            a, b = _pair(right, names), _pair(left, names)
            return _join("and", a[0], b[0]), _join("or", a[1], b[1])
        case Or(left, right):
            a, b = _pair(right, names), _pair(left, names)
            return _join("or", a[0], b[0]), _join("and", a[1], b[1])
        case _:
            text = _atom(node, names)
            return text, f"not({text})"


def _join(word: str, a: str, b: str) -> str:
    neutral, final = (_TRUE, _FALSE) if word == "and" else (_FALSE, _TRUE)
    if final in (a, b):
        return final
    if a == neutral:
        return b
    return a if b == neutral else f"{word}({a}, {b})"


def _atom(atom: InRange | InSet | IsNull, names: Sequence[str]) -> str:
    if isinstance(atom, IsNull):
        return f"({names[atom.column]} {'isNotNull' if atom.negated else 'isNull'})"
    if isinstance(atom, InSet):
        columns = [_wrapped(names[c], chain) for c, chain in zip(atom.columns, atom.chains, strict=True)]
        left = columns[0] if len(columns) == 1 else f"({', '.join(columns)})"
        return f"({left} {'notIn' if atom.negated else 'in'} {len(atom.rows)}-element set)"
    low = "(-Inf" if atom.low is None else ("[" if atom.low_included else "(") + literal_text(atom.low, atom.type)
    high = "+Inf)" if atom.high is None else literal_text(atom.high, atom.type) + ("]" if atom.high_included else ")")
    word = "not in" if atom.negated else "in"
    return f"({_wrapped(names[atom.column], atom.chain)} {word} {low}, {high})"


def _wrapped(name: str, chain: FunctionChain) -> str:
    for step in chain:
        name = f"{step.before}{name}{step.after}"
    return name


def literal_text(value: Any, data_type: t.DataType) -> str:
    """A value as ClickHouse's EXPLAIN shows it: strings quoted, whole floats with a dot."""
    inner = t.inner_type(data_type)
    if value is None:
        return "NULL"
    if isinstance(inner, (t.Decimal, t.DateTime64)) and isinstance(value, int):
        scale = inner.scale if isinstance(inner, t.Decimal) else inner.precision
        digits = f"{abs(value):0{scale + 1}d}"
        sign = "-" if value < 0 else ""
        return f"'{sign}{digits[:-scale]}.{digits[-scale:]}'" if scale else f"'{sign}{digits}'"
    if isinstance(value, bytes):
        return quote_string(value.decode("utf-8", "backslashreplace"))
    if isinstance(value, float):
        text = repr(value)
        return text[:-1] if text.endswith(".0") else text
    return str(value)
