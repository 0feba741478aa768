"""Codecs as values: what `CODEC(…)` says, parsed and checked as ClickHouse does.

A codec is one step (`Delta(8)`) or a chain of them (`Delta(8), ZSTD(1)`), first step first. Steps whose work depends on
the values' type are parsed without it; `codec_types` binds them to a stream's type, `codec_run` runs them.

To add a codec: its method byte and name here, its argument check in `_FAMILIES`, its type check in `codec_types.bind`,
its two directions in `codec_run`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.lexer import Token, TokenReader, number_value
from mergelake.core.base.text import unescape
from mergelake.format.kernels.method_bytes import DELTA, DOUBLE_DELTA, FPC, GCD, GORILLA, LZ4, MULTIPLE, NONE, T64, ZSTD

DEFAULT = -1
"""Stands for the table's default codec among parsed steps."""

NAMES = {
    DEFAULT: "Default",
    NONE: "NONE",
    LZ4: "LZ4",
    ZSTD: "ZSTD",
    MULTIPLE: "Multiple",
    DELTA: "Delta",
    T64: "T64",
    DOUBLE_DELTA: "DoubleDelta",
    GORILLA: "Gorilla",
    0x96: "AES_128_GCM_SIV",
    0x97: "AES_256_GCM_SIV",
    FPC: "FPC",
    0x99: "DEFLATE_QPL",
    GCD: "GCD",
    0x9B: "ZSTD_QAT",
    0x9C: "ALP",
    0x9E: "Quantized",
    0x9F: "ZXC",
}
"""Names by method byte. Source: ClickHouse, `src/Compression/CompressionInfo.h`."""

_REFUSED = {"AES_128_GCM_SIV", "AES_256_GCM_SIV", "DEFLATE_QPL", "ZSTD_QAT", "ALP", "Quantized", "ZXC"}


@dataclass(frozen=True, slots=True)
class Codec:
    """One codec with its parameters, or a chain; `str` gives ClickHouse's spelling without `CODEC(…)`."""

    method: int
    """The method byte of compressed blocks."""
    level: int = 0
    """Level of ZSTD and FPC; of LZ4HC the level + 1, so that 0 is plain LZ4."""
    width: int = 0
    """Bytes of a value, for codecs of values; 0: not bound to a type yet."""
    kind: int = 0
    """T64: the number of the value's type in payloads; GCD: 1 for signed values."""
    by_bits: bool = False
    """T64: the "bit" variant."""
    steps: tuple[Codec, ...] = ()
    """The steps of a chain, which has the method MULTIPLE."""

    def __str__(self) -> str:
        if self.steps:
            return ", ".join(map(str, self.steps))
        if self.method == LZ4 and self.level:
            return f"LZ4HC({self.level - 1})"
        name = NAMES[self.method]
        if self.method in (ZSTD, FPC):
            return f"{name}({self.level})"
        if self.method in (DELTA, GORILLA) and self.width:
            return f"{name}({self.width})"
        return "T64('bit')" if self.by_bits else name

    @property
    def chain(self) -> tuple[Codec, ...]:
        """The steps, also of a single codec."""
        return self.steps or (self,)


CODEC_LZ4 = Codec(LZ4)
CODEC_NONE = Codec(NONE)


def chained(steps: Sequence[Codec]) -> Codec:
    """The codec that does `steps` one after the other; NONE for no step."""
    if not steps:
        return CODEC_NONE
    return steps[0] if len(steps) == 1 else Codec(MULTIPLE, steps=tuple(steps))


@lru_cache(256)
def parse_codec(text: str, default: Codec = CODEC_LZ4) -> Codec:
    """The codec that `LZ4`, `Delta, ZSTD(3)`, `CODEC(NONE)` or empty text names; `Default` and empty mean `default`.

    Codecs of values are not bound to a type: see `codec_types`. Raises UNKNOWN_CODEC, ILLEGAL_SYNTAX_FOR_CODEC_TYPE,
    ILLEGAL_CODEC_PARAMETER, BAD_ARGUMENTS and so on as ClickHouse does, NOT_IMPLEMENTED for what it has and we do not.

    >>> str(parse_codec("CODEC(Delta, ZSTD)"))
    'Delta, ZSTD(1)'
    """
    steps: list[Codec] = []
    for step in parse_steps(text):
        steps += default.chain if step.method == DEFAULT else [step]
    return chained(steps) if steps else default


