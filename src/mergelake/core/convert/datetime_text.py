"""Parsing of dates with times like ClickHouse's default, `date_time_input_format = 'best_effort'`.

One pass from left to right: a group of digits is interpreted by its length (4 a year, 8 a date, 9 or 10 a timestamp,
…); words are months, days of the week, zones, AM and PM; a missing month, day or time is the first one. Hours, minutes
and seconds out of range carry over into the next unit; a day that its month does not have is refused.

Stricter than ClickHouse in one case: a text without a year is refused, because its meaning would depend on the current
date.

Source: ClickHouse, `src/IO/parseDateTimeBestEffort.cpp`.
"""

from __future__ import annotations

import calendar
import re

import numpy as np

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.convert.timezones import zone

_DIGITS = re.compile(rb"\d{1,19}")
_LETTERS = re.compile(rb"[A-Za-z]+")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH_NAMES = [name.lower() for name in calendar.month_name[1:]]
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAY_NAMES = [name.lower() for name in calendar.day_name]
_ZONE_HOURS = {"utc": 0, "gmt": 0, "msk": 3, "msd": 4}
_STAMPS = {9: 0, 10: 0, 13: 3, 16: 6, 19: 9}
"""Number of digits of a timestamp -> number of them that are the fraction."""


def read_datetime(text: bytes, timezone: str, *, fractional: bool = True) -> tuple[int, bytes, int]:
    """(UTC seconds, digits of the fraction, end of the parsed text). Raises CANNOT_PARSE_DATETIME.

    `fractional`: a timestamp may have a fraction, as it may in DateTime64.
    """
    reader = _Reader(text, fractional)
    stamp = reader.read()
    if stamp is not None:
        return *stamp, reader.at
    return reader.seconds(timezone), reader.fraction or b"", reader.at


