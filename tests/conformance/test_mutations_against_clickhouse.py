"""Random tables, updates, deletes: SELECTs by scans and by ClickHouse itself, against a table that it has mutated."""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.core.base.errors import MergelakeError
from mergelake.query.attach import attached, attaching
from mergelake.query.attach.attached import AttachedSets
from tests.helpers.attached import Mixed
from tests.helpers.random_mutations import Op, RandomTable

TEXT = "JSONCompactEachRowWithNamesAndTypes"
SEED = int(os.environ.get("MERGELAKE_SEED", "5"))
CASES = int(os.environ.get("MERGELAKE_CASES", "150" if os.environ.get("MERGELAKE_CONFORMANCE") == "long" else "6"))
SELECTS = 8
"""For each pair of changes."""
NO_MERGES = "max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1"
SYNC = " SETTINGS mutations_sync = 1, lightweight_deletes_sync = 1"
WAYS = ("files", "copies", "served", "layered")


@dataclass
class Both:
    """The same tables here and in ClickHouse."""

    db: Database
    oracle: Any
    counts: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)

    def create(self, table: RandomTable, ours: str) -> None:
        """Create a table on both sides."""
        create = table.create()
        granularity = table.rng.choice([8, 64, 8192])
        compact = "" if table.rng.random() < 0.6 else ", min_rows_for_wide_part = 1000000000"
        self.log.append(f"{create} SETTINGS index_granularity = {granularity}{compact}")
        self.db.sql(f"{self.log[-1]}{ours}")
        self.oracle.query(f"DROP TABLE IF EXISTS {table.name}")
        self.oracle.query(f"{create} SETTINGS index_granularity = {granularity}, {NO_MERGES}")

    def change(self, table: RandomTable, op: Op) -> bool:
        """Apply a change on both sides; False if the mutation fails for some rows."""
        if op.ours is None:
            self.db.sql(op.text)
            self.oracle.query(op.text)
            self.log.append(op.text)
            return True
        sets, where, partition_id = op.ours
        ours = self.db.table(table.name)
        try:
            if sets:
                ours.update(sets, where, partition_id=partition_id)
            else:
                ours.delete(where, partition_id=partition_id)
        except MergelakeError:  # an expression that mutations do not know
            self.counts["refused"] += 1
            return True
        self.counts["mutations"] += 1
        self.log.append(op.text)
        if (failure := self.theirs(op.text + SYNC)).startswith("error"):
            assert table.throws, f"{op.text}: {failure}"
            return False
        return True

    def theirs(self, query: str) -> str:
        """ClickHouse's answer."""
        try:
            return str(self.oracle.query(query, TEXT))
        except Exception as failure:
            names = re.findall(r"\(([A-Z_]{4,})\)", str(failure))
            return f"error {names[-1] if names else failure}"

    def ours(self, query: str, *, scan: bool) -> str:
        """Our answer."""
        attached.ROWS_MIN = 1 << 60 if scan else 0
        try:
            return self.db.sql(f"{query} FORMAT {TEXT}").text()
        except MergelakeError as failure:
            return f"error {failure.name}"

    def compare(self, query: str) -> None:
        """Compare the answers to a SELECT."""
        expected = self.theirs(query)
        found = {"scanned": self.ours(query, scan=True), "attached": self.ours(query, scan=False)}
        self.counts["selects"] += 1
        if "error NOT_IMPLEMENTED" in found.values():
            self.counts["not implemented"] += 1
            return
        for way, answer in found.items():
            assert answer == expected, f"{way}: {query}\nafter\n{chr(10).join(self.log)}"

    def compare_failing(self, query: str) -> None:
        """Compare our answers while a mutation fails for some rows: if a scan has an answer, ClickHouse has that."""
        scanned = self.ours(query, scan=True)
        assert scanned.startswith("error") or scanned == self.ours(query, scan=False), f"{query}\n{self.log}"


@pytest.fixture
def both(request: Any, oracle: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Both, str]]:
    """Two sides without tables, and settings of our tables."""
    way = WAYS[request.param % len(WAYS)]
    folder = tempfile.mkdtemp()
    monkeypatch.setattr(attached, "ROWS_MIN", 0)
    monkeypatch.setattr(attached, "SCANNED_FIRST", 0)
    monkeypatch.setattr(attached, "SETS", Mixed() if way == "layered" else AttachedSets())
    if way == "served":
        monkeypatch.setattr(attaching, "COPIED_MAX", -1)
    oracle.query("CREATE DATABASE IF NOT EXISTS mutations; USE mutations")
    url = f"memory://mutations-{SEED}-{request.param}" if way == "served" else folder
    yield Both(connect(url), oracle), ", min_bytes_for_full_part_storage = 0" if way in ("files", "layered") else ""
    oracle.query("USE default; DROP DATABASE mutations")
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("both", "number"), [(number, number) for number in range(CASES)], indirect=["both"], ids=map(str, range(CASES))
)
def test_reads_see_what_clickhouse_writes_down(both: tuple[Both, str], number: int) -> None:
    sides, settings = both
    rng = random.Random(SEED * 100_000 + number)
    throws = number % 5 == 4
    tables = [RandomTable(rng, "ta", throws=throws), RandomTable(rng, "tb", throws=throws)]
    for table in tables:
        sides.create(table, settings)
        sides.change(table, table.insert())
    for _ in range(rng.randrange(2, 7)):
        for table in tables:
            if not sides.change(table, table.insert() if rng.random() < 0.25 else table.change()):
                for _ in range(SELECTS):
                    sides.compare_failing(table.select())
                return
        if rng.random() < 0.12:
            table = rng.choice(tables)
            sides.db.table(table.name).apply_mutations()
            sides.log.append(f"apply {table.name}")
        for _ in range(SELECTS):
            one, other = rng.sample(tables, 2)
            sides.compare(one.select(other))
    print(dict(sides.counts))