@lru_cache(64)
def parse_default_codec(text: str) -> Codec:
    """The codec that the setting `default_compression_codec` names: general codecs only, in any case.

    >>> str(parse_default_codec("zstd(3)"))
    'ZSTD(3)'
    """
    codec = parse_codec(text.upper())
    if any(step.method not in (NONE, LZ4, ZSTD) for step in codec.chain) or codec.steps:
        raise error(
            "NOT_IMPLEMENTED",
            f"default_compression_codec cannot be {text}",
            "It is NONE, LZ4, LZ4HC(level) or ZSTD(level); others are for CODEC(...) of a column",
        )
    return codec


_Argument = int | float | str | None


def parse_steps(text: str) -> list[Codec]:
    """The steps that `text` names, `Default` among them as a step of its own."""
    tokens = TokenReader(text)
    wrapped = tokens.accept("CODEC", "(")
    steps: list[Codec] = []
    more = tokens.peek().kind != "end"
    while more:
        name = tokens.next()
        if name.kind != "word":
            raise _cannot_read(text, name)
        steps.append(_step(name.text, _arguments(tokens) if tokens.accept("(") else []))
        more = tokens.accept(",")
    if (wrapped and not tokens.accept(")")) or tokens.peek().kind != "end":
        raise _cannot_read(text, tokens.peek())
    if len(steps) > 255:
        raise error("BAD_ARGUMENTS", f"A chain of {len(steps)} codecs is too long", "There may be 255")
    return steps


def _arguments(tokens: TokenReader) -> list[_Argument]:
    """Literals up to the closing bracket."""
    values: list[_Argument] = []
    if tokens.accept(")"):
        return values
    while True:
        sign = "-" if tokens.accept("-") else ""
        token = tokens.next()
        if token.kind == "number":
            values.append(number_value(sign + token.text))
        elif token.kind == "string" and not sign:
            values.append(unescape(token.text))
        elif token.upper == "NULL" and not sign:
            values.append(None)
        else:
            raise _cannot_read(tokens.text, token)
        if not tokens.accept(","):
            break
    if not tokens.accept(")"):
        raise _cannot_read(tokens.text, tokens.peek())
    return values


def _cannot_read(text: str, token: Token) -> MergelakeError:
    return error("SYNTAX_ERROR", f"Cannot read the codec '{text.strip()}' at '{text[token.start : token.start + 20]}'")


def _step(name: str, arguments: list[_Argument]) -> Codec:
    if name == "Default":
        if arguments:
            raise error("BAD_ARGUMENTS", "Default codec cannot have any arguments, it is the table's default codec")
        return Codec(DEFAULT)
    if name in _REFUSED:
        raise error("NOT_IMPLEMENTED", f"Codec {name} is not supported", "Use ZSTD(level)")
    if name == "Multiple":
        raise error("UNKNOWN_CODEC", "Codec Multiple cannot be specified directly", "Write its steps")
    make = _FAMILIES.get(name)
    if make is None:
        near = next((known for known in _FAMILIES if known.upper() == name.upper()), "")
        raise error("UNKNOWN_CODEC", f"Unknown codec family: {name}", f"Maybe you meant {near}" if near else "")
    return make(name, arguments)


def _unsigned(value: _Argument) -> bool:
    return isinstance(value, int) and value >= 0


def _plain(method: int) -> Callable[[str, list[_Argument]], Codec]:
    def make(name: str, arguments: list[_Argument]) -> Codec:
        if arguments:
            raise error("DATA_TYPE_CANNOT_HAVE_ARGUMENTS", f"Compression codec {name} cannot have arguments")
        return Codec(method)

    return make


