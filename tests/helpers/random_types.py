"""Random ClickHouse types, nested to a depth, as text."""

from __future__ import annotations

import numpy as np

LEAVES = [
    *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)),
    "Float32",
    "Float64",
    "BFloat16",
    "Bool",
    "String",
    "FixedString(1)",
    "FixedString(17)",
    "Date",
    "Date32",
    "DateTime",
    "DateTime('Asia/Tokyo')",
    "DateTime64(0)",
    "DateTime64(9, 'Europe/Berlin')",
    "Time",
    "Time64(0)",
    "Time64(9)",
    "Enum8('a' = -128, 'it\\'s' = 0, 'c' = 127)",
    "Enum16('x' = -32768, 'y' = 300)",
    "UUID",
    "IPv4",
    "IPv6",
    "Decimal(9, 9)",
    "Decimal(18, 0)",
    "Decimal(38, 20)",
    "Decimal(76, 38)",
    "IntervalSecond",
    "IntervalYear",
]
"""Types without types inside."""
DICTIONARIES = [
    "String",
    "FixedString(4)",
    "UInt8",
    "Int64",
    "UInt256",
    "Float64",
    "Date",
    "Date32",
    "DateTime",
    "UUID",
    "IPv4",
    "IPv6",
]
"""Types that LowCardinality takes."""
GEO = ["Point", "Ring", "LineString", "MultiLineString", "Polygon", "MultiPolygon"]
KEYS = ["String", "UInt8", "Int128", "Date", "UUID", "FixedString(3)", "LowCardinality(String)", "IPv4", "DateTime"]


def random_type(rng: np.random.Generator, depth: int) -> str:
    """A type with at most `depth` types around each other."""

    def pick(texts: list[str]) -> str:
        return texts[int(rng.integers(len(texts)))]

    if depth <= 1:
        return pick(LEAVES)
    match int(rng.integers(9)):
        case 0:
            return f"Nullable({pick(LEAVES)})"
        case 1:
            inner = pick(DICTIONARIES)
            return f"LowCardinality({f'Nullable({inner})' if rng.random() < 0.5 else inner})"
        case 2 | 3:
            return f"Array({random_type(rng, depth - 1)})"
        case 4:
            return f"Tuple({', '.join(random_type(rng, depth - 1) for _ in range(rng.integers(1, 4)))})"
        case 5:
            names = ["a", "`b.c`", "`d e`"][: rng.integers(1, 4)]
            return f"Tuple({', '.join(f'{name} {random_type(rng, depth - 1)}' for name in names)})"
        case 6:
            return f"Map({pick(KEYS)}, {random_type(rng, depth - 1)})"
        case 7:
            return pick(GEO)
        case _:
            # ClickHouse refuses types with LowCardinality in them here: the function would return them without.
            inner = random_type(rng, depth - 1)
            return inner if "LowCardinality" in inner else f"SimpleAggregateFunction(anyLast, {inner})"
