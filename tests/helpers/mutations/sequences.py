"""Random sequences: a table, statements, and the reads that follow each."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.helpers.mutations.expressions import Expressions
from tests.helpers.mutations.kinds import LITERALS, UNCHANGED
from tests.helpers.mutations.tables import DrawnColumn, DrawnTable, draw_table

PARTITION = "{partition}"
"""Stands for the id of a partition that exists when the statement runs."""


@dataclass(frozen=True)
class Read:
    """What is read, and by which door."""

    columns: tuple[str, ...]
    """Empty: count()."""
    where: str = ""
    prewhere: str = ""
    final: bool = False
    ordered: bool = False
    limit: int | None = None
    by: str = "scan"
    """`scan` or `sql`."""
    connection: int = 0
    """0: the one that writes."""

    @property
    def tail(self) -> str:
        """FROM and what follows."""
        prewhere = f" PREWHERE {self.prewhere}" if self.prewhere else ""
        return f"FROM t{' FINAL' if self.final else ''}{prewhere}{f' WHERE {self.where}' if self.where else ''}"

    def __str__(self) -> str:
        extra = f" ordered={self.ordered} limit={self.limit} by={self.by} connection={self.connection}"
        return f"SELECT {', '.join(self.columns) or 'count()'} {self.tail} --{extra}"


@dataclass(frozen=True)
class Step:
    """A statement and the reads after it."""

    statement: str
    """SQL of ClickHouse; `PARTITION` in it is the `pick`-th partition."""
    reads: tuple[Read, ...]
    number: int = 0
    """Its place in the sequence that was drawn."""
    pick: int = 0
    remembers: bool = False
    """Whether the first read is asked again of this version later."""


@dataclass(frozen=True)
class Sequence:
    """A table and what is done with it."""

    seed: str
    table: DrawnTable
    steps: tuple[Step, ...]

    def only(self, steps: tuple[Step, ...]) -> Sequence:
        """The sequence with some of its steps."""
        return replace(self, steps=steps)


def draw_sequence(seed: str, *, statements: tuple[int, int] = (10, 60), reads: int = 3) -> Sequence:
    """The sequence of a seed."""
    rng = random.Random(seed)
    table = draw_table(rng)
    draw = _Drawing(rng, table)
    steps = [draw.insert_step(reads)]
    steps += [draw.step(reads) for _ in range(rng.randrange(statements[0], statements[1] + 1) - 1)]
    return Sequence(seed, table, tuple(steps))


class _Drawing:
    def __init__(self, rng: random.Random, table: DrawnTable) -> None:
        self._rng = rng
        self._table = table
        self._stored = [column for column in table.columns if column.default_kind != "ALIAS"]
        self._expressions = Expressions(rng, self._stored)
        self._of_all = Expressions(rng, table.columns)
        self._free = [c for c in table.columns if not (c.fixed or c.is_computed or c.kind in UNCHANGED)]
        self._rows = self._count = 0

    def insert_step(self, reads: int) -> Step:
        return self._step(self._insert(), reads)

    def step(self, reads: int) -> Step:
        shape = self._rng.random()
        if shape < 0.25 or (shape < 0.4 and self._rows < 50):
            statement = self._insert()
        elif shape < 0.58:
            statement = f"ALTER TABLE t {self._update()}"
        elif shape < 0.68:
            statement = f"ALTER TABLE t {self._delete()}"
        elif shape < 0.75:
            statement = f"DELETE FROM t{self._in_partition()} WHERE {self._rare()}"
        elif shape < 0.83:
            count = self._rng.randrange(2, 5)
            commands = [self._update() if self._rng.random() < 0.7 else self._delete() for _ in range(count)]
            statement = f"ALTER TABLE t {', '.join(commands)}"
        elif shape < 0.87 and self._table.partition_by:
            statement = f"ALTER TABLE t DROP PARTITION ID '{PARTITION}'"
        elif shape < 0.93 and self._table.partition_by:
            statement = f"OPTIMIZE TABLE t PARTITION ID '{PARTITION}' FINAL"
        elif shape < 0.97 or self._table.replaces:
            statement = "OPTIMIZE TABLE t FINAL"
        else:
            statement = "OPTIMIZE TABLE t"
        return self._step(statement, reads)

    def _step(self, statement: str, reads: int) -> Step:
        rng = self._rng
        drawn = tuple(self._read() for _ in range(rng.randrange(1, reads + 1)))
        self._count += 1
        return Step(statement, drawn, self._count, rng.randrange(100), remembers=rng.random() < 0.3)

    # -- statements

    def _insert(self) -> str:
        rng = self._rng
        given = [c for c in self._table.columns if not c.is_computed and not (c.default_kind and rng.random() < 0.5)]
        names = ", ".join(column.name for column in given)
        rows = rng.choice((1, 2, 5, 20, 60, 150, 300))
        if self._rows + rows > 2500:
            rows = 3
        self._rows += rows
        if rows <= 5:
            cells = (f"({', '.join(self._literal(c) for c in given)})" for _ in range(rows))
            return f"INSERT INTO t ({names}) VALUES {', '.join(cells)}"
        values = ", ".join(self._varied(column) for column in given)
        return f"INSERT INTO t ({names}) SELECT {values} FROM numbers({rows})"

    def _literal(self, column: DrawnColumn) -> str:
        return self._rng.choice(column.values) if column.values else self._expressions.literal(column.kind)

    def _varied(self, column: DrawnColumn) -> str:
        """A value that depends on `number`: one of the literals of its type."""
        literals = column.values or LITERALS[column.kind]
        chosen = self._rng.sample(literals, self._rng.randrange(1, len(literals) + 1))
        pool = f"CAST([{', '.join(chosen)}] AS Array({column.kind}))"
        return f"{pool}[1 + cityHash64(number, {self._rng.randrange(1000)}) % {len(chosen)}]"

    def _update(self) -> str:
        rng = self._rng
        if not self._free or rng.random() < 0.04:  # it may be refused
            chosen = [rng.choice([column for column in self._table.columns if column.kind not in UNCHANGED])]
        else:
            chosen = rng.sample(self._free, min(len(self._free), rng.choice((1, 1, 1, 2, 2, 3))))
        if len(chosen) == 2 and chosen[0].kind == chosen[1].kind and rng.random() < 0.6:
            sets = [f"{chosen[0].name} = {chosen[1].name}", f"{chosen[1].name} = {chosen[0].name}"]
        else:
            sets = [f"{column.name} = {self._expressions.value(column.kind)}" for column in chosen]
        return f"UPDATE {', '.join(sets)}{self._in_partition()} WHERE {self._condition()}"

    def _delete(self) -> str:
        return f"DELETE{self._in_partition()} WHERE {self._rare()}"

    def _in_partition(self) -> str:
        return f" IN PARTITION ID '{PARTITION}'" if self._rng.random() < 0.15 else ""

    def _condition(self) -> str:
        shape = self._rng.random()
        if shape < 0.1:
            return self._rng.choice(("1", "1 = 1", "0", "NULL"))
        draw = self._of_all if shape < 0.2 else self._expressions
        return draw.condition()

    def _rare(self) -> str:
        """A condition that leaves some rows, mostly."""
        shape = self._rng.random()
        if shape < 0.06:
            return self._rng.choice(("1", "0", "NULL"))
        if shape < 0.3:
            return self._condition()
        return f"({self._expressions.condition(1)} AND {self._expressions.condition(0)})"

    # -- reads

    def _read(self) -> Read:
        rng = self._rng
        names = [column.name for column in self._table.columns]
        by, connection = rng.choice(("scan", "scan", "sql")), int(rng.random() < 0.25)
        final = self._table.replaces and rng.random() < 0.6
        if rng.random() < 0.1:
            names.append("_partition_id")
        shape = rng.random()
        if final and self._table.engine == "SummingMergeTree":
            where = self._of_all.condition() if rng.random() < 0.5 else ""
            return Read(tuple(names), where, final=True, by=by, connection=connection)
        if shape < 0.2:
            return Read(tuple(names), by=by, connection=connection, final=final)
        where = self._of_all.condition() if rng.random() < 0.7 else ""
        if shape < 0.35:
            return Read((), where, final=final, by="sql", connection=connection)
        some = tuple(rng.sample(names, rng.randrange(1, len(names) + 1)))
        read = Read(some, where, final=final, by=by, connection=connection)
        if shape < 0.5 and not final:  # with FINAL, ClickHouse evaluates PREWHERE before it replaces rows
            read = replace(read, prewhere=self._of_all.condition(1))
        if by == "scan" and rng.random() < 0.35:
            read = replace(read, ordered=True)
        if by == "scan" and rng.random() < 0.15:
            read = replace(read, limit=rng.choice((1, 3, 20, 100)))
        return read
