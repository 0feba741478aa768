"""The expression tree as written: literals, columns and calls, nothing else.

Operators are calls too, by the name ClickHouse gives them (`a + b` is `plus(a, b)`, `x IN (1, 2)` is
`in(x, tuple(1, 2))`, `CAST(x AS T)` is `CAST(x, 'T')`), so code that walks a tree has three cases.
`str(node)` prints it as ClickHouse would format it, `column_name(node)` as ClickHouse names the column that
holds its values (`plus(a, b)`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mergelake.core.base.text import quote_identifier_if_needed, quote_string
from mergelake.core.types.types import DataType

INFIX = {
    "plus": "+",
    "minus": "-",
    "multiply": "*",
    "divide": "/",
    "modulo": "%",
    "equals": "=",
    "notEquals": "!=",
    "less": "<",
    "lessOrEquals": "<=",
    "greater": ">",
    "greaterOrEquals": ">=",
    "like": "LIKE",
    "notLike": "NOT LIKE",
    "ilike": "ILIKE",
    "notILike": "NOT ILIKE",
    "in": "IN",
    "notIn": "NOT IN",
    "and": "AND",
    "or": "OR",
}
_POSTFIX = {"isNull": "IS NULL", "isNotNull": "IS NOT NULL"}
_OPERATORS = INFIX.keys() | _POSTFIX.keys() | {"not", "negate"}


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant as written: int, float, bytes (a String), or None (NULL), with the type ClickHouse gives it.

    A long array of strings is a literal too, with a tuple of bytes as its value.
    """

    value: int | float | bytes | tuple[bytes, ...] | None
    type: DataType

    def __str__(self) -> str:
        if self.value is None:
            return "NULL"
        if isinstance(self.value, bytes):
            return quote_bytes(self.value)
        if isinstance(self.value, tuple):
            return f"[{', '.join(map(quote_bytes, self.value))}]"
        if str(self.type) == "Bool":
            return "true" if self.value else "false"
        if isinstance(self.value, float):
            return _float_text(self.value)
        return str(self.value)


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column by name; a dotted path keeps its dots."""

    name: str

    def __str__(self) -> str:
        return ".".join(quote_identifier_if_needed(piece) for piece in self.name.split("."))


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator applied to `args`; the name as typed, or ClickHouse's name of the operator."""

    function: str
    args: tuple[SyntaxNode, ...]

    def __str__(self) -> str:
        name, args = self.function, self.args
        if name in INFIX and len(args) >= 2:
            return f" {INFIX[name]} ".join(_operand(arg) for arg in args)
        if name in _POSTFIX and len(args) == 1:
            return f"{_operand(args[0])} {_POSTFIX[name]}"
        if name == "not" and len(args) == 1:
            return f"NOT {_operand(args[0])}"
        if name == "negate" and len(args) == 1:
            return f"-{_operand(args[0])}"
        if name == "tuple" and len(args) > 1:
            return f"({', '.join(map(str, args))})"
        if name == "array":
            return f"[{', '.join(map(str, args))}]"
        return f"{name}({', '.join(map(str, args))})"


SyntaxNode = Literal | ColumnRef | Call


def column_name(node: SyntaxNode) -> str:
    """ClickHouse's name for the column of `node`'s values: operators as functions, `plus(a, 1)`."""
    if isinstance(node, Call):
        return f"{node.function}({', '.join(map(column_name, node.args))})"
    return node.name if isinstance(node, ColumnRef) else str(node)


def walk(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """`node` and all below it, parents first."""
    yield node
    if isinstance(node, Call):
        for arg in node.args:
            yield from walk(arg)


def referenced_columns(node: SyntaxNode) -> tuple[str, ...]:
    """Names of the columns that `node` mentions, each once, in order of appearance."""
    return tuple(dict.fromkeys(n.name for n in walk(node) if isinstance(n, ColumnRef)))


def quote_bytes(value: bytes) -> str:
    r"""A string literal for any bytes; what is not UTF-8 is written as `\xNN`."""
    try:
        return quote_string(value.decode())
    except UnicodeDecodeError:
        shown = "".join(chr(b) if 32 <= b < 127 and b not in b"'\\" else f"\\x{b:02X}" for b in value)
        return f"'{shown}'"


def _operand(node: SyntaxNode) -> str:
    return f"({node})" if isinstance(node, Call) and node.function in _OPERATORS else str(node)


def _float_text(value: float) -> str:
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    return text[:-2] + "." if text.endswith(".0") else text
