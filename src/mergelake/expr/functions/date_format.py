"""formatDateTime with a constant format, and monthName.

A format is a list of pieces, each a block of bytes: one row for each time, one column for each byte. Pieces of
varying width (names of months, `%e`) carry a flag for each byte that counts. All blocks side by side, read row by
row, give the texts.

Source: ClickHouse, `src/Functions/formatDateTime.cpp`, with its default settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.convert.timezones import Zone, zone
from mergelake.core.types import types as t
from mergelake.expr.functions.casts import cut
from mergelake.expr.functions.date_parts import (
    DATES,
    TIMES,
    any_zone,
    civil,
    day_of_year,
    iso_year,
    local_days,
    monday,
    start_of_year,
)
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal

Numbers = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TWO = np.array([list(b"%02d" % number) for number in range(100)], np.uint8)
_DAY = 86400
_CALENDAR = (-719528 * _DAY, 2932897 * _DAY - 1)
"""First and last local second of the years 0 to 9999, the range that ClickHouse formats."""
_OFFSETS_MAX = (1 << 31) - 1


class FormatPiece(NamedTuple):
    """Bytes of all rows, `(rows, width)`, and which of them count; `counts` is None if all do."""

    data: Bytes
    counts: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Times:
    """The times of a column, split into parts; `date` and `weekday` are computed on first use."""

    kind: t.DataType
    days: Numbers
    """Local days since 1970."""
    clock: Numbers
    """Seconds since the local midnight; one row for dates."""
    micros: Numbers
    """Microseconds of the second; one row for types without them."""
    offset: Numbers
    """Seconds east of UTC."""

    @cached_property
    def date(self) -> tuple[Numbers, Numbers, Numbers]:
        """(year, month, day)."""
        return civil(self.days)

    @cached_property
    def weekday(self) -> Numbers:
        """0 is Monday."""
        return np.asarray((self.days.astype(np.int64) + 3) % 7)


def _two(numbers: Numbers) -> FormatPiece:
    return FormatPiece(_TWO[np.asarray(numbers, np.int64) % 100])


def _digit(numbers: Numbers) -> FormatPiece:
    return FormatPiece((np.asarray(numbers, np.int64) + ord("0")).astype(np.uint8)[:, None])


def _many(numbers: Numbers, digits: int) -> FormatPiece:
    """Decimal digits with leading zeros; `digits` is even."""
    wide = np.asarray(numbers, np.int64)
    pairs = [_TWO[wide // 100**at % 100] for at in reversed(range(digits // 2))]
    return FormatPiece(np.concatenate(pairs, axis=1))


def _three(numbers: Numbers) -> FormatPiece:
    return FormatPiece(_many(numbers, 4).data[:, 1:])


def _unpadded(numbers: Numbers) -> FormatPiece:
    data = _TWO[np.asarray(numbers, np.int64)]
    counts = np.ones(data.shape, np.bool_)
    counts[:, 0] = data[:, 0] != ord("0")
    return FormatPiece(data, counts)


def _names(names: Sequence[str]) -> Callable[[Numbers], FormatPiece]:
    width = max(map(len, names))
    table = np.array([list(name.ljust(width, "\0").encode()) for name in names], np.uint8)
    used = table != 0
    if used.all():
        return lambda at: FormatPiece(table[at])
    return lambda at: FormatPiece(table[at], used[at])


_month_name, _month_short = _names(_MONTHS), _names([name[:3] for name in _MONTHS])
_weekday_name, _weekday_short = _names(_WEEKDAYS), _names([name[:3] for name in _WEEKDAYS])
_half = _names(("AM", "PM"))


def _iso_week(times: Times) -> FormatPiece:
    thursday = np.asarray(monday(times.days) + 3, np.int64)
    return _two((thursday - start_of_year(thursday)) // 7 + 1)


def _zone_offset(times: Times) -> FormatPiece:
    sign = np.where(times.offset < 0, ord("-"), ord("+")).astype(np.uint8)[:, None]
    minutes = np.abs(times.offset) // 60
    return FormatPiece(np.concatenate([sign, _two(minutes // 60).data, _two(minutes % 60).data], axis=1))


SPECIFIERS: Mapping[str, Callable[[Times], FormatPiece]] = {
    "a": lambda x: _weekday_short(x.weekday),
    "b": lambda x: _month_short(x.date[1] - 1),
    "c": lambda x: _two(x.date[1]),
    "C": lambda x: _two(x.date[0] // 100),
    "d": lambda x: _two(x.date[2]),
    "e": lambda x: _unpadded(x.date[2]),
    "f": lambda x: _many(x.micros, 6),
    "g": lambda x: _two(iso_year(x.days)),
    "G": lambda x: _many(iso_year(x.days), 4),
    "H": lambda x: _two(x.clock // 3600),
    "I": lambda x: _two((x.clock // 3600 + 11) % 12 + 1),
    "i": lambda x: _two(x.clock // 60 % 60),
    "j": lambda x: _three(day_of_year(x.kind)(x.days)),
    "m": lambda x: _two(x.date[1]),
    "M": lambda x: _month_name(x.date[1] - 1),
    "p": lambda x: _half(x.clock // 43200),
    "Q": lambda x: _digit((x.date[1] + 2) // 3),
    "s": lambda x: _two(x.clock % 60),
    "u": lambda x: _digit(x.weekday + 1),
    "V": _iso_week,
    "w": lambda x: _digit((x.weekday + 1) % 7),
    "W": lambda x: _weekday_name(x.weekday),
    "y": lambda x: _two(x.date[0]),
    "Y": lambda x: _many(x.date[0], 4),
    "z": _zone_offset,
}
"""The function that makes the piece of each letter."""
_LONGER: Mapping[str, str] = {
    "D": "%m/%d/%y", "F": "%Y-%m-%d", "h": "%I", "k": "%H", "l": "%I", "r": "%I:%i %p", "R": "%H:%i", "S": "%s",
    "T": "%H:%i:%s", "n": "\n", "t": "\t", "%": "",
}  # fmt: skip
"""Letters that are short for other formats; `%%` is a literal percent sign."""
_NOT_IN_CLICKHOUSE = {"U": "WEEK (Sun-Sat)", "v": "WEEK (Mon-Sun)", "x": "YEAR for week (Mon-Sun)",
                      "X": "YEAR for week (Sun-Sat)"}  # fmt: skip


def parse_format(text: bytes) -> tuple[bytes | str, ...]:
    """The format as literal bytes and letters of `SPECIFIERS`.

    Raises BAD_ARGUMENTS for a letter that ClickHouse does not know, NOT_IMPLEMENTED for one that it refuses too.

    >>> parse_format(b"%R h")
    ('H', b':', 'i', b' h')
    """
    out: list[bytes | str] = []
    plain = b""
    at = 0
    while at < len(text):
        if text[at] != ord("%"):
            plain += text[at : at + 1]
            at += 1
            continue
        if at + 1 == len(text):
            raise error("BAD_ARGUMENTS", "'%' must not be the last character in the format string, use '%%' instead")
        letter = chr(text[at + 1])
        at += 2
        if letter in _NOT_IN_CLICKHOUSE:
            raise error("NOT_IMPLEMENTED", f"format is not supported for {_NOT_IN_CLICKHOUSE[letter]}")
        if letter not in SPECIFIERS and letter not in _LONGER:
            shown = text[at - 1 : at].decode(errors="backslashreplace")
            raise error(
                "BAD_ARGUMENTS",
                f"Incorrect syntax '%{shown}', symbol is not supported '{shown}' for function formatDateTime",
            )
        pieces = (
            (letter,) if letter in SPECIFIERS else (b"%",) if letter == "%" else parse_format(_LONGER[letter].encode())
        )
        for piece in pieces:
            if isinstance(piece, bytes):
                plain += piece
                continue
            if plain:
                out.append(plain)
                plain = b""
            out.append(piece)
    return (*out, plain) if plain else tuple(out)


def joined(pieces: Sequence[FormatPiece], rows: int) -> pa.Array:
    """The pieces side by side as a binary array; a piece of one row applies to all rows."""
    width = sum(piece.data.shape[1] for piece in pieces)
    data = np.empty((rows, width), np.uint8)
    counts = np.ones((rows, width), np.bool_) if any(piece.counts is not None for piece in pieces) else None
    at = 0
    for piece in pieces:
        end = at + piece.data.shape[1]
        data[:, at:end] = piece.data
        if counts is not None and piece.counts is not None:
            counts[:, at:end] = piece.counts
        at = end
    sizes = np.full(rows, width, np.int64) if counts is None else counts.sum(axis=1, dtype=np.int64)
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] > _OFFSETS_MAX:
        raise error("TOO_LARGE_STRING_SIZE", f"formatDateTime makes {offsets[-1]} bytes of {rows} rows at once")
    flat = data if counts is None else data[counts]
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(flat))]
    )


def _times(kind: t.DataType, local: Zone) -> Callable[[Numbers], Times]:
    nothing = np.zeros(1, np.int64)
    if isinstance(kind, DATES):
        return lambda data: Times(kind, data.astype(np.int64), nothing, nothing, nothing)
    digits = kind.precision if isinstance(kind, t.DateTime64) else 0
    scale, up, down = 10**digits, 10 ** max(6 - digits, 0), 10 ** max(digits - 6, 0)

    def apart(data: Numbers) -> Times:
        wide = data.astype(np.int64)
        seconds = wide // scale
        micros = (wide - seconds * scale) // down * up if digits else nothing
        offset = np.asarray(local.offset(seconds), np.int64).reshape(-1)
        here = np.clip(seconds + offset, *_CALENDAR)
        return Times(kind, here // _DAY, here % _DAY, micros, offset)

    return apart


@function("formatDateTime", 2, 3, aliases=("DATE_FORMAT",))
def _format_date_time(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    kind = args[0].type
    if not isinstance(kind, (*DATES, *TIMES)) or not isinstance(args[1].type, t.String):
        raise illegal("formatDateTime", *(arg.type for arg in args))
    if len(args) > 2 and not args[2].is_constant:
        raise error("NOT_IMPLEMENTED", "The time zone of formatDateTime must be constant")
    name = any_zone("formatDateTime", args, 2) or getattr(kind, "timezone", "")
    if not isinstance(args[1].value, bytes):
        raise error("ILLEGAL_COLUMN", "The format of formatDateTime must be constant")
    pieces = parse_format(args[1].value)
    if "z" in pieces and isinstance(kind, DATES):
        raise illegal("formatDateTime", kind)
    apart = _times(kind, zone(name))

    def kernel(data: Numbers, *_: Any) -> pa.Array:
        times = apart(data)
        blocks = [
            FormatPiece(np.frombuffer(piece, np.uint8)[None, :])
            if isinstance(piece, bytes)
            else SPECIFIERS[piece](times)
            for piece in pieces
        ]
        return joined(blocks, len(data))

    return Resolved(t.STRING, kernel, cost=20 + 16 * len(pieces))


@function("monthName", 1, any_case=True)
def _month_name_of(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    kind = args[0].type
    if not isinstance(kind, (t.Date, *TIMES)):
        raise illegal("monthName", kind)
    if isinstance(kind, t.DateTime64):  # the fraction of a second is truncated towards 1970
        days, scale = local_days(t.DateTime64(0, kind.timezone)), 10**kind.precision
        return Resolved(t.STRING, lambda data: _month_names(days(cut(data, scale))), cost=30)
    plain = local_days(kind)
    return Resolved(t.STRING, lambda data: _month_names(plain(data)), cost=30)


def _month_names(days: Numbers) -> pa.Array:
    return joined([_month_name(civil(days)[1] - 1)], len(days))
