"""Types without inner types: their names, and the interpretation of their arguments.

`DateTime()` is DateTime, `DateTime(3)` is DateTime64(3), `Float32('x')` is Float32, `Bool(1)` is an error: each family
has its own rule. Rules and error codes are ClickHouse's.

Source: ClickHouse, `src/DataTypes/`, the functions that the factory calls; checked against `system.data_type_families`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.lexer import number_value
from mergelake.core.base.text import unescape
from mergelake.core.types import type_tree as k

_DIGITS_MAX = 40


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument in the brackets of a type."""

    kind: str
    """`number`, `string`, `null`, or `other` if it is not a literal."""
    text: str

    def number(self) -> int | None:
        """Its value, if it is an unsigned integer."""
        if self.kind != "number" or len(self.text) > _DIGITS_MAX or self.text[0] == "-":
            return None
        value = number_value(self.text)
        return value if isinstance(value, int) else None


Arguments = Sequence[Argument]
Family = Callable[[str, Arguments], k.DataType]
"""Makes a type from its name and arguments."""


def _wrong(code: str, name: str, wanted: str) -> MergelakeError:
    return error(code, f"The type {name} takes {wanted}", f"SELECT toTypeName(…) shows how a {name} is written")


def _none(kind: k.DataType) -> Family:
    def family(name: str, arguments: Arguments) -> k.DataType:
        if arguments:
            raise _wrong("DATA_TYPE_CANNOT_HAVE_ARGUMENTS", name, "no arguments")
        return kind

    return family


def _width(kind: k.DataType) -> Family:
    def family(name: str, arguments: Arguments) -> k.DataType:
        if len(arguments) > 1 or any(a.kind != "number" or a.text[0] in "+-" for a in arguments):
            raise _wrong("SYNTAX_ERROR", name, "no argument but a display width, which means nothing")
        return kind

    return family


def _any(kind: k.DataType, most: int | None = None) -> Family:
    def family(name: str, arguments: Arguments) -> k.DataType:
        if most is not None and len(arguments) > most:
            raise _wrong("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", name, f"at most {most} arguments")
        return kind

    return family


def _string(name: str, arguments: Arguments) -> k.DataType:
    if len(arguments) > 1:
        raise _wrong("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", name, "at most one argument")
    if arguments and arguments[0].number() is None:
        raise _wrong("UNEXPECTED_AST_STRUCTURE", name, "a number, which means nothing")
    return k.String()


def _fixed_string(name: str, arguments: Arguments) -> k.DataType:
    if len(arguments) != 1:
        raise _wrong("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", name, "one argument, its length in bytes")
    length = arguments[0].number()
    if not length:
        raise _wrong("UNEXPECTED_AST_STRUCTURE", name, "its length, a number from 1 to 16777215")
    if length > 0xFFFFFF:
        raise error("ARGUMENT_OUT_OF_BOUND", f"FixedString size must be from 1 to 16777215, got {length}")
    return k.FixedString(length)


def _scale(name: str, argument: Argument) -> int:
    if argument.kind == "other":
        raise _wrong("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", name, "a literal")
    scale = argument.number()
    if scale is None:
        raise _wrong("ILLEGAL_TYPE_OF_ARGUMENT", name, "a precision from 0 to 9")
    if scale > 9:
        raise error("ARGUMENT_OUT_OF_BOUND", f"Scale {scale} is too large for {name}", "The most is 9")
    return scale


def _at_most_two(name: str, arguments: Arguments) -> None:
    if len(arguments) > 2:
        raise _wrong("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", name, "at most two arguments")


def _zone(arguments: Arguments) -> str:
    return unescape(arguments[0].text) if arguments and arguments[0].kind == "string" else ""


def _datetime(name: str, arguments: Arguments) -> k.DataType:
    _at_most_two(name, arguments)
    if not arguments or (len(arguments) == 1 and arguments[0].kind == "string"):
        return k.DateTime(_zone(arguments))
    if arguments[0].kind == "other":
        raise _wrong("ILLEGAL_TYPE_OF_ARGUMENT", name, "a time zone in quotes")
    scale = _scale(name, arguments[0])
    return k.DateTime64(scale, _zone(arguments[1:])) if scale else k.DateTime(_zone(arguments[1:]))


def _datetime32(name: str, arguments: Arguments) -> k.DataType:
    if len(arguments) > 1 or any(a.kind == "other" for a in arguments):
        raise _wrong("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", name, "at most one argument")
    if arguments and arguments[0].kind != "string":
        raise _wrong("ILLEGAL_TYPE_OF_ARGUMENT", name, "a time zone in quotes")
    return k.DateTime(_zone(arguments))


def _datetime64(name: str, arguments: Arguments) -> k.DataType:
    _at_most_two(name, arguments)
    return k.DateTime64(_scale(name, arguments[0]), _zone(arguments[1:])) if arguments else k.DateTime64()


def _time(name: str, arguments: Arguments) -> k.DataType:
    if not arguments:
        return k.Time()
    if arguments[0].kind == "other":
        raise _wrong("ILLEGAL_TYPE_OF_ARGUMENT", name, "a precision from 0 to 9")
    scale = _time64(name, arguments)
    return scale if scale.precision else k.Time()


def _time64(name: str, arguments: Arguments) -> k.Time64:
    _at_most_two(name, arguments)
    if any(a.kind == "string" for a in arguments[1:]):
        raise _wrong("ILLEGAL_TYPE_OF_ARGUMENT", name, "no time zone")
    return k.Time64(_scale(name, arguments[0])) if arguments else k.Time64()


