"""Short random sequences for each engine: inserts, merges in any order, mutations; FINAL, and OPTIMIZE at the end.

MERGELAKE_ENGINE_SEQUENCES=200 plays so many for each engine, MERGELAKE_ENGINE_FIRST=1000 others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.jobs.merge.commit import merge_parts
from mergelake.jobs.merge.plan import plan_merge
from tests.helpers.rounds import rounds

pytestmark = pytest.mark.chdb

SEQUENCES = int(os.environ.get("MERGELAKE_ENGINE_SEQUENCES", rounds(1, 100)))
FIRST = int(os.environ.get("MERGELAKE_ENGINE_FIRST", "0"))
KEYS = "p UInt8, k Int8, s String, sign Int8, ver UInt8, gone UInt8"
PLAIN = "n Nullable(Int64), f Float64, d Decimal(12, 3), t String, `xMap.id` Array(UInt8), `xMap.v` Array(Int16)"
SIMPLE = (
    "n SimpleAggregateFunction(max, Nullable(Int64)), f SimpleAggregateFunction(anyLast, Float64), "
    "d SimpleAggregateFunction(sumWithOverflow, Decimal(12, 3)), t SimpleAggregateFunction(min, String), "
    "`xMap.id` SimpleAggregateFunction(groupArrayArray, Array(UInt8)), "
    "`xMap.v` SimpleAggregateFunction(groupUniqArrayArray, Array(Int16))"
)
STATES = (
    ", u AggregateFunction(sum, Int64), w AggregateFunction(uniqExact, UInt8), g AggregateFunction(groupArray, UInt8)"
)
ENGINES = {
    "MergeTree": PLAIN,
    "ReplacingMergeTree(ver)": PLAIN,
    "ReplacingMergeTree(ver, gone)": PLAIN,
    "CollapsingMergeTree(sign)": PLAIN,
    "VersionedCollapsingMergeTree(sign, ver)": PLAIN,
    "CoalescingMergeTree": PLAIN + STATES,
    "SummingMergeTree": PLAIN + STATES,
    "AggregatingMergeTree": SIMPLE + STATES,
}
SHOWN = (
    "p, k, s, sign, ver, gone, n, f, toString(d), t, xMap.id, arraySort(xMap.v), finalizeAggregation(u), "
    "finalizeAggregation(w), finalizeAggregation(g)"
)


class Game:
    """One table here, one in ClickHouse."""

    def __init__(self, engine: str, number: int, oracle: Any) -> None:
        self.rng = rng = random.Random(f"{engine} {number}")
        self.engine, self.oracle, self.theirs = engine, oracle, "default.engine_sequence"
        self.mutates = rng.random() < 0.5
        """Whether rows are updated: merges then come at the end, as they decide which rows an update finds."""
        self.db: Database = connect(f"memory://{engine} {number}")
        columns = f"{KEYS}, {ENGINES[engine]}"
        order = "(p, k, s)"
        settings = f"index_granularity = {rng.choice((2, 8192))}"
        if engine.startswith(("Aggregating", "Summing", "Coalescing")):
            order = "(p, k, s, sign, ver, gone)"
        create = f"CREATE TABLE {{}} ({columns}) ENGINE = {engine} PARTITION BY p ORDER BY {order} SETTINGS {settings}"
        self.db.sql(f"{create.format('t')}, merge_max_chunk_bytes = {rng.choice((500, 1 << 20))}")
        oracle.query(f"DROP TABLE IF EXISTS {self.theirs}")
        oracle.query(create.format(self.theirs))
        oracle.query(f"SYSTEM STOP MERGES {self.theirs}")
        self.signs: dict[tuple[int, int, str], int] = {}

    def row(self, number: int) -> str:
        rng = self.rng
        key = rng.randrange(2), rng.randrange(-2, 3), rng.choice(("''", "'a'"))
        # A CollapsingMergeTree gives the same rows in any order of merges only if signs alternate.
        sign = self.signs[key] = -self.signs.get(key, -1)
        if self.engine.startswith(("Versioned", "MergeTree")):
            sign = rng.choice((1, -1))
        elif not self.engine.startswith("Collapsing"):
            sign = 1
        # Rows that cancel each other are equal but for their sign.
        same = self.engine.startswith(("Versioned", "Collapsing"))
        many = rng.randrange(3)
        cells = [
            *map(str, key), str(sign), str(rng.randrange(3)), str(rng.choice((0, 0, 1))),
            "1" if same else rng.choice(("NULL", "0", "5", "-5", "9223372036854775807")),
            "1" if same else rng.choice(("0", "-0.", "1.5", "nan", "2")),
            "1" if same else rng.choice(("0", "1.5", "-1.5")),
            "'x'" if same else rng.choice(("''", "'x'", "'yy'")),
            f"[{', '.join(str(rng.randrange(3)) for _ in range(many))}]",
            f"[{', '.join(str(rng.choice((0, 1, -1, 30000))) for _ in range(many))}]",
        ]  # fmt: skip
        if STATES in ENGINES[self.engine]:
            cells += [str(rng.randrange(5)), str(number)]
        return f"({', '.join(cells)})"

    def insert(self) -> None:
        optimize = self.rng.choice((0, 1))
        rows = [self.row(number) for number in range(self.rng.choice((1, 3, 12)))]
        what = f"VALUES {', '.join(rows)}"
        if STATES in ENGINES[self.engine]:
            kinds = f"{KEYS}, {PLAIN}, x UInt8, y UInt8"
            states = [
                f"arrayReduce('{function}State', CAST([x, y], 'Array({kind})'))"
                for function, kind in (("sum", "Int64"), ("uniqExact", "UInt8"), ("groupArray", "UInt8"))
            ]
            what = f"SELECT * EXCEPT (x, y), {', '.join(states)} FROM VALUES('{kinds}', {', '.join(rows)})"
        self.db.sql(f"ALTER TABLE t MODIFY SETTING optimize_on_insert = {optimize}")
        self.db.sql(f"INSERT INTO t {what}")
        self.oracle.query(f"INSERT INTO {self.theirs} SETTINGS optimize_on_insert = {optimize} {what}")

    def merge(self) -> None:
        """Merge neighbours here."""
        table = self.db.table("t")
        state = table.handle.refresh()
        parts = state.partitions.get(self.rng.choice([*state.partitions] or [""]), ())
        if self.mutates or len(parts) < 2:
            return
        start = self.rng.randrange(len(parts) - 1)
        chosen = parts[start : start + self.rng.randrange(2, 4)]
        task = plan_merge(table.handle.directory, state.schema, chosen, mutations=state.mutations)
        run: Callable[..., Any] = lambda work: table.env.run_merges(table.handle, [work])[0]  # noqa: E731
        merge_parts(table.handle, task, run)

    def mutate(self) -> None:
        key = self.rng.randrange(-2, 3)
        command = f"DELETE WHERE k = {key}"
        if self.mutates:
            set_column = self.rng.choice(("t = 'new'", "n = 7" if "Simple" not in ENGINES[self.engine] else "t = 'w'"))
            command = self.rng.choice((command, f"UPDATE {set_column} WHERE k = {key} AND p = 1"))
        self.db.sql(f"ALTER TABLE t {command}")
        self.oracle.query(f"SYSTEM START MERGES {self.theirs}")
        self.oracle.query(f"ALTER TABLE {self.theirs} {command} SETTINGS mutations_sync = 2")
        self.oracle.query(f"SYSTEM STOP MERGES {self.theirs}")

    def same(self, final: str) -> None:
        shown = SHOWN if STATES in ENGINES[self.engine] else SHOWN.partition(", finalize")[0]
        query = f"SELECT toString(tuple({shown})) AS row FROM {{}}{final} ORDER BY row"
        assert self.db.sql(query.format("t")).text("TSV") == str(self.oracle.query(query.format(self.theirs), "TSV"))

    def play(self) -> None:
        final = "" if self.engine == "MergeTree" else " FINAL"
        for step in range(self.rng.choice((2, 4))):
            self.insert()
            if step:
                self.merge()
        self.same(final)
        if self.rng.random() < 0.6:
            self.mutate()
            self.same(final)
        self.insert()
        self.same(final)
        self.oracle.query(f"SYSTEM START MERGES {self.theirs}")
        self.oracle.query(f"OPTIMIZE TABLE {self.theirs} FINAL")
        self.db.sql("OPTIMIZE TABLE t FINAL")
        self.same(final)
        self.same("")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_shows_what_clickhouse_shows(engine: str, oracle: Any) -> None:
    for number in range(FIRST, FIRST + SEQUENCES):
        try:
            Game(engine, number, oracle).play()
        except AssertionError as differs:
            raise AssertionError(f"sequence {number} of {engine}: {str(differs)[:3000]}") from None
