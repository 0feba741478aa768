"""Parsing of ClickHouse data types, and the types themselves (`core.types.type_tree`).

`parse_type(text)` gives the type, `str(type)` its canonical spelling; the two are inverse. Aliases that ClickHouse
accepts (`INT`, `VARCHAR(10)`, `Decimal64(2)`, …) are parsed as the types that they stand for.

Source: ClickHouse, `src/DataTypes/`; spellings checked against `toTypeName`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.lexer import Token, TokenReader, number_value
from mergelake.core.base.text import unescape
from mergelake.core.types.type_families import (
    ANY_CASE,
    FAMILIES,
    INTERVAL_UNITS as INTERVAL_UNITS,
    LONGER,
    Argument,
)
from mergelake.core.types.type_tree import (
    UUID as UUID,
    AggregateFunction as AggregateFunction,
    Array as Array,
    BFloat16 as BFloat16,
    Bool as Bool,
    DataType as DataType,
    Date as Date,
    Date32 as Date32,
    DateTime as DateTime,
    DateTime64 as DateTime64,
    Decimal as Decimal,
    Dynamic as Dynamic,
    Enum as Enum,
    FixedString as FixedString,
    Float as Float,
    Int as Int,
    Interval as Interval,
    IPv4 as IPv4,
    IPv6 as IPv6,
    Json as Json,
    LowCardinality as LowCardinality,
    Map as Map,
    Nothing as Nothing,
    Nullable as Nullable,
    SimpleAggregateFunction as SimpleAggregateFunction,
    String as String,
    Time as Time,
    Time64 as Time64,
    Tuple as Tuple,
    Unknown as Unknown,
    Variant as Variant,
)

UINT8 = Int(8, signed=False)
UNORDERED = (Map, AggregateFunction, Nothing, Variant, Dynamic, Json, Unknown)
"""Types whose values conditions do not compare: they are in no index, and only a Map may be in a key."""
STRING = String()

_NOT_KEPT = frozenset({"QBit"})
"""Types of ClickHouse that have no storage form here."""
_NAMED = re.compile(r"\b(?:LineString|MultiLineString|MultiPolygon|Point|Polygon|Ring)\b")
"""Custom names that ClickHouse keeps, but `str` of the type does not."""


@lru_cache(maxsize=4096)
def parse_type(text: str) -> DataType:
    """Parse a type. Raises UNKNOWN_TYPE, or ClickHouse's error for invalid parameters, such as BAD_ARGUMENTS."""
    parser = _Parser(text)
    data_type = parser.type()
    parser.finish()
    return data_type


def stored_type(text: str) -> DataType:
    """Like `parse_type`, but `Unknown` for a refused type: one column must not prevent opening a part."""
    try:
        return parse_type(text)
    except MergelakeError:
        return Unknown(text)


def nested_columns(text: str) -> dict[str, DataType] | None:
    """The columns of type `Nested(a A, b B)`: `a` as Array(A), `b` as Array(B); None for another type.

    >>> {name: str(kind) for name, kind in (nested_columns("Nested(a UInt8, b String)") or {}).items()}
    {'a': 'Array(UInt8)', 'b': 'Array(String)'}
    """
    if re.match(r"\s*Nested\s*\(", text) is None:
        return None
    whole = parse_type(text)
    assert isinstance(whole, Array)
    assert isinstance(whole.inner, Tuple)
    if not whole.inner.names:
        raise error("BAD_ARGUMENTS", f"The columns of {text.strip()} need names")
    return {name: Array(kind) for name, kind in zip(whole.inner.names, whole.inner.elements, strict=True)}


def is_spelled(name: str, data_type: DataType) -> bool:
    """Whether `str(data_type)` is `name`; false for custom names (`Point`)."""
    return _NAMED.search(name) is None and str(data_type) == name


def inner_type(data_type: DataType) -> DataType:
    """The type without its LowCardinality, Nullable and SimpleAggregateFunction wrappers."""
    while isinstance(data_type, (LowCardinality, Nullable, SimpleAggregateFunction)):
        data_type = data_type.inner
    return data_type


