"""Tables with skip indexes, random rows for them, and predicates of which the indexes know something."""

from __future__ import annotations

import random
from typing import Any

from mergelake.core.model.schema import SkipIndex, TableSchema
from tests.helpers.predicates import random_atom
from tests.helpers.scans import Rows, make_schema

COLUMNS = {
    "k": "UInt32",
    "c": "Int32",
    "d": "UInt8",
    "f": "Float64",
    "s": "String",
    "w": "String",
    "n": "Nullable(Int16)",
    "l": "LowCardinality(String)",
    "a": "Array(UInt16)",
    "ws": "Array(String)",
}
WORDS = ["foo", "bar", "baz", "qux", "x-1", "héllo", "a", "quick brown", "fox jumps over", "", "lazy", "DOG dog"]

INDEXES: dict[str, list[tuple[str, str, str, int]]] = {
    "minmax": [("i", "c", "minmax", 1)],
    "minmax_pair": [("i", "(c, s)", "minmax", 2), ("j", "f", "minmax", 1), ("n1", "n", "minmax", 1)],
    "set": [("i", "c", "set(0)", 1)],
    "set_some": [("i", "(c, d)", "set(6)", 1), ("j", "n", "set(0)", 2), ("l1", "l", "set(100)", 1)],
    "bloom": [("i", "s", "bloom_filter", 1)],
    "bloom_more": [
        ("i", "(c, s)", "bloom_filter(0.1)", 1),
        ("a1", "a", "bloom_filter(0.01)", 2),
        ("n1", "n", "bloom_filter", 1),
        ("l1", "l", "bloom_filter", 3),
    ],
    "token": [("i", "w", "tokenbf_v1(64, 2, 0)", 1), ("j", "lower(w)", "tokenbf_v1(32, 3, 7)", 2)],
    "ngram": [("i", "w", "ngrambf_v1(3, 128, 2, 0)", 1), ("j", "ws", "ngrambf_v1(2, 64, 1, 5)", 2)],
    "expressions": [
        ("i", "c + d", "minmax", 1),
        ("j", "intDiv(k, 7)", "set(5)", 1),
        ("m", "lower(s)", "bloom_filter", 1),
    ],
    "mixed": [
        ("mc", "c", "minmax", 1),
        ("bs", "s", "bloom_filter(0.05)", 1),
        ("sd", "d", "set(0)", 2),
        ("tw", "w", "tokenbf_v1(128, 2, 0)", 1),
    ],
}


def skip_schema(name: str, **kwargs: Any) -> TableSchema:
    """The table of that name: ten columns, granules of four rows."""
    return make_schema(
        COLUMNS,
        order_by=("k",),
        indices=tuple(SkipIndex(*index) for index in INDEXES[name]),
        settings={"index_granularity": "4", **kwargs.pop("settings", {})},
        **kwargs,
    )


def skip_rows(rng: random.Random, count: int) -> Rows:
    """Rows whose values crowd together, so that indexes have something to drop."""
    out = []
    middle = rng.randrange(-20, 20)
    for i in range(count):
        if i % 5 == 0:
            middle = rng.randrange(-20, 20)
        text = rng.choice(WORDS) + rng.choice(["", " ", "/"]) + rng.choice(WORDS)
        out.append(
            {
                "k": rng.randrange(60),
                "c": middle + rng.randrange(3),
                "d": rng.randrange(30),
                "f": rng.choice([0.0, -1.5, 2.25, 1e9, -3.0, 7.0, 0.5]),
                "s": rng.choice(WORDS).encode(),
                "w": text.encode(),
                "n": None if rng.random() < 0.2 else middle + rng.randrange(4),
                "l": rng.choice(WORDS).encode(),
                "a": [rng.randrange(20) for _ in range(rng.randrange(3))],
                "ws": [rng.choice(WORDS).encode() for _ in range(rng.randrange(3))],
            }
        )
    return out


def skip_atom(rng: random.Random) -> str:
    """One comparison."""
    word, other = repr(rng.choice(WORDS)), repr(rng.choice(WORDS))
    number = rng.randrange(-22, 24)
    return rng.choice(
        [
            lambda: f"c = {number}",
            lambda: f"c IN ({number}, {number + 5}, {number - 9})",
            lambda: f"c BETWEEN {number} AND {number + 3}",
            lambda: f"s = {word}",
            lambda: f"s IN ({word}, {other})",
            lambda: f"l = {word}",
            lambda: f"l IN ({word}, {other})",
            lambda: f"n = {number}",
            lambda: f"n IN ({number}, {number + 1})",
            lambda: f"n IS {rng.choice(['', 'NOT '])}NULL",
            lambda: f"has(a, {rng.randrange(25)})",
            lambda: f"has(ws, {word})",
            lambda: f"hasAll(a, [{rng.randrange(25)}, {rng.randrange(25)}])",
            lambda: f"hasToken(w, '{rng.choice(['foo', 'brown', 'DOG', 'x', '1', 'héllo', 'none'])}')",
            lambda: f"w = {word[:-1] + ' ' + other[1:]}",
            lambda: f"w LIKE '%{rng.choice(['foo', ' bar ', 'jumps', 'ick bro', 'lo/q', 'zzz'])}%'",
            lambda: f"w LIKE '{rng.choice(['foo', 'quick ', 'x-1 ', 'lazy/bar'])}%'",
            lambda: f"w NOT LIKE '%{rng.choice(['foo', 'bar'])}%'",
            lambda: f"startsWith(w, '{rng.choice(['foo', 'quick b', 'x-1 '])}')",
            lambda: f"endsWith(w, '{rng.choice(['foo', ' dog', '/qux', 'jumps over'])}')",
            lambda: f"lower(w) = {word.lower()}",
            lambda: f"lower(s) = {word.lower()}",
            lambda: f"w IN ({word}, {other})",
            lambda: f"(c, s) IN (({number}, {word}), ({number + 2}, {other}))",
            lambda: f"(c, d) IN (({number}, {rng.randrange(30)}), ({number + 2}, {rng.randrange(30)}))",
            lambda: f"c + d {rng.choice(['=', '<', '>'])} {number}",
            lambda: f"c = d - {rng.randrange(20)}",
            lambda: f"intDiv(k, 7) = {rng.randrange(9)}",
            lambda: f"d = {rng.randrange(30)}",
            lambda: f"d != {rng.randrange(30)}",
            lambda: f"f {rng.choice(['=', '<', '>', '>='])} {rng.choice(['0.5', '-2', '7', '1e8'])}",
            lambda: random_atom(rng, {"c": "Int32", "d": "UInt8", "n": "Nullable(Int16)", "s": "String"}),
        ]
    )()


def skip_predicate(rng: random.Random, depth: int = 2) -> str:
    """Comparisons joined by AND, OR and NOT."""
    shape = rng.random()
    if depth == 0 or shape < 0.4:
        return skip_atom(rng)
    if shape < 0.7:
        return " AND ".join(f"({skip_predicate(rng, depth - 1)})" for _ in range(2))
    if shape < 0.93:
        return " OR ".join(f"({skip_predicate(rng, depth - 1)})" for _ in range(2))
    return f"NOT ({skip_predicate(rng, depth - 1)})"
