"""Random tables with TTLs, and rows for them, as SQL: long expired, far in the future, or without a time."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

_OLD = ("2001-02-03", "2010-05-06", "2019-12-31", "2020-01-01")
_FAR = ("2090-01-01", "2095-06-07", "2100-03-01")
_TIMES = {
    "Date": ("{}", "1970-01-01"),
    "Date32": ("{}", "1970-01-01"),
    "DateTime": ("{} 10:20:30", "1970-01-01 00:00:00"),
    "DateTime('America/New_York')": ("{} 23:00:01", "1969-12-31 19:00:00"),
    "DateTime64(3)": ("{} 10:20:30.456", "1970-01-01 00:00:00.000"),
    "LowCardinality(Date)": ("{}", "1970-01-01"),
}
_SHIFTS = ("{d}", "{d} + INTERVAL 1 DAY", "{d} + toIntervalMonth(k)", "toDate({d}) + 3", "{d} - INTERVAL 2 YEAR")
_WHERES = ("n > 0", "k = 1", "s IN ('a', 'b')", "n IS NULL OR k = 2", "x < 50 AND s != 'c'")
_SETS = (
    "x = max(x)", "x = min(x), n = sum(n)", "y = sum(y) + 1, s = max(s)", "n = count(), z = any(z)",
    "x = toInt32(avg(x)), s = any(s)", "y = anyLast(y), x = sum(x)", "n = count(n)", "",
    "x = uniqExact(n), y = uniq(v)", "z = quantileExact(0.5)(x) + avg(x), n = argMax(n, x)", "n = sumIf(n, v > 2)",
    "x = countIf(v > 2) + count(), s = argMax(s, v)", "y = length(groupArray(n)), x = count(DISTINCT v)",
    "z = corr(x, v), n = anyLast_respect_nulls(n)", "s = argMinIf(s, x, n > 2), y = sum(y) FILTER (WHERE x > 30)",
    "z = quantileTDigest(0.9)(z), x = sumOrNull(n) IS NULL",
)  # fmt: skip
_ENGINES = ("MergeTree", "MergeTree", "MergeTree", "ReplacingMergeTree(v)", "SummingMergeTree", "ReplacingMergeTree")
_KEYS = (("k", "k"), ("(k, s)", "k"), ("(k, s)", "k, s"), ("(s, k)", "s"), ("(k DESC, s)", "k"))


@dataclass
class RandomTtl:
    """One table."""

    create: str
    """Columns and clauses, without the name."""
    kind: str
    """The type of the time."""

    def rows(self, rng: random.Random, most: int = 30, *, epoch: float = 0.1) -> str:
        """The values of an INSERT; `epoch` is the share of rows that never expire."""
        return ", ".join(self._row(rng, epoch) for _ in range(rng.randrange(1, most)))

    def _row(self, rng: random.Random, share: float) -> str:
        pattern, epoch = _TIMES[self.kind]
        day = rng.choice(_OLD * 2 + _FAR)
        time = epoch if rng.random() < share else pattern.format(day)
        number = "NULL" if rng.random() < 0.3 else str(rng.randrange(-3, 9))
        return (
            f"('{time}', {rng.randrange(4)}, '{rng.choice('abc')}', {number}, {rng.randrange(100)}, "
            f"{rng.randrange(256)}, {rng.randrange(9) / 2}, {rng.randrange(5)})"
        )


def time(rng: random.Random) -> str:
    """A time at which rows expire."""
    return rng.choice(_SHIFTS).format(d="d")


def elements(rng: random.Random, group: str = "", sets: tuple[str, ...] = ()) -> str:
    """The elements of a TTL clause; `group`: keys of a GROUP BY."""
    made = []
    if rng.random() < 0.5:
        made.append(time(rng))
    made += [f"{time(rng)} {rng.choice(('', 'DELETE '))}WHERE {rng.choice(_WHERES)}" for _ in range(rng.randrange(3))]
    if group and rng.random() < 0.4:
        chosen = rng.choice(sets)
        made.append(f"{time(rng)} GROUP BY {group}" + (f" SET {chosen}" if chosen else ""))
    codecs = ("ZSTD(5)", "LZ4HC(3)", "NONE")
    made += [f"{time(rng)} RECOMPRESS CODEC({rng.choice(codecs)})" for _ in range(rng.randrange(3))]
    rng.shuffle(made)
    # As ClickHouse keeps the times of equal expressions together, they are all different here.
    made = list({re.split(" WHERE| DELETE| GROUP BY", each)[0]: each for each in made}.values())
    made.sort(key=lambda each: "GROUP BY" in each and " SET " not in each)  # nothing can follow such a one
    return ", ".join(made) or "d"


def draw(rng: random.Random, *, groups: bool = True, plain: bool = False) -> RandomTtl:
    """A table with at least one TTL; `plain`: without any. `groups`: with a GROUP BY in some."""
    kind = rng.choice(list(_TIMES))
    key, group = rng.choice(_KEYS)
    clause = elements(rng, group if groups else "", tuple(each for each in _SETS if "s = " not in each or key == "k"))

    def ttl(share: float) -> str:
        return f" TTL {time(rng)}" if rng.random() < share and not plain else ""

    # Sums of values that have expired depend on whether the parts that lack the column were written before.
    engine = rng.choice([each for each in _ENGINES if not plain or "Summing" not in each])
    fixed = 0.0 if engine == "SummingMergeTree" else 0.3
    columns = (
        f"d {kind}, k UInt8, s LowCardinality(String), n Nullable(Int64){ttl(fixed)}, x Int32 DEFAULT k + 7{ttl(0.3)}, "
        f"y UInt8{ttl(0.2)}, z Float64{ttl(0.2)}, v UInt8"
    )
    columns += ", INDEX i v TYPE minmax" if rng.random() < 0.3 else ""
    partition = rng.choice(("", "", "PARTITION BY k % 2 "))
    only_columns = " TTL " in columns and rng.random() < 0.3
    last = "" if plain or only_columns else f" TTL {clause}"
    return RandomTtl(f"({columns}) ENGINE = {engine} {partition}ORDER BY {key}{last}", kind)