def is_nullable(data_type: DataType) -> bool:
    """Whether a value may be NULL: Nullable(T), LowCardinality(Nullable(T)) or Dynamic.

    False for a Variant: in Arrow it is a struct that is never NULL, but all of its fields may be.
    """
    while isinstance(data_type, (LowCardinality, SimpleAggregateFunction)):
        data_type = data_type.inner
    return isinstance(data_type, (Nullable, Dynamic))


def parts(data_type: DataType) -> Iterator[DataType]:
    """The type and all inner types, in order, without the arguments of aggregate functions."""
    yield data_type
    inside: tuple[DataType, ...] = ()
    match data_type:
        case Nullable(inner) | Array(inner) | LowCardinality(inner) | SimpleAggregateFunction(_, inner):
            inside = (inner,)
        case Map(key, value):
            inside = (key, value)
        case Tuple(elements) | Variant(elements):
            inside = elements
        case Json(typed):
            inside = tuple(kind for _, kind in typed)
    for each in inside:
        yield from parts(each)


def holds(data_type: DataType, *kinds: type) -> bool:
    """Whether the type or an inner type is one of `kinds`."""
    return any(isinstance(each, kinds) for each in parts(data_type))


_DEPTH_MAX = 100
"""Maximum nesting of a type: more could exhaust Python's stack."""
_DIGITS_MAX = 40
_Element = tuple[str, int | None]
"""An Enum's name, and its number if it is explicit."""


