"""Precedence climbing over the tokens, with ClickHouse's operator priorities.

===========  =====================================================================
priority     operator
===========  =====================================================================
2            `c ? a : b`
3, 4, 5      OR, AND, NOT
6, 7         IS [NOT] NULL, [NOT] BETWEEN
9            `= == != <> < <= > >=`, [NOT] LIKE, [NOT] ILIKE, [NOT] IN
10           `||`
11, 12, 13   `+ -`, `* / % DIV MOD`, unary minus
14           `x.name`, `x.1`, `x[i]`, `x::T`
===========  =====================================================================

Source: ClickHouse, `src/Parsers/ExpressionListParsers.cpp`.
"""

from __future__ import annotations

from mergelake.core.base.errors import UnsupportedError, error
from mergelake.core.base.lexer import Token, TokenReader, number_value
from mergelake.core.base.sized_cache import sized_cache
from mergelake.core.base.text import string_bytes
from mergelake.core.types.types import INTERVAL_UNITS, STRING, Array, Bool, DataType, Float, Int, Nothing, Nullable
from mergelake.expr.nodes import Call, ColumnRef, Literal, SyntaxNode

_BINARY = {
    "=": (9, "equals"),
    "==": (9, "equals"),
    "!=": (9, "notEquals"),
    "<>": (9, "notEquals"),
    "<": (9, "less"),
    "<=": (9, "lessOrEquals"),
    ">": (9, "greater"),
    ">=": (9, "greaterOrEquals"),
    "LIKE": (9, "like"),
    "ILIKE": (9, "ilike"),
    "REGEXP": (9, "match"),
    "IN": (9, "in"),
    "||": (10, "concat"),
    "+": (11, "plus"),
    "-": (11, "minus"),
    "*": (12, "multiply"),
    "/": (12, "divide"),
    "%": (12, "modulo"),
    "MOD": (12, "modulo"),
    "DIV": (12, "intDiv"),
    "OR": (3, "or"),
    "AND": (4, "and"),
}
_NEGATED = {"in": "notIn", "like": "notLike", "ilike": "notILike"}
_MERGED = ("and", "or", "concat")
_RESERVED = {"AND", "OR", "NOT", "IN", "LIKE", "ILIKE", "BETWEEN", "IS", "DIV", "MOD", "THEN", "ELSE", "WHEN", "END"}
_LONG = 100
"""Strings of an array from which on it is one literal: trees of so many nodes take long."""
_MAX_DEPTH = 120
"""Maximum nesting of operands. ClickHouse allows 1000 (`max_ast_depth`); each takes several Python stack frames."""


@sized_cache(1024, 1 << 20, len)
def parse(text: str) -> SyntaxNode:
    """The tree of one ClickHouse expression.

    Raises SYNTAX_ERROR for what cannot be read, UnsupportedError for lambdas, subqueries and parameters.
    Whether functions and columns exist is checked by `bind`.
    """
    parser = _Parser(text)
    node = parser.expression(0)
    parser.finish()
    _check_height(node)
    return node


def parse_aggregate(text: str) -> SyntaxNode:
    """Like `parse`, with aggregate functions in all of their forms.

    `quantile(0.9)(x)` is a call of `quantile(0.9)`; DISTINCT and FILTER are the combinators that they stand for.
    """
    parser = _Parser(text, aggregates=True)
    node = parser.expression(0)
    parser.finish()
    _check_height(node)
    return node


def parse_list(text: str) -> tuple[SyntaxNode, ...]:
    """Comma-separated expressions; empty text gives none."""
    parser = _Parser(text)
    if parser.peek().kind == "end":
        return ()
    nodes = [parser.expression(0)]
    while parser.accept(","):
        nodes.append(parser.expression(0))
    parser.finish()
    for node in nodes:
        _check_height(node)
    return tuple(nodes)


def _check_height(node: SyntaxNode) -> None:
    """Raises TOO_DEEP_AST for a tree too deep to be walked by recursion: `1 + 1 + …` nests to the left."""
    level: list[SyntaxNode] = [node]
    for _ in range(_MAX_DEPTH):
        level = [arg for each in level if isinstance(each, Call) for arg in each.args]
        if not level:
            return
    raise error("TOO_DEEP_AST", f"The expression is too deep. Maximum: {_MAX_DEPTH}", "Write it flatter")


