"""ClickHouse data types as values: a closed sum, parsed from and printed as ClickHouse text.

`parse_type(text)` gives the type, `str(type)` its canonical spelling (the one `columns.txt` holds), and
the two are inverse. Aliases that ClickHouse accepts (`INT`, `VARCHAR(10)`, `Decimal64(2)`, …) parse to
what they stand for. How a type lies on disk is `format`'s business, how it looks as Arrow `core.arrow`'s.

Source: ClickHouse, `src/DataTypes/`; spellings checked against `toTypeName`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from mergelake.core.errors import MergelakeError, error
from mergelake.core.text import quote_identifier_if_needed, quote_string, unescape


@dataclass(frozen=True, slots=True)
class Int:
    """(U)Int8 … (U)Int256."""

    bits: int
    signed: bool

    def __str__(self) -> str:
        return f"{'' if self.signed else 'U'}Int{self.bits}"


@dataclass(frozen=True, slots=True)
class Float:
    """Float32 or Float64."""

    bits: int

    def __str__(self) -> str:
        return f"Float{self.bits}"


@dataclass(frozen=True, slots=True)
class BFloat16:
    """The upper half of a Float32."""

    def __str__(self) -> str:
        return "BFloat16"


@dataclass(frozen=True, slots=True)
class Bool:
    """true or false; a UInt8 on disk."""

    def __str__(self) -> str:
        return "Bool"


@dataclass(frozen=True, slots=True)
class String:
    """A string of bytes, not necessarily UTF-8."""

    def __str__(self) -> str:
        return "String"


@dataclass(frozen=True, slots=True)
class FixedString:
    """Exactly `length` bytes, padded with zero bytes."""

    length: int

    def __str__(self) -> str:
        return f"FixedString({self.length})"


@dataclass(frozen=True, slots=True)
class Date:
    """Days since 1970-01-01, UInt16."""

    def __str__(self) -> str:
        return "Date"


@dataclass(frozen=True, slots=True)
class Date32:
    """Days since 1970-01-01, Int32, 1900-01-01 to 2299-12-31."""

    def __str__(self) -> str:
        return "Date32"


@dataclass(frozen=True, slots=True)
class DateTime:
    """Seconds since the epoch, UInt32; the zone only changes how it is read and shown."""

    timezone: str = ""

    def __str__(self) -> str:
        return f"DateTime({quote_string(self.timezone)})" if self.timezone else "DateTime"


@dataclass(frozen=True, slots=True)
class DateTime64:
    """Ticks of 10^-precision seconds since the epoch, Int64."""

    precision: int = 3
    timezone: str = ""

    def __str__(self) -> str:
        zone = f", {quote_string(self.timezone)}" if self.timezone else ""
        return f"DateTime64({self.precision}{zone})"


@dataclass(frozen=True, slots=True)
class Time:
    """Seconds, Int32."""

    def __str__(self) -> str:
        return "Time"


@dataclass(frozen=True, slots=True)
class Time64:
    """Ticks of 10^-precision seconds, Int64."""

    precision: int = 3

    def __str__(self) -> str:
        return f"Time64({self.precision})"


@dataclass(frozen=True, slots=True)
class Interval:
    """A number of units, Int64."""

    unit: str

    def __str__(self) -> str:
        return f"Interval{self.unit}"


@dataclass(frozen=True, slots=True)
class Enum:
    """Enum8 or Enum16; `items` are (name, value) in order of value."""

    bits: int
    items: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        inner = ", ".join(f"{quote_string(name)} = {value}" for name, value in self.items)
        return f"Enum{self.bits}({inner})"


@dataclass(frozen=True, slots=True)
class UUID:
    """128 bits, stored as two little-endian halves."""

    def __str__(self) -> str:
        return "UUID"


@dataclass(frozen=True, slots=True)
class IPv4:
    """A UInt32 address."""

    def __str__(self) -> str:
        return "IPv4"


@dataclass(frozen=True, slots=True)
class IPv6:
    """16 bytes, network order."""

    def __str__(self) -> str:
        return "IPv6"


@dataclass(frozen=True, slots=True)
class Decimal:
    """A scaled integer of 32, 64, 128 or 256 bits, by precision."""

    precision: int
    scale: int

    @property
    def bits(self) -> int:
        """Width of the stored integer."""
        return next(bits for digits, bits in ((9, 32), (18, 64), (38, 128), (76, 256)) if self.precision <= digits)

    def __str__(self) -> str:
        return f"Decimal({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class Nothing:
    """The type of a bare NULL, always inside Nullable."""

    def __str__(self) -> str:
        return "Nothing"


@dataclass(frozen=True, slots=True)
class Nullable:
    """A value or NULL."""

    inner: DataType

    def __str__(self) -> str:
        return f"Nullable({self.inner})"


@dataclass(frozen=True, slots=True)
class LowCardinality:
    """Dictionary-encoded; means the same as `inner`."""

    inner: DataType

    def __str__(self) -> str:
        return f"LowCardinality({self.inner})"


@dataclass(frozen=True, slots=True)
class Array:
    """A list of `inner`."""

    inner: DataType

    def __str__(self) -> str:
        return f"Array({self.inner})"


@dataclass(frozen=True, slots=True)
class Tuple:
    """A product; `names` is empty or has a name for each element."""

    elements: tuple[DataType, ...]
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.names:
            named = zip(self.names, self.elements, strict=True)
            return f"Tuple({', '.join(f'{quote_identifier_if_needed(n)} {t}' for n, t in named)})"
        return f"Tuple({', '.join(map(str, self.elements))})"


@dataclass(frozen=True, slots=True)
class Map:
    """Key-value pairs, stored as an array of pairs."""

    key: DataType
    value: DataType

    def __str__(self) -> str:
        return f"Map({self.key}, {self.value})"


@dataclass(frozen=True, slots=True)
class SimpleAggregateFunction:
    """A plain value that merges combine with `function`."""

    function: str
    inner: DataType

    def __str__(self) -> str:
        return f"SimpleAggregateFunction({self.function}, {self.inner})"


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """A state of `function`, as text `arguments` (version first, if any) name it."""

    function: str
    arguments: tuple[DataType, ...]
    version: int | None = None

    def __str__(self) -> str:
        version = f"{self.version}, " if self.version is not None else ""
        return f"AggregateFunction({version}{', '.join([self.function, *map(str, self.arguments)])})"


DataType = (
    Int
    | Float
    | BFloat16
    | Bool
    | String
    | FixedString
    | Date
    | Date32
    | DateTime
    | DateTime64
    | Time
    | Time64
    | Interval
    | Enum
    | UUID
    | IPv4
    | IPv6
    | Decimal
    | Nothing
    | Nullable
    | LowCardinality
    | Array
    | Tuple
    | Map
    | SimpleAggregateFunction
    | AggregateFunction
)

UINT8 = Int(8, signed=False)
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
}

_NOT_KEPT = frozenset({"Variant", "Dynamic", "JSON", "QBit"})
"""Types of ClickHouse that have no storage form here."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>-?\d+(?:\.\d+)?)
    |(?P<text>'(?:[^'\\]|\\.|'')*')
    |(?P<quoted>`(?:[^`\\]|\\.)*`|"(?:[^"\\]|\\.)*")
    |(?P<sign>[(),=]))""",
    re.VERBOSE,
)


def parse_type(text: str) -> DataType:
    """The type that `text` names. Raises UNKNOWN_TYPE, or BAD_ARGUMENTS and friends for bad parameters."""
    parser = _Parser(text)
    found = parser.type()
    parser.end()
    return found


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


def inner_type(data_type: DataType) -> DataType:
    """The type without its LowCardinality, Nullable and SimpleAggregateFunction wrappers."""
    while isinstance(data_type, (LowCardinality, Nullable, SimpleAggregateFunction)):
        data_type = data_type.inner
    return data_type


def is_nullable(data_type: DataType) -> bool:
    """Whether a value may be NULL: Nullable(T) or LowCardinality(Nullable(T))."""
    while isinstance(data_type, (LowCardinality, SimpleAggregateFunction)):
        data_type = data_type.inner
    return isinstance(data_type, Nullable)


_DEPTH_MAX = 100
"""Levels of a type's text: more would exhaust Python's stack somewhere on the way to the bytes."""
_DIGITS_MAX = 40


class _Parser:
    """Recursive descent over one type's text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise error("SYNTAX_ERROR", f"Cannot read the type '{text}' at '{text[at:].strip()[:20]}'")
            self._tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
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
        if kind != "number" or len(word) > _DIGITS_MAX:
            raise error("BAD_ARGUMENTS", f"Expected a number but found '{word}' in the type '{self._text}'")
        return int(word)

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
        if isinstance(inner, (Nullable, Array, Map, LowCardinality, AggregateFunction)):
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
        self._expect("(")
        items: list[tuple[str, int]] = []
        following = 1
        while not self._accept(")"):
            if items:
                self._expect(",")
            name = self._string()
            value = self._number() if self._accept("=") else following
            following = value + 1
            items.append((name, value))
        low, high = (-128, 127) if bits in (0, 8) else (-32768, 32767)
        if bits == 0:
            bits = 8 if all(-128 <= v <= 127 for _, v in items) else 16
            low, high = (-128, 127) if bits == 8 else (-32768, 32767)
        if not items:
            raise error("EMPTY_LIST_OF_COLUMNS_PASSED", "The list of values of an Enum cannot be empty")
        for name, value in items:
            if not low <= value <= high:
                raise error("ARGUMENT_OUT_OF_BOUND", f"Value {value} of '{name}' does not fit into Enum{bits}")
        if len({n for n, _ in items}) != len(items) or len({v for _, v in items}) != len(items):
            raise error("SYNTAX_ERROR", f"Duplicate names or values in the enum '{self._text}'")
        return Enum(bits, tuple(sorted(items, key=lambda item: item[1])))

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
        parameters: list[str] = []
        while not self._accept(")"):
            if parameters:
                self._expect(",")
            parameters.append(self._next()[1])
        return f"{word}({', '.join(parameters)})"


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
}
_PARAMETRIC_ANY_CASE: dict[str, Callable[[_Parser], DataType]] = {
    "decimal": _Parser.decimal,
    "dec": _Parser.decimal,
    "numeric": _Parser.decimal,
    "enum": lambda parser: parser.enum(0),
}
