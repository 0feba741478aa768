"""Random sequences of commands on partitions and parts, among inserts, merges and mutations, played on both sides.

After each step the rows, the number of parts by partition and the number of detached parts are equal; what ClickHouse
refuses is refused with its code, and changes nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from tests.helpers.mutations.sides import code_of

KEYS = {
    "PARTITION BY p ORDER BY k": ["1", "2", "-3", "9", "ID '1'", "ID '-3'", "ID 'x'", "(2)", "tuple(2)", "ALL"],
    "PARTITION BY (p, s) ORDER BY (k DESC) SETTINGS allow_experimental_reverse_key = 1, index_granularity = 2": [
        "(1, 'a')", "(2, 'b')", "(-3, NULL)", "(1, 'zz')", "ALL", "(2, 'a')",
    ],
    "ORDER BY k": ["tuple()", "ID 'all'", "ALL", "()"],
    "PARTITION BY d ORDER BY (p, k)": ["1.5", "'-2.25'", "ALL", "0", "77"],
}  # fmt: skip
WRONG = [
    "DETACH PARTITION ID ''", "DROP PARTITION ID '../x'", "ATTACH PARTITION ID 'a_b'", "DETACH PARTITION (1, 2, 3)",
    "DETACH PART 'x'", "DROP PART 'x_1_1_0'", "ATTACH PART 'x_1_1_0'", "ATTACH PART 'x'", "DROP DETACHED PARTITION ALL",
    "DROP DETACHED PART 'x_1_1_0' SETTINGS allow_drop_detached = 1",
    "DROP DETACHED PART '../x' SETTINGS allow_drop_detached = 1", "FETCH PART 'x_1_1_0' FROM '/x'",
]  # fmt: skip
COLUMNS = "p Int8, s Nullable(String), d Decimal(9, 2), k Int32, v Int64"


class Sides:
    """One table, here and in ClickHouse."""

    def __init__(self, oracle: Any, tail: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.window = self.random.choice([0, 100])
        settings = f"non_replicated_deduplication_window = {self.window}"
        tail = f"{tail}, {settings}" if "SETTINGS" in tail else f"{tail} SETTINGS {settings}"
        tail += ", allow_nullable_key = 1"
        self.oracle, self.url = oracle, f"memory://random-partitions-{seed}-{abs(hash(tail))}"
        self.db = ml.connect(self.url)
        engine = self.random.choice(["MergeTree", "MergeTree", "ReplacingMergeTree"])
        create = f"CREATE TABLE t ({COLUMNS}) ENGINE = {engine} {tail}"
        oracle.query("DROP TABLE IF EXISTS rp.t SYNC")
        oracle.query(create.replace("TABLE t", "TABLE rp.t") + ", max_bytes_to_merge_at_max_space_in_pool = 1")
        self.db.sql(create)
        self.script = [create]

    def run(self, ours: str, theirs: str | None = None) -> int:
        """The code with which both refuse; 0 if both do it."""
        theirs = (ours if theirs is None else theirs).replace(" t ", " rp.t ", 1)
        self.script.append(ours)
        codes = []
        for do in (lambda: self.db.sql(ours), lambda: self.oracle.query(theirs)):
            try:
                do()
                codes.append(0)
            except MergelakeError as refused:
                codes.append(refused.code)
            except Exception as refused:
                codes.append(code_of(refused))
        assert codes[0] == codes[1], (codes, self.told())
        return codes[0]

    def mutate(self, text: str) -> None:
        """ClickHouse writes it down; here it may stay pending."""
        self.run(
            f"{text} SETTINGS mutations_sync = {self.random.choice([0, 0, 2])}", f"{text} SETTINGS mutations_sync = 2"
        )

    def told(self) -> str:
        return ";\n".join(self.script)

    def names(self, table: str) -> tuple[list[str], list[str]]:
        """Names of parts on both sides, in one order."""
        text = f"SELECT name FROM system.{table} WHERE database = '{{}}' AND table = 't'"
        text += " AND active AND rows > 0" if table == "parts" else ""
        text += " ORDER BY partition_id, min_block_number, max_block_number"
        here = self.db.sql(text.format("default")).arrow()["name"].to_pylist()
        there = str(self.oracle.query(text.format("rp"), "TSV")).split()
        counts = [Counter(name.split("_")[0] for name in names) for names in (here, there)]
        assert counts[0] == counts[1], (table, here, there, self.told())
        return here, there

    def compare(self) -> None:
        self.names("parts")
        self.names("detached_parts")
        text = "SELECT * FROM {}t ORDER BY ALL"
        here = str(self.db.sql(text.format("")).text("TSV"))
        there = str(self.oracle.query(text.format("rp."), "TSV"))
        assert here == there, (here, there, self.told())
        other = ml.connect(self.url)
        assert str(other.sql(text.format("")).text("TSV")) == there, self.told()

    def step(self, partitions: list[str]) -> None:
        draw = self.random
        partition = draw.choice(partitions)
        match draw.randrange(13):
            case 0 | 1 | 2:
                rows = [
                    f"({p}, {s}, {d}, {draw.randrange(6)}, {draw.randrange(3)})"
                    for p, s, d in draw.choices([(1, "'a'", 1.5), (2, "'b'", -2.25), (-3, "NULL", 0)], k=3)
                ]
                self.run(f"INSERT INTO t VALUES {', '.join(rows)}", f"INSERT INTO rp.t VALUES {', '.join(rows)}")
            case 3:
                inserts = [text for text in self.script if text.startswith("INSERT")]
                if inserts:
                    again = draw.choice(inserts)
                    self.run(again, again.replace("INTO t", "INTO rp.t"))
            case 4:
                self.mutate(f"ALTER TABLE t UPDATE v = v * 2 + 1 WHERE k % 3 = {draw.randrange(3)}")
            case 5:  # at once: parts that lose all their rows would still be there
                where = f"k = {draw.randrange(6)} AND v % 2 = {draw.randrange(2)}"
                self.run(f"ALTER TABLE t DELETE WHERE {where} SETTINGS mutations_sync = 2")
            case 6:
                self.run("OPTIMIZE TABLE t FINAL")
            case 7 | 8:
                self.run(f"ALTER TABLE t {draw.choice(['DETACH', 'DETACH', 'DROP'])} PARTITION {partition}")
            case 9:
                self.run(f"ALTER TABLE t ATTACH PARTITION {partition}")
            case 10:
                here, there = self.names("parts")
                if here:
                    at, action = draw.randrange(len(here)), draw.choice(["DETACH", "DETACH", "DROP"])
                    self.run(f"ALTER TABLE t {action} PART '{here[at]}'", f"ALTER TABLE t {action} PART '{there[at]}'")
            case 11:
                here, there = self.names("detached_parts")
                if here:
                    at = draw.randrange(len(here))
                    text = draw.choice(["ATTACH PART '{}'", "DROP DETACHED PART '{}' SETTINGS allow_drop_detached = 1"])
                    self.run(f"ALTER TABLE t {text.format(here[at])}", f"ALTER TABLE t {text.format(there[at])}")
            case _:
                self.run(f"ALTER TABLE t {draw.choice(WRONG)}")


# M-024
@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("tail", KEYS)
def test_random_commands_on_partitions_agree_with_clickhouse(oracle, tail, seed):
    oracle.query("CREATE DATABASE IF NOT EXISTS rp")
    sides = Sides(oracle, tail, seed)
    for _ in range(20):
        sides.step(KEYS[tail])
        sides.compare()
