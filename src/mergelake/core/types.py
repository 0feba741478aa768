"""ClickHouse data types as values: a closed sum, parsed from and printed as ClickHouse text.

`parse_type(text)` gives the type, `str(type)` its canonical spelling (the one `columns.txt` holds), and
the two are inverse. Aliases that ClickHouse accepts (`INT`, `VARCHAR(10)`, `Decimal64(2)`, …) parse to
what they stand for. How a type lies on disk is `format`'s business, how it looks as Arrow `core.arrow`'s.

Source: ClickHouse, `src/DataTypes/`; spellings checked against `toTypeName`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mergelake.core.errors import MergelakeError, error
from mergelake.core.text import unescape
from mergelake.core.type_tree import (
    UUID as UUID,
)
from mergelake.core.type_tree import (
    AggregateFunction as AggregateFunction,
)
from mergelake.core.type_tree import (
    Array as Array,
)
from mergelake.core.type_tree import (
    BFloat16 as BFloat16,
)
from mergelake.core.type_tree import (
    Bool as Bool,
)
from mergelake.core.type_tree import (
    DataType as DataType,
)
from mergelake.core.type_tree import (
    Date as Date,
)
from mergelake.core.type_tree import (
    Date32 as Date32,
)
from mergelake.core.type_tree import (
    DateTime as DateTime,
)
from mergelake.core.type_tree import (
    DateTime64 as DateTime64,
)
from mergelake.core.type_tree import (
    Decimal as Decimal,
)
from mergelake.core.type_tree import (
    Dynamic as Dynamic,
)
from mergelake.core.type_tree import (
    Enum as Enum,
)
from mergelake.core.type_tree import (
    FixedString as FixedString,
)
from mergelake.core.type_tree import (
    Float as Float,
)
from mergelake.core.type_tree import (
    Int as Int,
)
from mergelake.core.type_tree import (
    Interval as Interval,
)
from mergelake.core.type_tree import (
    IPv4 as IPv4,
)
from mergelake.core.type_tree import (
    IPv6 as IPv6,
)
from mergelake.core.type_tree import (
    Json as Json,
)
from mergelake.core.type_tree import (
    LowCardinality as LowCardinality,
)
from mergelake.core.type_tree import (
    Map as Map,
)
from mergelake.core.type_tree import (
    Nothing as Nothing,
)
from mergelake.core.type_tree import (
    Nullable as Nullable,
)
from mergelake.core.type_tree import (
    SimpleAggregateFunction as SimpleAggregateFunction,
)
from mergelake.core.type_tree import (
    String as String,
)
from mergelake.core.type_tree import (
    Time as Time,
)
from mergelake.core.type_tree import (
    Time64 as Time64,
)
from mergelake.core.type_tree import (
    Tuple as Tuple,
)
from mergelake.core.type_tree import (
    Unknown as Unknown,
)
from mergelake.core.type_tree import (
    Variant as Variant,
)

UINT8 = Int(8, signed=False)
UNORDERED = (Map, AggregateFunction, Nothing, Variant, Dynamic, Json, Unknown)
"""Types whose values no condition compares: they are in no index, and only a Map may be in a key."""
STRING = String()

INTERVAL_UNITS = (
    "Nanosecond",
    "Microsecond",
    "Millisecond",
    "Second",
    "Minute",
    "Hour",
    "Day",
    "Week",
    "Month",
    "Quarter",
    "Year",
)

_PLAIN: dict[str, DataType] = {
    **{f"Int{b}": Int(b, signed=True) for b in (8, 16, 32, 64, 128, 256)},
    **{f"UInt{b}": Int(b, signed=False) for b in (8, 16, 32, 64, 128, 256)},
    **{f"Interval{u}": Interval(u) for u in INTERVAL_UNITS},
    "Float32": Float(32),
    "Float64": Float(64),
    "BFloat16": BFloat16(),
    "Bool": Bool(),
    "String": STRING,
    "Date": Date(),
    "Date32": Date32(),
    "DateTime": DateTime(),
    "Time": Time(),
    "UUID": UUID(),
    "IPv4": IPv4(),
    "IPv6": IPv6(),
    "Nothing": Nothing(),
}

_POINT = Tuple((Float(64), Float(64)))
_ALIASES: dict[str, DataType] = {  # case-insensitive in ClickHouse; widths are read and forgotten, as there
    "tinyint": Int(8, signed=True),
    "int1": Int(8, signed=True),
    "smallint": Int(16, signed=True),
    "int": Int(32, signed=True),
    "integer": Int(32, signed=True),
    "bigint": Int(64, signed=True),
    "float": Float(32),
    "real": Float(32),
    "double": Float(64),
    "bool": Bool(),
    "boolean": Bool(),
    "varchar": STRING,
    "char": STRING,
    "text": STRING,
    "blob": STRING,
    "timestamp": DateTime(),
    "date": Date(),
    "datetime": DateTime(),
    "inet4": IPv4(),
    "inet6": IPv6(),
    "point": _POINT,
    "ring": Array(_POINT),
    "linestring": Array(_POINT),
    "multilinestring": Array(Array(_POINT)),
    "polygon": Array(Array(_POINT)),
    "multipolygon": Array(Array(Array(_POINT))),
    "geometry": Variant(
        (Array(_POINT), Array(Array(_POINT)), Array(Array(Array(_POINT))), _POINT, Array(Array(_POINT)), Array(_POINT)),
        ("LineString", "MultiLineString", "MultiPolygon", "Point", "Polygon", "Ring"),
    ),
}

_NOT_KEPT = frozenset({"QBit"})
"""Types of ClickHouse that have no storage form here."""
_NAMED = re.compile(r"\b(?:LineString|MultiLineString|MultiPolygon|Point|Polygon|Ring)\b")
"""Names that ClickHouse keeps and `str` of what they stand for does not give."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>[-+]?0[xX][0-9A-Fa-f]+|[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)
    |(?P<text>'(?:[^'\\]|\\.|'')*')
    |(?P<quoted>`(?:[^`\\]|\\.)*`|"(?:[^"\\]|\\.)*")
    |(?P<sign>[][(),=.]))""",
    re.VERBOSE,
)


def parse_type(text: str) -> DataType:
    """The type that `text` names. Raises UNKNOWN_TYPE, or BAD_ARGUMENTS and friends for bad parameters."""
    parser = _Parser(text)
    found = parser.type()
    parser.end()
    return found


def stored_type(text: str) -> DataType:
    """As `parse_type`, and `Unknown` for what it refuses: one column must not keep a part from being opened."""
    try:
        return parse_type(text)
    except MergelakeError:
        return Unknown(text)


def nested_columns(text: str) -> dict[str, DataType] | None:
    """The columns that a column of type `Nested(a A, b B)` stands for: `a` as Array(A), `b` as Array(B); else None.

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
    """Whether `str(data_type)` is `name`, which some types with names of their own (`Point`) are not."""
    return _NAMED.search(name) is None and str(data_type) == name


def inner_type(data_type: DataType) -> DataType:
    """The type without its LowCardinality, Nullable and SimpleAggregateFunction wrappers."""
    while isinstance(data_type, (LowCardinality, Nullable, SimpleAggregateFunction)):
        data_type = data_type.inner
    return data_type


def is_nullable(data_type: DataType) -> bool:
    """Whether a value may be NULL: Nullable(T), LowCardinality(Nullable(T)) or Dynamic.

    A Variant is not among them: as Arrow it is a struct that is always there, of which all fields may be NULL.
    """
    while isinstance(data_type, (LowCardinality, SimpleAggregateFunction)):
        data_type = data_type.inner
    return isinstance(data_type, (Nullable, Dynamic))


def parts(data_type: DataType) -> Iterator[DataType]:
    """The type and those inside of it, in order; not the arguments of aggregate functions."""
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
    """Whether the type or one inside of it is one of `kinds`."""
    return any(isinstance(each, kinds) for each in parts(data_type))


_DEPTH_MAX = 100
"""Levels of a type's text: more would exhaust Python's stack somewhere on the way to the bytes."""
_DIGITS_MAX = 40
_Element = tuple[str, int | None]
"""A name of an Enum, and its number if it is given."""
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9A-Fa-f]+|\d+)")


class _Parser:
    """Recursive descent over one type's text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        self._spans: list[tuple[int, int]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise error("SYNTAX_ERROR", f"Cannot read the type '{text}' at '{text[at:].strip()[:20]}'")
            self._tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
            self._spans.append((match.start(str(match.lastgroup)), match.end()))
            at = match.end()
        self._at = 0
        self._depth = 0

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _accept(self, sign: str) -> bool:
        if self._peek() == ("sign", sign):
            self._at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            found = self._peek()[1] or "the end"
            raise error("SYNTAX_ERROR", f"Expected '{sign}' but found {found} in the type '{self._text}'")

    def end(self) -> None:
        if self._peek()[0] != "end":
            raise error("SYNTAX_ERROR", f"Unexpected '{self._peek()[1]}' in the type '{self._text}'")

    def type(self) -> DataType:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise error("TOO_DEEP_RECURSION", f"A type is nested deeper than {_DEPTH_MAX} levels")
        found = self._named()
        self._depth -= 1
        return found

    def _named(self) -> DataType:
        kind, word = self._next()
        if kind != "word":
            raise error("SYNTAX_ERROR", f"Expected the name of a type but found '{word}' in '{self._text}'")
        parametric = _PARAMETRIC.get(word) or _PARAMETRIC_ANY_CASE.get(word.lower())
        if parametric is not None and (self._peek() == ("sign", "(") or word not in _PLAIN):
            return parametric(self)
        if word in _PLAIN:
            return _PLAIN[word]
        alias = _ALIASES.get(word.lower())
        if word in _NOT_KEPT:
            raise error("NOT_IMPLEMENTED", f"Columns of type {word} are not supported", "Name a type for each value")
        if alias is None:
            raise _unknown_type(word)
        if self._accept("("):
            self._number()
            self._expect(")")
        return alias

    def _number(self) -> int:
        kind, word = self._next()
        if kind != "number" or len(word) > _DIGITS_MAX or _INTEGER.fullmatch(word) is None:
            raise error("BAD_ARGUMENTS", f"Expected a number but found '{word}' in the type '{self._text}'")
        return int(word, 16 if "x" in word.lower() else 10)

    def _string(self) -> str:
        kind, word = self._next()
        if kind != "text":
            raise error("BAD_ARGUMENTS", f"Expected a quoted string but found '{word}' in the type '{self._text}'")
        return unescape(word)

    def _one(self) -> DataType:
        self._expect("(")
        inner = self.type()
        self._expect(")")
        return inner

    def nullable(self) -> DataType:
        inner = self._one()
        if isinstance(inner, (Nullable, Array, Map, LowCardinality, AggregateFunction, Variant, Dynamic)):
            raise error("ILLEGAL_TYPE_OF_ARGUMENT", f"Nested type {inner} cannot be inside Nullable type")
        return Nullable(inner)

    def low_cardinality(self) -> DataType:
        inner = self._one()
        base = inner.inner if isinstance(inner, Nullable) else inner
        if not isinstance(base, (String, FixedString, Date, Date32, DateTime, Int, Float, UUID, IPv4, IPv6, Bool)):
            raise error(
                "ILLEGAL_TYPE_OF_ARGUMENT",
                f"LowCardinality supports numbers, strings, Date, DateTime and UUID, but got {inner}",
            )
        return LowCardinality(inner)

    def array(self) -> DataType:
        return Array(self._one())

    def map(self) -> DataType:
        self._expect("(")
        key = self.type()
        self._expect(",")
        value = self.type()
        self._expect(")")
        if is_nullable(key):
            raise error("BAD_ARGUMENTS", f"Map cannot have a key of type {key}")
        return Map(key, value)

    def tuple(self) -> DataType:
        self._expect("(")
        names: list[str] = []
        elements: list[DataType] = []
        while not self._accept(")"):
            if elements:
                self._expect(",")
            kind, word = self._peek()
            following = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else ("end", "")
            if kind == "quoted" or (kind == "word" and following[0] == "word"):
                self._at += 1
                names.append(unescape(word) if kind == "quoted" else word)
            elements.append(self.type())
        if names and len(names) != len(elements):
            raise error("BAD_ARGUMENTS", f"Names are specified not for all elements of the tuple '{self._text}'")
        if len(set(names)) != len(names):
            raise error("DUPLICATE_COLUMN", f"Tuple names must be unique in '{self._text}'")
        return Tuple(tuple(elements), tuple(names))

    def nested(self) -> DataType:
        inner = self.tuple()
        return Array(inner)

    def fixed_string(self) -> DataType:
        self._expect("(")
        length = self._number()
        self._expect(")")
        if not 1 <= length <= 0xFFFFFF:
            raise error("ARGUMENT_OUT_OF_BOUND", f"FixedString size must be from 1 to 16777215, got {length}")
        return FixedString(length)

    def datetime(self) -> DataType:
        zone = ""
        if self._accept("("):
            if self._peek()[0] == "number":
                self._at -= 1
                return self.datetime64()
            zone = self._string()
            self._expect(")")
        return DateTime(zone)

    def datetime64(self) -> DataType:
        precision, zone = 3, ""
        if self._accept("("):
            precision = self._number()
            if self._accept(","):
                zone = self._string()
            self._expect(")")
        if not 0 <= precision <= 9:
            raise error("ARGUMENT_OUT_OF_BOUND", f"Scale {precision} is out of bounds (0 to 9) in '{self._text}'")
        return DateTime64(precision, zone)

    def time64(self) -> DataType:
        precision = 3
        if self._accept("("):
            precision = self._number()
            self._expect(")")
        return Time64(precision)

    def decimal(self) -> DataType:
        precision, scale = 10, 0
        if self._accept("("):
            precision = self._number()
            if self._accept(","):
                scale = self._number()
            self._expect(")")
        return self._decimal(precision, scale)

    def sized_decimal(self, precision: int) -> DataType:
        self._expect("(")
        scale = self._number()
        self._expect(")")
        return self._decimal(precision, scale)

    def _decimal(self, precision: int, scale: int) -> DataType:
        if not 1 <= precision <= 76:
            raise error("ARGUMENT_OUT_OF_BOUND", f"Wrong precision {precision}: it must be between 1 and 76")
        if not 0 <= scale <= precision:
            raise error(
                "ARGUMENT_OUT_OF_BOUND", f"Wrong scale {scale}: it must be between 0 and the precision {precision}"
            )
        return Decimal(precision, scale)

    def enum(self, bits: int) -> DataType:
        items: list[tuple[str, int]] = []
        numbered: list[bool] = []
        if self._accept("("):
            while not self._accept(")"):
                if items:
                    self._expect(",")
                    if self._accept(")"):
                        break
                name, value = self._enum_element()
                numbered.append(value is not None)
                following = items[-1][1] + 1 if items else 1
                items.append((name, following if value is None else value))
        # The first may go without a number, or alone have one from which the others are counted.
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
            raise error("SYNTAX_ERROR", f"Duplicate names or values in the enum '{self._text}'")
        return Enum(bits, tuple(sorted(items, key=lambda item: item[1])))

    def _enum_element(self) -> _Element:
        kind, word = self._next()
        if kind != "text":
            raise self._enum_shape()
        if not self._accept("="):
            return unescape(word), None
        if self._peek()[0] != "number" or _INTEGER.fullmatch(self._peek()[1]) is None:
            raise self._enum_shape()
        return unescape(word), self._number()

    def _enum_shape(self) -> MergelakeError:
        return error(
            "UNEXPECTED_AST_STRUCTURE",
            f"Elements of an Enum are 'name' = number, all of them, or 'name', in '{self._text}'",
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
        if self._peek()[0] == "number":
            version = self._number()
            self._expect(",")
        function = self._function_name()
        arguments: list[DataType] = []
        while self._accept(","):
            arguments.append(self.type())
        self._expect(")")
        return AggregateFunction(function, tuple(arguments), version)

    def _function_name(self) -> str:
        kind, word = self._next()
        if kind != "word":
            raise error("SYNTAX_ERROR", f"Expected the name of an aggregate function in the type '{self._text}'")
        if not self._accept("("):
            return word
        depth, parts = 1, [word, "("]
        while depth:
            kind, token = self._next()
            if kind == "end":
                raise error("SYNTAX_ERROR", f"The parameters of {word} have no end in the type '{self._text}'")
            depth += (token in ("(", "[")) - (token in (")", "]")) if kind == "sign" else 0
            parts.append(", " if (kind, token) == ("sign", ",") else token)
        return "".join(parts)

    def variant(self) -> DataType:
        found: dict[str, DataType] = {}
        self._expect("(")
        while not self._accept(")"):
            if found:
                self._expect(",")
            start = self._spans[min(self._at, len(self._spans) - 1)][0]
            inner = self.type()
            spelled = self._text[start : self._spans[self._at - 1][1]]
            if is_nullable(inner):
                raise error(
                    "BAD_ARGUMENTS", f"Type {inner} is not allowed inside Variant type", "A Variant is Nullable"
                )
            if isinstance(inner, Variant):
                found |= zip(inner.names, inner.alternatives, strict=True)
            elif not isinstance(inner, Nothing):
                found[spelled if _NAMED.search(spelled) else str(inner)] = inner
        if not 1 <= len(found) < 255:
            raise error("BAD_ARGUMENTS", f"Variant needs from 1 to 254 types, got {len(found)}")
        names = tuple(sorted(found))
        return Variant(tuple(found[name] for name in names), names)

    def dynamic(self) -> DataType:
        limit = 32
        if self._accept("("):
            limit = self._option("max_types", 254)
            self._expect(")")
        return Dynamic(limit)

    def _option(self, name: str, most: int) -> int:
        """The value of `name = value`."""
        if self._next() != ("word", name):
            raise error("BAD_ARGUMENTS", f"Expected {name} = a number in the type '{self._text}'")
        self._expect("=")
        value = self._number()
        if not 0 <= value <= most:
            raise error("BAD_ARGUMENTS", f"{name} must be from 0 to {most}, got {value}")
        return value

    def json(self) -> DataType:
        typed: dict[str, DataType] = {}
        skip: set[str] = set()
        regexps: set[str] = set()
        limits = {"max_dynamic_paths": 1024, "max_dynamic_types": 32}
        more = self._accept("(") and not self._accept(")")
        while more:
            kind, word = self._peek()
            following = self._tokens[self._at + 1 : self._at + 2]
            if kind == "word" and word in limits and following == [("sign", "=")]:
                limits[word] = self._option(word, 10000 if word == "max_dynamic_paths" else 254)
            elif kind == "word" and word.upper() == "SKIP":
                self._at += 1
                if self._peek()[1].upper() == "REGEXP" and self._peek()[0] == "word":
                    self._at += 1
                    regexps.add(self._string())
                else:
                    skip.add(self._path())
            else:
                path = self._path()
                if path in typed:
                    raise error("BAD_ARGUMENTS", f"Path {path} is there twice in the type '{self._text}'")
                typed[path] = self.type()
            more = self._accept(",")
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
        """A path of JSON: names with dots between them."""
        parts = []
        while True:
            kind, word = self._next()
            if kind not in ("word", "quoted"):
                raise error("SYNTAX_ERROR", f"Expected a path but found '{word}' in the type '{self._text}'")
            parts.append(unescape(word) if kind == "quoted" else word)
            if not self._accept("."):
                return ".".join(parts)


def _unknown_type(word: str) -> MergelakeError:
    import difflib

    near = difflib.get_close_matches(word, [*_PLAIN, *_PARAMETRIC], n=1)
    hint = f"Maybe you meant {near[0]}" if near else ""
    return error("UNKNOWN_TYPE", f"Unknown data type family: {word}", hint)


_PARAMETRIC: dict[str, Callable[[_Parser], DataType]] = {
    "Nullable": _Parser.nullable,
    "LowCardinality": _Parser.low_cardinality,
    "Array": _Parser.array,
    "Map": _Parser.map,
    "Tuple": _Parser.tuple,
    "Nested": _Parser.nested,
    "FixedString": _Parser.fixed_string,
    "DateTime": _Parser.datetime,
    "DateTime64": _Parser.datetime64,
    "Time64": _Parser.time64,
    "Enum": lambda parser: parser.enum(0),
    "Enum8": lambda parser: parser.enum(8),
    "Enum16": lambda parser: parser.enum(16),
    "Decimal32": lambda parser: parser.sized_decimal(9),
    "Decimal64": lambda parser: parser.sized_decimal(18),
    "Decimal128": lambda parser: parser.sized_decimal(38),
    "Decimal256": lambda parser: parser.sized_decimal(76),
    "SimpleAggregateFunction": _Parser.simple_aggregate,
    "AggregateFunction": _Parser.aggregate,
    "Variant": _Parser.variant,
    "Dynamic": _Parser.dynamic,
    "JSON": _Parser.json,
}
_PARAMETRIC_ANY_CASE: dict[str, Callable[[_Parser], DataType]] = {
    "decimal": _Parser.decimal,
    "dec": _Parser.decimal,
    "numeric": _Parser.decimal,
    "enum": lambda parser: parser.enum(0),
}
