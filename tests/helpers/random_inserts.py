"""Random tables and the text of INSERT … VALUES into them: literals, computed values, NULL, DEFAULT, bad ones too."""

from __future__ import annotations

import numpy as np

from mergelake.core.base.text import quote_string
from mergelake.core.types import types as t
from mergelake.core.types.types import parse_type

LEAVES = [
    *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)),
    *("Float32", "Float64", "BFloat16", "Bool", "String", "String", "FixedString(3)", "Date", "Date32"),
    *("DateTime", "DateTime('Asia/Tokyo')", *(f"DateTime64({p})" for p in (0, 1, 3, 5, 6, 7, 9))),
    *(
        "DateTime64(9, 'Europe/Berlin')",
        "Enum8('a' = -128, 'it\\'s' = 0, 'c' = 127)",
        "Enum16('x' = -32768, 'y' = 300)",
    ),
    *(
        "UUID",
        "IPv4",
        "IPv6",
        "Decimal(9, 2)",
        "Decimal(18, 4)",
        "Decimal(18, 0)",
        "Decimal(38, 20)",
        "Decimal(76, 38)",
    ),
    *("Time", "Time64(3)"),
]
IN_DICTIONARIES = [
    "String",
    "FixedString(3)",
    "UInt8",
    "Int64",
    "UInt128",
    "Float64",
    "Date",
    "DateTime",
    "UUID",
    "IPv4",
]
KEYS = ["String", "UInt8", "Int128", "Date", "UUID", "FixedString(3)", "LowCardinality(String)"]


def _cells(text: str) -> list[str]:
    return text.split(" ~ ")