def decimal(precision: int, scale: int) -> k.Decimal:
    """A Decimal type. Raises ARGUMENT_OUT_OF_BOUND."""
    if not 1 <= precision <= 76:
        raise error("ARGUMENT_OUT_OF_BOUND", f"Wrong precision {precision}: it must be between 1 and 76")
    if not 0 <= scale <= precision:
        raise error("ARGUMENT_OUT_OF_BOUND", f"Wrong scale {scale}: it must be between 0 and the precision {precision}")
    return k.Decimal(precision, scale)


def _decimal(name: str, arguments: Arguments) -> k.DataType:
    _at_most_two(name, arguments)
    numbers = [argument.number() for argument in arguments]
    if None in numbers:
        raise _wrong("ILLEGAL_TYPE_OF_ARGUMENT", name, "numbers: precision and scale")
    return decimal(*[*(n for n in numbers if n is not None), *(10, 0)[len(numbers) :]])


def _sized_decimal(precision: int, name: str, arguments: Arguments) -> k.DataType:
    if len(arguments) != 1:
        raise _wrong("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", name, "one argument, its scale")
    (argument,) = arguments
    if argument.kind == "number" and re.fullmatch(r"-\d+", argument.text):
        return decimal(precision, int(argument.text))
    scale = argument.number()
    if scale is None:
        raise _wrong("ILLEGAL_TYPE_OF_ARGUMENT", name, "a number, its scale")
    return decimal(precision, scale)


INTERVAL_UNITS = (
    "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour", "Day", "Week", "Month", "Quarter", "Year",
)  # fmt: skip
_POINT = k.Tuple((k.Float(64), k.Float(64)))
_GEOMETRY = k.Variant(
    (
        k.Array(_POINT), k.Array(k.Array(_POINT)), k.Array(k.Array(k.Array(_POINT))), _POINT, k.Array(k.Array(_POINT)),
        k.Array(_POINT),
    ),
    ("LineString", "MultiLineString", "MultiPolygon", "Point", "Polygon", "Ring"),
)  # fmt: skip
_INT, _UINT = ({bits: k.Int(bits, signed=signed) for bits in (8, 16, 32, 64, 128, 256)} for signed in (True, False))
FAMILIES: dict[str, Family] = {
    **{str(kind): _width(kind) for kind in (*_INT.values(), *_UINT.values())},
    **{str(kind): _any(kind) for kind in (k.Float(32), k.Float(64), k.BFloat16())},
    **{str(kind): _none(kind) for kind in (k.UUID(), k.IPv4(), k.IPv6(), k.Nothing())},
    **{str(kind): _none(kind) for kind in map(k.Interval, INTERVAL_UNITS)},
    "String": _string,
    "FixedString": _fixed_string,
    "Point": _none(_POINT),
    "MultiPoint": _none(k.Array(_POINT)),
    "Ring": _none(k.Array(_POINT)),
    "LineString": _none(k.Array(_POINT)),
    "MultiLineString": _none(k.Array(k.Array(_POINT))),
    "Polygon": _none(k.Array(k.Array(_POINT))),
    "MultiPolygon": _none(k.Array(k.Array(k.Array(_POINT)))),
    "Geometry": _none(_GEOMETRY),
    "GEOMETRY": _none(_GEOMETRY),
}
"""Families with case-sensitive names."""
_INT_NAMES = {"tinyint": 8, "int1": 8, "smallint": 16, "mediumint": 32, "int": 32, "integer": 32, "bigint": 64}
_STRINGS = """binary large object|binary varying|blob|bytea|char|char large object|char varying|character
character large object|character varying|clob|longblob|longtext|mediumblob|mediumtext|national char
national char varying|national character|national character large object|national character varying|nchar
nchar large object|nchar varying|nvarchar|text|tinyblob|tinytext|varbinary|varchar|varchar2"""
ANY_CASE: dict[str, Family] = {
    **{name: _width(_INT[bits]) for name, bits in _INT_NAMES.items()},
    **{f"{name} signed": _any(_INT[bits], 1) for name, bits in _INT_NAMES.items()},
    **{f"{name} unsigned": _any(_UINT[bits], 1) for name, bits in _INT_NAMES.items()},
    **dict.fromkeys(_STRINGS.replace("\n", "|").split("|"), _string),
    "signed": _any(_INT[64], 1),
    "unsigned": _any(_UINT[64], 1),
    "byte": _any(_INT[8], 1),
    "bit": _any(_UINT[64], 1),
    "set": _any(_UINT[64], 1),
    "year": _any(_UINT[16], 1),
    "float": _any(k.Float(32)),
    "real": _any(k.Float(32)),
    "single": _any(k.Float(32)),
    "double": _any(k.Float(64)),
    "double precision": _any(k.Float(64)),
    "bool": _none(k.Bool()),
    "boolean": _none(k.Bool()),
    "date": _none(k.Date()),
    "date32": _none(k.Date32()),
    "datetime": _datetime,
    "timestamp": _datetime,
    "datetime32": _datetime32,
    "datetime64": _datetime64,
    "time": _time,
    "time64": _time64,
    "inet4": _none(k.IPv4()),
    "inet6": _none(k.IPv6()),
    "binary": _fixed_string,
    "decimal": _decimal,
    "dec": _decimal,
    "fixed": _decimal,
    "numeric": _decimal,
    **{f"decimal{bits}": partial(_sized_decimal, digits) for bits, digits in ((32, 9), (64, 18), (128, 38), (256, 76))},
}
"""Families with case-insensitive names, and aliases, in lower case."""
LONGER = frozenset(name.rpartition(" ")[0] for name in ANY_CASE if " " in name) | {"national character large"}
"""Words, in lower case, that another word of the type's name may follow."""