class _Parser(TokenReader):
    """Recursive descent parser of one type."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def _expect(self, sign: str) -> None:
        if not self.accept(sign):
            shown = self.peek().text or "the end"
            raise error("SYNTAX_ERROR", f"Expected '{sign}' but found {shown} in the type '{self.text}'")

    def finish(self) -> None:
        if self.peek().kind != "end":
            raise error("SYNTAX_ERROR", f"Unexpected '{self.peek().text}' in the type '{self.text}'")

    def type(self) -> DataType:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise error("TOO_DEEP_RECURSION", f"A type is nested deeper than {_DEPTH_MAX} levels")
        data_type = self._named()
        self._depth -= 1
        return data_type

    def _named(self) -> DataType:
        token = self.next()
        word = token.text
        if token.kind != "word":
            raise error("SYNTAX_ERROR", f"Expected the name of a type but found '{word}' in '{self.text}'")
        while word.lower() in LONGER and self.peek().kind == "word":
            longer = f"{word} {self.peek().text}"
            if longer.lower() not in LONGER and longer.lower() not in ANY_CASE:
                break
            word, self._at = longer, self._at + 1
        parametric = _PARAMETRIC.get(word) or _PARAMETRIC_ANY_CASE.get(word.lower())
        if parametric is not None:
            return parametric(self)
        family = FAMILIES.get(word) or ANY_CASE.get(word.lower())
        if word in _NOT_KEPT:
            raise error("NOT_IMPLEMENTED", f"Columns of type {word} are not supported", "Name a type for each value")
        if family is None:
            raise _unknown_type(word)
        return family(word, self._arguments())

    def _arguments(self) -> list[Argument]:
        """Parse optional arguments in brackets; a comma may follow the last."""
        out: list[Argument] = []
        more = self.accept("(")
        while more and not self.accept(")"):
            first, depth = self._at, 0
            while self.peek().kind != "end" and (depth or self.peek().upper not in (",", ")")):
                token = self.next()
                if depth == 0 and token.kind == "word" and self.peek().kind == "word":
                    self._expect(")")
                depth += (token.upper in ("(", "[")) - (token.upper in (")", "]"))
            taken = self._tokens[first : self._at]
            if not taken:
                self._expect(")")
            out.append(_argument(taken))
            if not self.accept(","):
                self._expect(")")
                break
        return out

    def _number(self) -> int:
        sign = self.next().text if self.at("-") or self.at("+") else ""
        token = self.next()
        value = number_value(sign + token.text) if token.kind == "number" and len(token.text) <= _DIGITS_MAX else None
        if not isinstance(value, int):
            raise error("BAD_ARGUMENTS", f"Expected a number but found '{sign}{token.text}' in the type '{self.text}'")
        return value

    def _string(self) -> str:
        token = self.next()
        if token.kind != "string":
            raise error("BAD_ARGUMENTS", f"Expected a quoted string but found '{token.text}' in the type '{self.text}'")
        return unescape(token.text)

    def _takes(self, count: int) -> None:
        """Check that the brackets hold `count` types, and go past the opening bracket.

        Raises NUMBER_OF_ARGUMENTS_DOESNT_MATCH, or UNEXPECTED_AST_STRUCTURE for a literal.
        """
        at, name = self._at, self._tokens[self._at - 1].text
        arguments = self._arguments()
        if len(arguments) != count:
            message = f"The type {name} takes {count} {'type' if count == 1 else 'types'}, got {len(arguments)}"
            raise error("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", message, f"Write {name}({', '.join(['String'] * count)})")
        self._refuse_literals(arguments)
        self._at = at + 1

    def _refuse_literals(self, arguments: Sequence[Argument]) -> None:
        for argument in arguments:
            if argument.kind in ("number", "string"):
                raise error("UNEXPECTED_AST_STRUCTURE", f"{argument.text} is not a type, in '{self.text}'")

    def _close(self) -> None:
        """Go past the closing bracket and an optional comma before it."""
        self.accept(",")
        self._expect(")")

    def _inner(self) -> DataType:
        self._takes(1)
        inner = self.type()
        self._close()
        return inner

    def nullable(self) -> DataType:
        inner = self._inner()
        if isinstance(inner, (Nullable, Array, Map, LowCardinality, AggregateFunction, Variant, Dynamic)):
            raise error("ILLEGAL_TYPE_OF_ARGUMENT", f"Nested type {inner} cannot be inside Nullable type")
        return Nullable(inner)

    def low_cardinality(self) -> DataType:
        inner = self._inner()
        base = inner.inner if isinstance(inner, Nullable) else inner
        if not isinstance(base, (String, FixedString, Date, Date32, DateTime, Int, Float, UUID, IPv4, IPv6, Bool)):
            raise error(
                "ILLEGAL_TYPE_OF_ARGUMENT",
                f"LowCardinality supports numbers, strings, Date, DateTime and UUID, but got {inner}",
            )
        return LowCardinality(inner)

    def array(self) -> DataType:
        return Array(self._inner())

    def map(self) -> DataType:
        self._takes(2)
        key = self.type()
        self._expect(",")
        value = self.type()
        self._close()
        if is_nullable(key):
            raise error("BAD_ARGUMENTS", f"Map cannot have a key of type {key}")
        return Map(key, value)

    def tuple(self) -> DataType:
        names: list[str] = []
        elements: list[DataType] = []
        if not self.at("("):
            return Tuple(())
        self._expect("(")
        while not self.accept(")"):
            if elements:
                self._expect(",")
            if self.peek().kind == "quoted" or (self.peek().kind == "word" and self.peek(1).kind == "word"):
                names.append(self.next().name)
            elements.append(self.type())
        if names and len(names) != len(elements):
            raise error("BAD_ARGUMENTS", f"Names are specified not for all elements of the tuple '{self.text}'")
        if len(set(names)) != len(names):
            raise error("DUPLICATE_COLUMN", f"Tuple names must be unique in '{self.text}'")
        return Tuple(tuple(elements), tuple(names))

    def nested(self) -> DataType:
        inner = self.tuple()
        if isinstance(inner, Tuple) and not inner.elements:
            raise error("EMPTY_DATA_PASSED", "Nested cannot be empty", "Write Nested(a UInt8, b String)")
        return Array(inner)

    def enum(self, bits: int) -> DataType:
        items: list[tuple[str, int]] = []
        numbered: list[bool] = []
        if self.accept("("):
            while not self.accept(")"):
                if items:
                    self._expect(",")
                    if self.accept(")"):
                        break
                name, value = self._enum_element()
                numbered.append(value is not None)
                following = items[-1][1] + 1 if items else 1
                items.append((name, following if value is None else value))
        # All elements have a number or none has, but for the first, which may differ.
        if len(set(numbered[1:])) > 1:
            raise self._enum_shape()
        low, high = (-128, 127) if bits in (0, 8) else (-32768, 32767)
        if bits == 0:
            bits = 8 if all(-128 <= v <= 127 for _, v in items) else 16
            low, high = (-128, 127) if bits == 8 else (-32768, 32767)
        if not items:
            raise error("EMPTY_DATA_PASSED", "Enum data type cannot be empty", "Write Enum8('a' = 1, 'b' = 2)")
        for name, value in items:
            if not low <= value <= high:
                raise error("ARGUMENT_OUT_OF_BOUND", f"Value {value} of '{name}' does not fit into Enum{bits}")
        if len({n for n, _ in items}) != len(items) or len({v for _, v in items}) != len(items):
            raise error("SYNTAX_ERROR", f"Duplicate names or values in the enum '{self.text}'")
        return Enum(bits, tuple(sorted(items, key=lambda item: item[1])))

    def _enum_element(self) -> _Element:
        token = self.next()
        if token.kind != "string":
            raise self._enum_shape()
        if not self.accept("="):
            return unescape(token.text), None
        signed = self.at("-") or self.at("+")
        number = self.peek(signed)
        if number.kind != "number" or not isinstance(number_value(number.text), int):
            raise self._enum_shape()
        return unescape(token.text), self._number()

    def _enum_shape(self) -> MergelakeError:
        return error(
            "UNEXPECTED_AST_STRUCTURE",
            f"Elements of an Enum are 'name' = number, all of them, or 'name', in '{self.text}'",
            "Only the first may have a number of its own where the others have none, or none where they have one",
        )

    def simple_aggregate(self) -> DataType:
        self._expect("(")
        function = self._function_name()
        self._expect(",")
        inner = self.type()
        self._expect(")")
        return SimpleAggregateFunction(function, inner)

    def aggregate(self) -> DataType:
        self._expect("(")
        version = None
        if self.peek().kind == "number":
            version = self._number()
            self._expect(",")
        function = self._function_name()
        arguments: list[DataType] = []
        while self.accept(","):
            arguments.append(self.type())
        self._expect(")")
        return AggregateFunction(function, tuple(arguments), version)

    def _function_name(self) -> str:
        name = self.next()
        if name.kind != "word":
            raise error("SYNTAX_ERROR", f"Expected the name of an aggregate function in the type '{self.text}'")
        if not self.accept("("):
            return name.text
        depth, parts = 1, [name.text, "("]
        while depth:
            token = self.next()
            if token.kind == "end":
                raise error("SYNTAX_ERROR", f"The parameters of {name.text} have no end in the type '{self.text}'")
            depth += (token.upper in ("(", "[")) - (token.upper in (")", "]"))
            parts.append(", " if token.upper == "," else token.text)
        return "".join(parts)

    def variant(self) -> DataType:
        alternatives: dict[str, DataType] = {}
        at = self._at
        self._refuse_literals(self._arguments())
        self._at = at
        if not self.accept("("):
            raise error("BAD_ARGUMENTS", "Variant needs from 1 to 254 types", "Write Variant(String, UInt8)")
        while not self.accept(")"):
            if alternatives:
                self._expect(",")
            start = self.peek().start
            inner = self.type()
            spelled = self.text[start : self.previous_end]
            if is_nullable(inner):
                raise error(
                    "BAD_ARGUMENTS", f"Type {inner} is not allowed inside Variant type", "A Variant is Nullable"
                )
            if isinstance(inner, Variant):
                alternatives |= zip(inner.names, inner.alternatives, strict=True)
            elif not isinstance(inner, Nothing):
                alternatives[spelled if _NAMED.search(spelled) else str(inner)] = inner
        if not 1 <= len(alternatives) < 255:
            raise error("BAD_ARGUMENTS", f"Variant needs from 1 to 254 types, got {len(alternatives)}")
        names = tuple(sorted(alternatives))
        return Variant(tuple(alternatives[name] for name in names), names)

    def dynamic(self) -> DataType:
        limit = 32
        if self.accept("(") and not self.accept(")"):
            if self.peek().text != "max_types":
                raise error("SYNTAX_ERROR", f"Expected max_types = a number in the type '{self.text}'")
            limit = self._option("max_types", 254)
            self._expect(")")
        return Dynamic(limit)

    def _option(self, name: str, value_max: int) -> int:
        """Parse the value of the option `name = value`."""
        if self.next().text != name:
            raise error("BAD_ARGUMENTS", f"Expected {name} = a number in the type '{self.text}'")
        self._expect("=")
        value = self._number()
        if not 0 <= value <= value_max:
            raise error("BAD_ARGUMENTS", f"{name} must be from 0 to {value_max}, got {value}")
        return value

    def json(self) -> DataType:
        typed: dict[str, DataType] = {}
        skip: set[str] = set()
        regexps: set[str] = set()
        limits = {"max_dynamic_paths": 1024, "max_dynamic_types": 32}
        more = self.accept("(") and not self.accept(")")
        while more:
            word = self.peek().text
            if word in limits and self.peek(1).upper == "=":
                limits[word] = self._option(word, 10000 if word == "max_dynamic_paths" else 254)
            elif self.accept("SKIP"):
                if self.accept("REGEXP"):
                    regexps.add(self._string())
                else:
                    skip.add(self._path())
            else:
                path = self._path()
                if path in typed:
                    raise error("BAD_ARGUMENTS", f"Path {path} is there twice in the type '{self.text}'")
                typed[path] = self.type()
            more = self.accept(",")
            if not more:
                self._expect(")")
        return Json(
            tuple(sorted(typed.items(), key=lambda item: item[0].encode(errors="surrogateescape"))),
            limits["max_dynamic_paths"],
            limits["max_dynamic_types"],
            tuple(sorted(skip)),
            tuple(sorted(regexps)),
        )

    def _path(self) -> str:
        """Parse a JSON path: names separated by dots."""
        parts = []
        while True:
            token = self.next()
            if not token.is_name:
                raise error("SYNTAX_ERROR", f"Expected a path but found '{token.text}' in the type '{self.text}'")
            parts.append(token.name)
            if not self.accept("."):
                return ".".join(parts)


def _argument(tokens: Sequence[Token]) -> Argument:
    """An argument from its tokens."""
    text = "".join(token.text for token in tokens)
    first = tokens[0]
    if len(tokens) == 1 and first.kind in ("number", "string"):
        return Argument(first.kind, text)
    if len(tokens) == 2 and first.upper in ("-", "+") and tokens[1].kind == "number":
        return Argument("number", text)
    return Argument("null" if len(tokens) == 1 and first.upper == "NULL" else "other", text)


_NAMES = (
    *FAMILIES, *ANY_CASE, "Bool", "Date", "Date32", "DateTime", "DateTime64", "Decimal", "Time", "Time64", "Array",
    "Map", "Tuple", "Nullable", "LowCardinality", "Nested", "JSON", "Variant", "Dynamic", "Enum8", "Enum16",
)  # fmt: skip


def _unknown_type(word: str) -> MergelakeError:
    import difflib

    near = difflib.get_close_matches(word, _NAMES, n=1)
    hint = f"Maybe you meant {near[0]}" if near else ""
    return error("UNKNOWN_TYPE", f"Unknown data type family: {word}", hint)


_PARAMETRIC: dict[str, Callable[[_Parser], DataType]] = {
    "Nullable": _Parser.nullable,
    "LowCardinality": _Parser.low_cardinality,
    "Array": _Parser.array,
    "Map": _Parser.map,
    "Tuple": _Parser.tuple,
    "Nested": _Parser.nested,
    "Enum": lambda parser: parser.enum(0),
    "Enum8": lambda parser: parser.enum(8),
    "Enum16": lambda parser: parser.enum(16),
    "SimpleAggregateFunction": _Parser.simple_aggregate,
    "AggregateFunction": _Parser.aggregate,
    "Variant": _Parser.variant,
    "Dynamic": _Parser.dynamic,
    "JSON": _Parser.json,
}
_PARAMETRIC_ANY_CASE: dict[str, Callable[[_Parser], DataType]] = {
    "enum": lambda parser: parser.enum(0),
}