def number_literal(text: str) -> Literal:
    """A number as ClickHouse reads it: the narrowest integer type that holds it, else Float64."""
    value = number_value(text)
    if isinstance(value, float):
        return Literal(value, Float(64))
    signed = value < 0
    for bits in (8, 16, 32, 64):
        if (-(1 << (bits - 1)) <= value) if signed else value < 1 << bits:
            return Literal(value, Int(bits, signed))
    return Literal(float(value), Float(64))


class _Parser(TokenReader):
    def __init__(self, text: str, *, aggregates: bool = False) -> None:
        super().__init__(text)
        self._depth = 0
        self._aggregates = aggregates

    # --- tokens

    def _expect(self, what: str) -> None:
        if not self.accept(what):
            raise self._unexpected(f"'{what}'")

    def _unexpected(self, wanted: str) -> Exception:
        token_text = self.peek().text or "the end"
        return error("SYNTAX_ERROR", f"Expected {wanted} but found {token_text} in the expression '{self.text}'")

    def finish(self) -> None:
        if self.peek().kind != "end":
            raise self._unexpected("the end")

    # --- operators

    def expression(self, least: int) -> SyntaxNode:
        """The longest expression whose operators all have at least priority `least`."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise error(
                "TOO_DEEP_RECURSION", f"Maximum parse depth ({_MAX_DEPTH}) exceeded", "Write the expression flatter"
            )
        left = self._prefix()
        while True:
            longer = self._extend(left, least)
            if longer is None:
                self._depth -= 1
                return left
            left = longer

    def _extend(self, left: SyntaxNode, least: int) -> SyntaxNode | None:
        token = self.peek()
        if token.kind == "sign" and token.text in (".", "[", "::"):
            return self._postfix(left)
        key = self.peek().upper
        if key == "IS" and least <= 6:
            return self._is_null(left)
        negated = key == "NOT"
        if negated:
            key = self.peek(1).upper
            if key not in ("IN", "LIKE", "ILIKE", "BETWEEN"):
                return None
        if key == "BETWEEN" and least <= 7:
            self._at += 1 + negated
            low = self.expression(8)
            self._expect("AND")
            high = self.expression(8)
            first, second = ("less", "greater") if negated else ("greaterOrEquals", "lessOrEquals")
            return Call("or" if negated else "and", (Call(first, (left, low)), Call(second, (left, high))))
        if key == "?" and least <= 2:
            self._at += 1
            then = self.expression(2)
            self._expect(":")
            return Call("if", (left, then, self.expression(2)))
        if key in ("->", "<=>"):
            raise UnsupportedError(f"'{key}' is not supported in the expression '{self.text}'", name="NOT_IMPLEMENTED")
        if key not in _BINARY or _BINARY[key][0] < least:
            return None
        priority, name = _BINARY[key]
        self._at += 1 + negated
        right = self.expression(priority + 1)
        name = _NEGATED[name] if negated else name
        if name not in _MERGED:
            return Call(name, (left, right))
        args = [*left.args, right] if isinstance(left, Call) and left.function == name else [left, right]
        while _BINARY.get(self.peek().upper, (0, ""))[1] == name:  # a whole chain at once: a thousand ORs are one node
            self._at += 1
            args.append(self.expression(priority + 1))
        return Call(name, tuple(args))

    def _is_null(self, left: SyntaxNode) -> SyntaxNode:
        self._at += 1
        negated = self.accept("NOT")
        if not self.accept("NULL"):
            raise self._unexpected("NULL")
        return Call("isNotNull" if negated else "isNull", (left,))

    def _postfix(self, left: SyntaxNode) -> SyntaxNode:
        if self.accept("::"):
            return Call("CAST", (left, Literal(self._type_text().encode(), STRING)))
        if self.accept("["):
            index = self.expression(0)
            self._expect("]")
            return Call("arrayElement", (left, index))
        self._expect(".")
        token = self.next()
        if token.kind == "number":
            return Call("tupleElement", (left, number_literal(token.text)))
        if token.text in (":", "::", "^") and token.kind == "sign":
            raise UnsupportedError("Paths of JSON are not supported in expressions here", name="NOT_IMPLEMENTED")
        if token.kind not in ("word", "quoted"):
            raise self._unexpected("the name of an element")
        if isinstance(left, ColumnRef):
            return ColumnRef(f"{left.name}.{token.name}")
        return Call("tupleElement", (left, Literal(token.name.encode(), STRING)))

    # --- operands

    def _prefix(self) -> SyntaxNode:
        token = self.next()
        if token.kind == "number":
            return number_literal(token.text)
        if token.kind == "string":
            return Literal(string_bytes(token.text), STRING)
        if token.kind == "quoted":
            return ColumnRef(token.name)
        if token.kind == "word":
            return self._named(token)
        if token.text == "-":
            if self.peek().kind == "number":
                return number_literal("-" + self.next().text)
            return Call("negate", (self.expression(13),))
        if token.text == "+" and self.peek().kind == "number":
            return number_literal(self.next().text)
        if token.text == "(":
            return self._parenthesis()
        if token.text == "[":
            texts = self.strings()
            if texts is None:
                return Call("array", self._list("]"))
            self._expect("]")
            values = tuple(map(_string, texts))
            if len(values) > _LONG:
                return Literal(values, Array(STRING))
            return Call("array", tuple(Literal(value, STRING) for value in values))
        self._at -= token.kind != "end"
        if token.text == "{":
            raise UnsupportedError("Query parameters are not supported in expressions", name="NOT_IMPLEMENTED")
        raise self._unexpected("an expression")

    def _parenthesis(self) -> SyntaxNode:
        if self.peek().upper in ("SELECT", "WITH") and self.peek(1).kind != "sign":
            raise UnsupportedError("Subqueries are not supported here", name="NOT_IMPLEMENTED")
        if self.accept(")"):
            return Call("tuple", ())
        first = self.expression(0)
        if self.accept(")"):
            # Parentheses get no node: that `(a AND b) AND c` becomes a single AND is harmless.
            return first
        self._expect(",")
        rest = () if self.peek().text == ")" else self._list(")")
        if not rest:
            self._expect(")")
        return Call("tuple", (first, *rest))

    def _list(self, close: str) -> tuple[SyntaxNode, ...]:
        if self.accept(close):
            return ()
        nodes = [self.expression(0)]
        while self.accept(","):
            nodes.append(self.expression(0))
        self._expect(close)
        return tuple(nodes)

    def _named(self, token: Token) -> SyntaxNode:
        upper = token.upper
        if upper == "NOT":
            return Call("not", (self.expression(5),))
        if upper == "CASE":
            return self._case()
        if upper == "INTERVAL" and self.peek().text != "(":
            return self._interval()
        if upper in ("DATE", "TIMESTAMP") and self.peek().kind == "string":
            text = Literal(string_bytes(self.next().text), STRING)
            return Call("toDate" if upper == "DATE" else "toDateTime", (text,))
        if self.peek().kind == "sign" and self.peek().text == "(":
            self._at += 1
            return self._cast() if upper in ("CAST", "TRY_CAST") else self._call(token.text)
        if upper == "NULL":
            return Literal(None, Nullable(Nothing()))
        if upper in ("TRUE", "FALSE"):
            return Literal(int(upper == "TRUE"), Bool())
        if upper in ("INF", "NAN"):
            return Literal(float(upper), Float(64))
        if upper in _RESERVED:
            self._at -= 1
            raise self._unexpected("an expression")
        return ColumnRef(token.text)

    def _call(self, name: str) -> SyntaxNode:
        if name.upper() in ("EXISTS", "ANY", "ALL") and self.peek().upper == "SELECT":
            raise UnsupportedError("Subqueries are not supported here", name="NOT_IMPLEMENTED")
        if self.accept("*"):
            self._expect(")")
            return Call(name, ())
        if self._aggregates:
            return self._aggregate(name)
        args = self._list(")")
        if self.accept("("):
            raise UnsupportedError(f"Parametric function {name} is not supported here", name="NOT_IMPLEMENTED")
        if name.lower() == "and" or name.lower() == "or":
            return Call(name.lower(), args)
        return Call(name, args)

    def _aggregate(self, name: str) -> SyntaxNode:
        """A call after its opening bracket, of a function that may be an aggregate one."""
        distinct = self.accept("DISTINCT")
        args, parameters = self._list(")"), ""
        if not distinct and self.accept("("):
            parameters = f"({', '.join(map(str, args))})"
            distinct = self.accept("DISTINCT")
            args = self._list(")")
        if distinct:
            name = f"{name}Distinct"
        if self.accept("FILTER"):
            self._expect("(")
            self._expect("WHERE")
            name, args = f"{name}If", (*args, self.expression(0))
            self._expect(")")
        return Call(name.lower() if name.lower() in ("and", "or") else name + parameters, args)

    def _cast(self) -> SyntaxNode:
        value = self.expression(0)
        if self.accept("AS"):
            target = self._type_text()
            self._expect(")")
            return Call("CAST", (value, Literal(target.encode(), STRING)))
        self._expect(",")
        target_node = self.expression(0)
        self._expect(")")
        return Call("CAST", (value, target_node))

    def _type_text(self) -> str:
        """The text of a type, up to the end of its parentheses."""
        start = self.peek()
        if start.kind != "word":
            raise self._unexpected("a type")
        self._at += 1
        if self.peek().text == "(" and self.peek().kind == "sign":
            depth = 0
            while True:
                token = self.next()
                if token.kind == "end":
                    raise self._unexpected("')'")
                if token.kind == "sign":
                    depth += (token.text == "(") - (token.text == ")")
                    if depth == 0:
                        break
        return self.text[start.start : self.previous_end]

    def _interval(self) -> SyntaxNode:
        token = self.peek()
        if token.kind == "string":
            self._at += 1
            pieces = string_bytes(token.text).decode(errors="replace").split()
            amount: SyntaxNode = number_literal(pieces[0]) if pieces and _is_integer(pieces[0]) else Literal(0, STRING)
            if isinstance(amount, Literal) and amount.type == STRING:
                raise error("SYNTAX_ERROR", f"Expected a number in the interval {token.text}")
            unit = pieces[1] if len(pieces) == 2 else self.next().text
        else:
            amount = self.expression(12)
            unit = self.next().text
        return Call(f"toInterval{interval_unit(unit)}", (amount,))

    def _case(self) -> SyntaxNode:
        subject = None if self.accept("WHEN") else self.expression(0)
        if subject is not None:
            self._expect("WHEN")
        args: list[SyntaxNode] = []
        while True:
            condition = self.expression(0)
            self._expect("THEN")
            args.append(condition if subject is None else Call("equals", (subject, condition)))
            args.append(self.expression(0))
            if not self.accept("WHEN"):
                break
        args.append(self.expression(0) if self.accept("ELSE") else Literal(None, _NULL_TYPE))
        self._expect("END")
        return Call("multiIf", tuple(args))


def _string(quoted: str) -> bytes:
    body = quoted[1:-1]
    return string_bytes(quoted) if "\\" in body or "'" in body else body.encode("utf-8", "surrogateescape")


_NULL_TYPE: DataType = Nullable(Nothing())
_SHORT_UNITS = {"ss": "Second", "s": "Second", "mi": "Minute", "n": "Minute", "m": "Minute", "hh": "Hour", "h": "Hour",
                "dd": "Day", "d": "Day", "wk": "Week", "ww": "Week", "w": "Week", "mm": "Month", "qq": "Quarter",
                "q": "Quarter", "yyyy": "Year", "yy": "Year", "y": "Year", "ms": "Millisecond", "us": "Microsecond",
                "ns": "Nanosecond"}  # fmt: skip


def interval_unit(text: str) -> str:
    """The unit that `text` names, as in `toIntervalDay`: `day`, `DAYS`, `d` are `Day`. Raises SYNTAX_ERROR."""
    word = text.lower()
    if word in _SHORT_UNITS:
        return _SHORT_UNITS[word]
    unit = word.removesuffix("s").capitalize()
    if unit not in INTERVAL_UNITS:
        raise error("SYNTAX_ERROR", f"Expected the unit of an interval but found '{text}'")
    return unit


def _is_integer(text: str) -> bool:
    return text.lstrip("-").isdigit()