class _Reader:
    def __init__(self, text: bytes, fractional: bool) -> None:
        self.text = text
        self.fractional = fractional
        self.at = 0
        self.year = self.month = self.day = self.hour = self.minute = self.second = 0
        self.has_time = self.has_zone = self.has_offset = self.afternoon = self.morning = False
        self.offset_s = 0
        self.fraction: bytes | None = None
        self.comma = False

    def wrong(self, why: str) -> MergelakeError:
        shown = self.text[:100].decode(errors="backslashreplace")
        return error("CANNOT_PARSE_DATETIME", f"Cannot read DateTime: {why}: '{shown}'", "Write YYYY-MM-DD hh:mm:ss")

    def read(self) -> tuple[int, bytes] | None:
        """Parse as much of the text as can belong to a date. Returns seconds and fraction of a timestamp, else None."""
        while self.at < len(self.text):
            if self._next() == b"," and bool(self.year) != self.has_time:
                self.at += 1
                self.comma = True
                continue
            digits = self._digits() if not (self.year and self.has_time) else b""
            if len(digits) in _STAMPS and not (self.year or self.month or self.day or self.has_time):
                return self._timestamp(digits)
            if digits:
                self._number(digits)
            elif not self._sign():
                break
        return None

    def _timestamp(self, digits: bytes) -> tuple[int, bytes]:
        cut = len(digits) - _STAMPS[len(digits)]
        fraction = digits[cut:]
        if self.fractional and not fraction and self._next() == b".":
            self.at += 1
            fraction = self._digits()
        return int(digits[:cut]), fraction

    def seconds(self, timezone: str) -> int:
        """UTC seconds of the parsed fields."""
        if self.comma and not (self.has_time and self.year and self.month and self.day):
            raise self.wrong("unexpected word after Date")
        if not (self.year or self.month or self.day or self.has_time):
            raise self.wrong("neither Date nor Time was parsed successfully")
        if not self.year:
            message = "A date without a year is not supported: its meaning would depend on the clock"
            raise error("NOT_IMPLEMENTED", message, "Write the year")
        month, day = self.month or 1, self.day or 1
        if not (1 <= month <= 12 and 1 <= day <= calendar.monthrange(self.year, month)[1]):
            raise self.wrong(f"unexpected date: {self.year}-{month}-{day}")
        hour = self.hour
        if self.morning and hour == 12:
            hour = 0
        if self.afternoon and hour < 12:
            hour += 12
        days = int(np.datetime64(f"{self.year:04d}-{month:02d}-{day:02d}", "D").astype(np.int64))
        local = days * 86400 + hour * 3600 + self.minute * 60 + self.second
        return local - self.offset_s if self.has_zone else int(zone(timezone).to_utc(np.array([local]))[0])

    def _next(self) -> bytes:
        return self.text[self.at : self.at + 1]

    def _digits(self, most: int = 19) -> bytes:
        match = _DIGITS.match(self.text, self.at, self.at + most)
        if match is None:
            return b""
        self.at = match.end()
        return match.group()

    def _small(self, after: str) -> int:
        digits = self._digits()
        if len(digits) not in (1, 2):
            raise self.wrong(f"unexpected number of decimal digits after {after}: {len(digits)}")
        return int(digits)

    def _number(self, digits: bytes) -> None:
        count = len(digits)
        undated = not (self.year or self.month or self.day)
        if count == 14 and undated and not self.has_time:
            self._date(digits[:8])
            self._time(digits[8:])
        elif count == 8 and undated:
            self._date(digits)
        elif count == 6 and undated:
            self.year, self.month = int(digits[:4]), int(digits[4:])
        elif count == 6 and not self.has_time:
            self._time(digits)
        elif count == 4 and not self.year:
            self.year = int(digits)
            if not self.month:
                self._after_year()
            elif self._next() == b",":
                raise self.wrong("unexpected delimiter after year")
        elif count <= 2:
            self._small_number(int(digits))
        else:
            raise self.wrong(f"unexpected number of decimal digits: {count}")

    def _date(self, digits: bytes) -> None:
        self.year, self.month, self.day = int(digits[:4]), int(digits[4:6]), int(digits[6:])

    def _time(self, digits: bytes) -> None:
        if self.hour:
            raise self.wrong("time component is duplicated")
        self.hour, self.minute, self.second = int(digits[:2]), int(digits[2:4]), int(digits[4:])
        self.has_time = True

    def _after_year(self) -> None:
        """Parse `-MM-DD` with any separator."""
        sign = self._next()
        if not sign:
            return
        if not 0x20 <= sign[0] <= 0x7E or sign == b",":
            raise self.wrong("unexpected delimiter after year")
        self.at += 1
        if sign == b" " and not self._next().isdigit():
            return
        self.month = self._small("year")
        if self._next() == sign and not self.day:
            self.at += 1
            if sign == b" " and not self._next().isdigit():
                return
            self.day = self._small("year and month")

    def _small_number(self, number: int) -> None:
        """Interpret one or two digits: an hour, a day, or a day with a month and a year after it."""
        sign = self._next()
        if sign == b":" and not self.has_time:
            self._clock(number)
        elif sign in (b"/", b".", b"-"):
            if self.year or self.month or self.day:
                raise self.wrong("day of month is duplicated")
            self.day = number
            self.at += 1
            self._after_day(sign)
        elif not self.day:
            self.day = number
            self.at += sign == b"," and bool(self.month)
        elif sign == b",":
            raise self.wrong("day of month is duplicated")
        else:
            self.hour = number

    def _clock(self, hour: int) -> None:
        self.hour, self.has_time = hour, True
        self.at += 1
        self.minute = self._small("hour")
        if self._next() == b":":
            self.at += 1
            self.second = self._small("hour and minute")

    def _after_day(self, sign: bytes) -> None:
        """Parse `MM/YYYY` after `DD/`; the month may be a word."""
        word = _LETTERS.match(self.text, self.at)
        if word is not None:
            self._word()
            if self._next().isdigit():
                raise self.wrong("unexpected number after month")
        else:
            self.month = self._small("day of month")
        if self.month > 12:
            self.month, self.day = self.day, self.month
        if self._next() == sign:
            self.at += 1
            digits = self._digits()
            if len(digits) not in (2, 4):
                raise self.wrong(f"unexpected number of decimal digits after day of month and month: {len(digits)}")
            century = 0 if len(digits) == 4 else 2000 if int(digits) < 70 else 1900
            self.year = int(digits) + century

    def _sign(self) -> bool:
        """Interpret a character that is not a digit; False if it ends the date."""
        sign = self._next()
        if sign == b" " or (sign == b"T" and self.year and not (self.has_time or self._word_here("tue", "thu"))):
            self.at += 1
        elif sign == b"Z":
            self.at += 1
            self.has_zone = True
        elif sign == b".":
            self._point()
        elif sign in (b"+", b"-"):
            self._plus_minus(sign)
        elif sign.isalpha() and sign.isascii():
            self._word()
        else:
            return False
        return True

    def _word_here(self, *starts: str) -> bool:
        return self.text[self.at : self.at + 3].lower().decode("latin-1") in starts

    def _point(self) -> None:
        if not self.has_time:
            raise self.wrong("unexpected point symbol")
        if self.fraction is not None:
            raise self.wrong("duplicate fractional part")
        self.at += 1
        self.fraction = self._digits()

    def _plus_minus(self, sign: bytes) -> None:
        self.at += 1
        digits = self._digits()
        if len(digits) == 6 and not self.has_time and self.year and self.month and self.day:
            self._time(digits)
            return
        if not 1 <= len(digits) <= 4 or self.has_offset:
            raise self.wrong(f"unexpected time zone offset of {len(digits)} digits")
        hours, minutes = (int(digits), 0) if len(digits) < 3 else (int(digits[:-2]), int(digits[-2:]))
        if len(digits) < 3 and self._next() == b":":
            self.at += 1
            minutes = self._small("time zone offset")
        self.has_zone = self.has_offset = True
        self.offset_s = (hours * 3600 + minutes * 60) * (1 if sign == b"+" else -1)

    def _word(self) -> None:
        match = _LETTERS.match(self.text, self.at)
        word = match.group().decode().lower() if match else ""
        self.at += len(word)
        if word in ("am", "pm"):
            self.morning, self.afternoon = word == "am", word == "pm"
        elif word in _ZONE_HOURS:
            if self.has_offset and _ZONE_HOURS[word]:
                raise self.wrong("time zone is duplicated")
            self.has_zone = True
            self.offset_s += _ZONE_HOURS[word] * 3600
        elif word in _MONTHS or word in _MONTH_NAMES:
            self.month = _MONTHS.index(word[:3]) + 1
        elif word in _WEEKDAYS or word in _WEEKDAY_NAMES:
            if self._next() == b",":
                self.at += 1
        else:
            raise self.wrong("unexpected word")
