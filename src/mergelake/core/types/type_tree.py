"""ClickHouse data types as values: a closed sum. `str` gives the canonical spelling, as in `columns.txt`.

`core.types.types` parses types and re-exports this module, `format` serializes their values, `core.types.arrow` has
their Arrow forms.

Source: ClickHouse, `src/DataTypes/`; spellings checked against `toTypeName`.
"""

from __future__ import annotations

from dataclasses import dataclass

from mergelake.core.base.text import quote_identifier_if_needed, quote_string


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
    """Seconds since the epoch, UInt32; the zone only affects parsing and formatting."""

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
    """Dictionary-encoded values of `inner`."""

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
    """A value of `inner` that merges combine with `function`."""

    function: str
    inner: DataType

    def __str__(self) -> str:
        return f"SimpleAggregateFunction({self.function}, {self.inner})"


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """A state of `function`, with its `arguments` as text (the version first, if any)."""

    function: str
    arguments: tuple[DataType, ...]
    version: int | None = None

    def __str__(self) -> str:
        version = f"{self.version}, " if self.version is not None else ""
        return f"AggregateFunction({version}{', '.join([self.function, *map(str, self.arguments)])})"


@dataclass(frozen=True, slots=True)
class Variant:
    """One of several types, or NULL. `alternatives` are in ClickHouse's order, by name."""

    alternatives: tuple[DataType, ...]
    names: tuple[str, ...]
    """ClickHouse's name of each, which is part of stream names. `Point` is not printed as the tuple that it is."""

    def __str__(self) -> str:
        return f"Variant({', '.join(self.names)})"


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A value of any type, or NULL; a part stores at most `max_types` types separately, the others together."""

    max_types: int = 32

    def __str__(self) -> str:
        return "Dynamic" if self.max_types == 32 else f"Dynamic(max_types={self.max_types})"


@dataclass(frozen=True, slots=True)
class Json:
    """JSON objects as sets of paths: those in `typed` are always present and of that type, the others are Dynamic."""

    typed: tuple[tuple[str, DataType], ...] = ()
    """(path, type), in order of path."""
    max_paths: int = 1024
    max_types: int = 32
    skip: tuple[str, ...] = ()
    """Paths that are not stored."""
    skip_regexps: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"max_dynamic_types={self.max_types}"] if self.max_types != 32 else []
        parts += [f"max_dynamic_paths={self.max_paths}"] if self.max_paths != 1024 else []
        parts += [f"{quote_identifier_if_needed(path)} {kind}" for path, kind in self.typed]
        parts += [f"SKIP {quote_identifier_if_needed(path)}" for path in self.skip]
        parts += [f"SKIP REGEXP {quote_string(pattern)}" for pattern in self.skip_regexps]
        return f"JSON({', '.join(parts)})" if parts else "JSON"


@dataclass(frozen=True, slots=True)
class Unknown:
    """An unsupported type: a part may have a column of it, which is copied but never read."""

    text: str

    def __str__(self) -> str:
        return self.text


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
    | Variant
    | Dynamic
    | Json
    | Unknown
)