class Inserts:
    """Draws types and cells."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def type(self, depth: int = 2) -> str:
        if depth == 0 or self.chance(0.5):
            return self.pick(LEAVES)
        inner = self.pick(IN_DICTIONARIES)
        match int(self.rng.integers(7)):
            case 0 | 1:
                return f"Nullable({self.pick(LEAVES)})"
            case 2:
                return f"LowCardinality({f'Nullable({inner})' if self.chance(0.5) else inner})"
            case 3:
                return f"Array({self.type(depth - 1)})"
            case 4:
                return f"Tuple({', '.join(self.type(depth - 1) for _ in range(self.rng.integers(1, 4)))})"
            case 5:
                names = ["a", "`b.c`", "`d e`"][: self.rng.integers(1, 4)]
                return f"Tuple({', '.join(f'{name} {self.type(depth - 1)}' for name in names)})"
            case _:
                return f"Map({self.pick(KEYS)}, {self.type(depth - 1)})"

    def default(self, kind: str) -> str:
        """A DEFAULT clause for a column of a table with a key `k`, or nothing."""
        if not self.chance(0.3):
            return ""
        match t.inner_type(parse_type(kind)):
            case t.Int():
                return " DEFAULT k % 100 + 1"
            case t.String():
                return " DEFAULT concat('d', toString(k))"
            case t.Float():
                return " DEFAULT k / 4"
        return ""

    def cell(self, kind: t.DataType, odd: float, *, inside: bool = False) -> str:
        """A value as written; `odd` is the share of those that are computed, spelled otherwise or bad."""
        match kind:
            case t.Nullable(inner):
                return "NULL" if self.chance(0.25) else self.cell(inner, odd, inside=inside)
            case t.LowCardinality(inner):
                return self.cell(inner, odd, inside=inside)
            case t.Array(inner):
                cells = ", ".join(self.cell(inner, odd, inside=True) for _ in range(self.pick([0, 1, 2, 3])))
                return f"array({cells})" if cells and self.chance(odd / 4) else f"[{cells}]"
            case t.Tuple(elements):
                cells = [self.cell(each, odd, inside=True) for each in elements]
                if self.chance(odd / 4):
                    return f"tuple({', '.join(cells)})"
                return f"({cells[0]},)" if len(cells) == 1 and self.chance(0.5) else f"({', '.join(cells)})"
            case t.Map(key, value):
                count = self.pick([0, 1, 2])
                pairs = [(self.cell(key, odd, inside=True), self.cell(value, odd, inside=True)) for _ in range(count)]
                if pairs and self.chance(odd / 4):
                    return f"map({', '.join(f'{k}, {v}' for k, v in pairs)})"
                return "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
        if self.chance(odd / 10):
            return "NULL"
        return self.pick(self.leaf(kind)) if not self.chance(odd) else self.pick(self.odd_leaf(kind))

    def _integer(self, low: int, high: int) -> int:
        edges = [low, high, 0, 1, low + 1, high - 1]
        if self.chance(0.3):
            return self.pick(edges)
        bits = int(self.rng.integers(1, max(high.bit_length(), 2)))
        number = int.from_bytes(self.rng.bytes(bits // 8 + 1), "little") % (1 << bits)
        return -number if low < 0 and self.chance(0.5) else number

    def leaf(self, kind: t.DataType) -> list[str]:
        """Plain spellings of one value, or of a few."""
        match kind:
            case t.Int(bits, signed):
                low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
                return [str(self._integer(low, high))]
            case t.Float() | t.BFloat16():
                number = float(self.rng.normal()) * 10.0 ** int(self.rng.integers(-20, 20))
                return [repr(number), repr(round(number, 3)), "1.5", "0", "-0.0", "inf", "-inf", "nan", "3", "1e10"]
            case t.Decimal(precision, scale):
                digits = str(self._integer(0, 10**precision - 1)).rjust(scale + 1, "0")[-max(precision, scale + 1) :]
                text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
                return [text, f"-{text}", f"'{text}'", "0", "1"]
            case t.Bool():
                return ["true", "false", "1", "0", "'true'"]
            case t.String():
                return [
                    "''",
                    "'a'",
                    "'it''s'",
                    r"'t\tn\n\'\\'",
                    r"'\xff\0x'",
                    "'é😀'",
                    quote_string("a,b(c)]}{;--/*"),
                    r"'\%\_\e'",
                ]
            case t.FixedString():
                return ["'abc'", "'a'", "''", r"'\0\xff'"]
            case t.Date():
                return ["'2026-01-02'", "'1970-01-01'", "'2149-06-06'", "'2000-02-29'"]
            case t.Date32():
                return ["'2026-01-02'", "'1900-01-01'", "'2299-12-31'", "'1969-12-31'"]
            case t.DateTime():
                return [
                    "'2026-01-02 03:04:05'",
                    "'2106-02-07 06:28:15'",
                    "'2026-07-01T00:00:00'",
                    "'1970-01-02 00:00:00'",
                ]
            case t.DateTime64(precision):
                fraction = str(self.rng.integers(0, 10**9)).rjust(9, "0")[: int(self.rng.integers(0, precision + 1))]
                day = self.pick(["2026-01-02", "1970-01-01", "1969-12-31", "2038-01-19", "1925-03-29"])
                return [f"'{day} 03:04:05{'.' if fraction else ''}{fraction}'"]
            case t.Enum(_, items):
                return [quote_string(name) for name, _ in items]
            case t.UUID():
                return ["'00000000-0000-0000-0000-000000000001'", "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'"]
            case t.IPv4():
                return ["'1.2.3.4'", "'255.255.255.255'"]
            case t.IPv6():
                return ["'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:1.2.3.4'"]
            case t.Time():
                return ["'10:11:12'", "'00:00:00'"]
            case t.Time64():
                return ["'10:11:12.123'", "'00:00:00'"]
        raise NotImplementedError(str(kind))

    def odd_leaf(self, kind: t.DataType) -> list[str]:
        """Computed, oddly spelled and bad ones."""
        plain = self.pick(self.leaf(kind))
        text = quote_string(str(kind))
        more = [
            f"CAST({plain}, {text})",
            f"identity({plain})",
            f"if(1, {plain}, {plain})",
            "'x'",
            "nosuch(1)",
            "/* c */ " + plain,
        ]
        match kind:
            case t.Int():
                more += _cells(
                    "1 + 1 ~ 255 + 1 ~ -1 ~ 1.0 ~ 1.5 ~ 1e2 ~ '7' ~ ' 7' ~ '1.5' ~ true ~ 0x1F ~ 1_000 ~ +5 ~ "
                    "300 ~ 70000 ~ 5000000000 ~ -0 ~ toInt64(5) ~ toUInt8(3) * 2 ~ 7 / 2 ~ length('abc') ~ "
                    "inf ~ '' ~ 1. ~ 18446744073709551615 + 1 ~ toDate('2026-01-01') ~ 1 > 0 ~ 01"
                )
            case t.Float() | t.BFloat16():
                more += _cells(
                    "0.1 + 0.2 ~ 1 / 3 ~ '1.5' ~ 'nan' ~ 1e400 ~ true ~ .5 ~ 1. ~ +1.5 ~ 0x10 ~ 'abc' ~ sqrt(2) ~ "
                    "toDecimal32(1.5, 2) ~ 16777217 ~ '1e5' ~ NaN ~ INF ~ infinity"
                )
            case t.Decimal():
                more += _cells(
                    "1 + 1 ~ toDecimal64(1.25, 2) ~ 1.239 ~ '1.239' ~ 1e2 ~ '1e2' ~ 1e80 ~ true ~ inf ~ "
                    "-0.001 ~ 0.1 + 0.2 ~ .5 ~ 1. ~ 'abc' ~ toDecimal128('0.123', 3)"
                )
            case t.Bool():
                more += _cells("1 = 1 ~ 'yes' ~ 2 ~ '2' ~ 'TRUE' ~ TRUE ~ 1.0 ~ not(1)")
            case t.String():
                more += _cells(
                    "upper('x') ~ concat('a', 'b') ~ 1 ~ 1.50 ~ 1e3 ~ 00012 ~ -0 ~ true ~ repeat('a', 3) ~ "
                    "unhex('ff00') ~ 'a' || 'b' ~ [1] ~ toString(5) ~ NULL || 'a' ~ "
                    r"123456789012345678901234567890 ~ $$h'd$$ ~ '\x41\x4g' ~ inf ~ toDate('2026-01-01')"
                )
            case t.FixedString():
                more += _cells("'abcd' ~ upper('ab') ~ 1 ~ toFixedString('ab', 2) ~ lower('ABCD')")
            case t.Date() | t.Date32():
                more += _cells(
                    "toDate('2026-01-01') + 1 ~ '2026-02-30' ~ '2026-1-2' ~ '20260102' ~ 20000 ~ 1.0 ~ -5 ~ 70000 ~ "
                    "'2026-13-01' ~ '2299-12-31' ~ '2026-01-02 10:00:00' ~ today() > 0 ~ '1.1.2026' ~ 0 ~ "
                    "toDateTime('2026-01-01 10:00:00', 'UTC') ~ '0000-00-00'"
                )
            case t.DateTime():
                more += _cells(
                    "toDateTime('2026-01-01 00:00:00', 'UTC') + 1 ~ '2026-02-30 00:00:00' ~ 1234567890 ~ 1234 ~ "
                    "'1234567890' ~ 1.0 ~ 1.5 ~ '2026-01-02' ~ '2026-01-02 24:00:00' ~ '2026-01-02 10:00:00Z' ~ "
                    "'2026-01-02T10:00:00+02:00' ~ '2026-01-02 10:00:00.5' ~ '02-01-2026' ~ '2 Jan 2026 10:00' ~ "
                    "'2300-01-01 00:00:00' ~ '1960-01-01 00:00:00' ~ toDate('2026-01-01') ~ '10:00' ~ 1e9"
                )
            case t.DateTime64(precision):
                if precision < 7:  # beyond 2262 Arrow has no nanoseconds, and they are read back through it
                    more += ["'2300-01-01 00:00:00'", "12345678901.123"]
                more += _cells(
                    "toDateTime64('2026-01-01 00:00:00.5', 3, 'UTC') ~ '2026-02-30 00:00:00' ~ 1234567890 ~ "
                    "1234567890.125 ~ -5.5 ~ '1234567890.5' ~ '2026-01-02' ~ '2026-01-02 10:00:00.123456789Z' ~ "
                    "toDate('2026-01-01') ~ 1e9 ~ '2026-01-02 10:00:00.' ~ 1.5 + 1 ~ "
                    "toDateTime('2026-01-01 00:00:00', 'UTC')"
                )
            case t.Enum(_, items):
                more += [
                    str(items[0][1]),
                    f"{items[0][1]}.0",
                    f"'{items[0][1]}'",
                    "99",
                    "'nosuch'",
                    "lower('A')",
                    f"{items[0][1]} + 0",
                ]
            case t.UUID():
                more += _cells(
                    "toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0') ~ '61F0C4045CB311E7907BA6006AD3DBA0' ~ 1 ~ "
                    "'61f0' ~ toUUIDOrZero('x')"
                )
            case t.IPv4():
                more += _cells("toIPv4('1.2.3.4') ~ 1 ~ '1.2.3' ~ 16909060 + 0 ~ '1.2.3.256'")
            case t.IPv6():
                more += _cells("toIPv6('::2') ~ '1.2.3.4' ~ '::g' ~ toIPv4('1.2.3.4')")
            case t.Time() | t.Time64():
                more += _cells("5 ~ '1:2:3' ~ '100:00:00' ~ '-10:00:00' ~ '25' ~ 3600 + 1")
        return more
