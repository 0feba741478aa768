"""Rows of real parts, for the same model: what mutations mean is said twice, in ClickHouse's words and in Python.

A row is a number, never given twice, and its other values: `(n, (p, k, r, v, u))`. Parts are divided by p and sorted by
k, which is also the key by which engines collapse or combine rows; r is their version, v and u are added up (or of v
the largest is kept). Mutations change v and u.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeAlias

from mergelake.core.model.schema import Column, SkipIndex, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.jobs.mutate.validate import Submission, validate
from mergelake.table.pending.commands import Command, Delete, Update, commands_text
from tests.simulation.tiny import Row, Rows

Values: TypeAlias = dict[str, int]
NAMES = ("n", "p", "k", "r", "v", "u")
PARTITIONS = (1, 2)
KEYS = 6
RANKS = 3
REAL_SCHEMA = TableSchema(
    tuple(Column(at, name, parse_type("UInt8" if name in "pr" else "Int64")) for at, name in enumerate(NAMES)),
    partition_by=("p",),
    order_by=("k",),
    primary_key=("k",),
    indices=(SkipIndex("of_v", "v", "minmax", 1),),
)


ENGINES = ("MergeTree", "ReplacingMergeTree", "SummingMergeTree", "AggregatingMergeTree")


def schema_of(engine: str) -> TableSchema:
    """The table of real rows with an engine of `ENGINES`."""
    if engine == "AggregatingMergeTree":
        functions = {"n": "any", "r": "anyLast", "v": "max", "u": "sum"}
        columns = [
            replace(c, type=parse_type(f"SimpleAggregateFunction({functions[c.name]}, {c.type})"))
            if c.name in functions
            else c
            for c in REAL_SCHEMA.columns
        ]
        # Rows of one key lie in one partition.
        return replace(
            REAL_SCHEMA, engine=engine, columns=tuple(columns), settings={"allow_dimensions_outside_sorting_key": "1"}
        )
    arguments = {"ReplacingMergeTree": ("r",), "SummingMergeTree": ("(v, u)",)}.get(engine, ())
    return replace(REAL_SCHEMA, engine=engine, engine_args=arguments)


@dataclass(frozen=True)
class Condition:
    """Which rows: as text, and as a function."""

    text: str
    holds: Callable[[Values], bool]


@dataclass(frozen=True)
class Meaning:
    """One command of a mutation."""

    command: Command
    where: Condition
    change: Callable[[Values], Values] | None
    """The new values, from the old row; None: the row goes."""

    def apply(self, row: Values) -> Values | None:
        partition_id = self.command.partition_id
        if partition_id not in (None, str(row["p"])) or not self.where.holds(row):
            return row
        return None if self.change is None else row | self.change(row)


def condition(chance: Random) -> Condition:
    """Of rows that stay what they are, or of values that mutations change."""
    m = chance.randint(2, 5)
    d, key, bound = chance.randrange(m), chance.randrange(KEYS), chance.randrange(-40, 200)
    return chance.choice(
        [
            Condition(f"n % {m} = {d}", lambda row: row["n"] % m == d),
            Condition(f"v < {bound}", lambda row: row["v"] < bound),
            Condition(f"v > {bound}", lambda row: row["v"] > bound),
            Condition("v >= u", lambda row: row["v"] >= row["u"]),
            Condition(f"k = {key}", lambda row: row["k"] == key),
            Condition(f"k >= {key} AND u != {bound}", lambda row: row["k"] >= key and row["u"] != bound),
        ]
    )


def meaning(chance: Random) -> Meaning:
    """A command, mostly one that is not the same when it is applied twice."""
    where = condition(chance)
    scope = str(chance.choice(PARTITIONS)) if chance.random() < 0.2 else None
    if chance.random() < 0.3:
        return Meaning(Delete(where.text, scope, lightweight=chance.random() < 0.5), where, None)
    c = chance.randint(1, 9)
    values, change = chance.choice(
        [
            ({"v": f"v + {c}"}, lambda row: {"v": row["v"] + c}),
            ({"v": "u", "u": "v"}, lambda row: {"v": row["u"], "u": row["v"]}),
            ({"v": f"(v + u * {c}) % 100", "u": "u + 1"}, lambda row: _mixed(row, c)),
            ({"u": f"k + {c}"}, lambda row: {"u": row["k"] + c}),
        ]
    )
    return Meaning(Update(tuple(values.items()), where.text, scope), where, change)


def _mixed(row: Values, c: int) -> Values:
    whole = row["v"] + row["u"] * c
    return {"v": abs(whole) % 100 * (1 if whole > 0 else -1), "u": row["u"] + 1}  # as in SQL, and in C


def values_of(row: Row) -> Values:
    return dict(zip(NAMES, (row[0], *row[1]), strict=True))


def row_of(values: Values) -> Row:
    return values["n"], tuple(values[name] for name in NAMES[1:])


class RealRows:
    """What a model has to know of rows (`model.RowKind`); `meanings` are those of each text in the log."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.meanings: dict[str, tuple[Meaning, ...]] = {}

    def learn(self, commands: Sequence[Meaning]) -> list[Command]:
        """The commands of a mutation, whose meaning is known from now on, by the words in which the log has them."""
        said = [each.command for each in commands]
        logged = validate(said, self.schema, Submission(0))
        self.meanings[commands_text(logged)] = tuple(commands)
        return said

    def changed(self, rows: Iterable[Row], commands: str) -> Rows:
        out = []
        for row in rows:
            values: Values | None = values_of(row)
            for each in self.meanings[commands]:
                values = None if values is None else each.apply(values)
            if values is not None:
                out.append(row_of(values))
        return tuple(out)

    def merged(self, rows: Rows, engine: str) -> dict[int, Row]:
        if engine == "MergeTree":
            return dict(enumerate(rows))
        groups: dict[int, list[int]] = {}
        for at, (_, (_, key, *_)) in enumerate(rows):
            groups.setdefault(key, []).append(at)
        if engine == "ReplacingMergeTree":
            return {
                at: rows[at]
                for at in sorted(max(group, key=lambda at: (rows[at][1][2], at)) for group in groups.values())
            }
        out: dict[int, Row] = {}
        for group in groups.values():
            number, (partition, key, rank, *_) = rows[group[0]]
            rank = rows[group[-1]][1][2] if engine == "AggregatingMergeTree" else rank
            vs, us = zip(*(rows[at][1][3:] for at in group), strict=True)
            v, u = sum(vs) if engine == "SummingMergeTree" else max(vs), sum(us)
            if engine == "AggregatingMergeTree" or v or u:  # a row that adds up to nothing goes
                out[group[0]] = number, (partition, key, rank, v, u)
        return out

    def in_order(self, rows: Iterable[Row]) -> Rows:
        return tuple(sorted(rows))