def _of_width(method: int) -> Callable[[str, list[_Argument]], Codec]:
    def make(name: str, arguments: list[_Argument]) -> Codec:
        _count(name, arguments, 1)
        if not arguments:
            return Codec(method)
        if not _unsigned(arguments[0]):
            raise error("ILLEGAL_CODEC_PARAMETER", f"{name} codec argument must be unsigned integer")
        if arguments[0] not in (1, 2, 4, 8):
            raise error(
                "ILLEGAL_CODEC_PARAMETER", f"Argument value for {name} codec can be 1, 2, 4 or 8, given {arguments[0]}"
            )
        return Codec(method, width=int(arguments[0] or 0))

    return make


def _count(name: str, arguments: list[_Argument], arguments_max: int) -> None:
    if len(arguments) > arguments_max:
        allowed = ("no parameters", "1 parameter", "1 or 2 parameters")[arguments_max]
        raise error("ILLEGAL_SYNTAX_FOR_CODEC_TYPE", f"{name} codec must have {allowed}, given {len(arguments)}")


def _gcd(name: str, arguments: list[_Argument]) -> Codec:
    _count(name, arguments, 0)
    return Codec(GCD)


def _t64(name: str, arguments: list[_Argument]) -> Codec:
    _count(name, arguments, 1)
    variant = arguments[0] if arguments else "byte"
    if not isinstance(variant, str):
        raise error("BAD_GET", f"T64 takes a string, given {variant}", "Write T64('bit') or T64('byte')")
    if variant not in ("bit", "byte"):
        raise error("ILLEGAL_CODEC_PARAMETER", f"Wrong modification for T64: {variant}", "It is 'bit' or 'byte'")
    return Codec(T64, by_bits=variant == "bit")


def _fpc(name: str, arguments: list[_Argument]) -> Codec:
    _count(name, arguments, 2)
    if not all(map(_unsigned, arguments)):
        raise error("ILLEGAL_CODEC_PARAMETER", "Arguments of codec FPC must be unsigned integers")
    level = int(arguments[0] or 0) if arguments else 12
    width = int(arguments[1] or 0) if len(arguments) > 1 else 0
    if not 1 <= level <= 28:
        raise error("ILLEGAL_CODEC_PARAMETER", f"Codec FPC level must be between 1 and 28, given {level}")
    if width not in (0, 4, 8) or (len(arguments) > 1 and not width):
        raise error("ILLEGAL_CODEC_PARAMETER", f"Float size for codec FPC can be 4 or 8, given {width}")
    return Codec(FPC, level, width)


def _levelled(name: str, arguments: list[_Argument], arguments_max: int) -> list[int]:
    _count(name, arguments, arguments_max)
    for value in arguments:
        if not isinstance(value, int):
            raise error("BAD_GET", f"{name} takes an unsigned integer, given {value}")
        if value < 0:
            raise error("ILLEGAL_CODEC_PARAMETER", f"{name} takes an unsigned integer, given {value}")
    return [value for value in arguments if isinstance(value, int)]


def _lz4hc(name: str, arguments: list[_Argument]) -> Codec:
    levels = _levelled(name, arguments, 1)
    return Codec(LZ4, (levels[0] if levels else 0) + 1)


def _zstd(name: str, arguments: list[_Argument]) -> Codec:
    level, window = [*_levelled(name, arguments, 2), *(1, 0)[len(arguments) :]]
    if level > 22:
        raise error("ILLEGAL_CODEC_PARAMETER", f"ZSTD codec can't have level more than 22, given {level}")
    if window and not 10 <= window <= 31:
        raise error("ILLEGAL_CODEC_PARAMETER", f"ZSTD codec can't have window log other than 10 to 31, given {window}")
    if len(arguments) > 1:
        raise error("NOT_IMPLEMENTED", "The window of ZSTD(level, window) is not supported", "Write ZSTD(level)")
    return Codec(ZSTD, level)


_FAMILIES: dict[str, Callable[[str, list[_Argument]], Codec]] = {
    "NONE": _plain(NONE),
    "LZ4": _plain(LZ4),
    "LZ4HC": _lz4hc,
    "ZSTD": _zstd,
    "Delta": _of_width(DELTA),
    "DoubleDelta": _of_width(DOUBLE_DELTA),
    "Gorilla": _of_width(GORILLA),
    "T64": _t64,
    "FPC": _fpc,
    "GCD": _gcd,
}
