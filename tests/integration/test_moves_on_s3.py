"""kill -9 at every request that a MOVE or REPLACE of a partition writes, on a real S3 server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mergelake as ml
from mergelake.log.reading import transactions

ROOT = Path(__file__).parents[2]
WRITES = 3
"""Entries of both tables, and the record."""
STEPS = {"move": range(2 * WRITES + 1), "replace": (2, 4, 5)}
"""Before and after each of them; of the last one nothing is killed."""
BEFORE = [[(1, 1), (1, 2), (2, 3)], [(1, 100)]]
AFTER = {
    "move": [[(2, 3)], [(1, 1), (1, 2), (1, 100)]],
    "replace": [[(1, 1), (1, 2), (2, 3)], [(1, 1), (1, 2)]],
}
BOTH = "SELECT * FROM (SELECT 'a' AS t, p, k FROM a UNION ALL SELECT 'b', p, k FROM b) ORDER BY t, p, k"


def rows(db: ml.Database) -> list[list[tuple[int, int]]]:
    """The rows of both tables, by one statement."""
    found = db.sql(BOTH).rows()
    return [[row[1:] for row in found if row[0] == name] for name in "ab"]


# M-074
@pytest.mark.parametrize("kind", AFTER)
def test_a_process_that_is_killed_has_moved_all_or_nothing(
    kind: str, s3_url: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "PATIENCE_S", 0.3)
    processes = []
    for step in STEPS[kind]:
        url = f"{s3_url}/{step}"
        db = ml.connect(url, s3_options)
        for name in "ab":
            db.sql(f"CREATE TABLE {name} (p UInt8, k UInt64) ENGINE = MergeTree PARTITION BY p ORDER BY k")
        db.sql("INSERT INTO a VALUES (1, 1), (2, 3)")
        db.sql("INSERT INTO a VALUES (1, 2)")
        db.sql("INSERT INTO b VALUES (1, 100)")
        command = [sys.executable, "-m", "tests.helpers.killed_moves", url, json.dumps(s3_options), kind, str(step)]
        processes.append((step, db, subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)))
        if len(processes) == 2 or step == STEPS[kind][-1]:
            for each in processes:
                judge(kind, *each, s3_options)
            processes = []


def judge(kind: str, step: int, db: ml.Database, process: subprocess.Popen[str], options: dict[str, str]) -> None:
    said, _ = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if step < 2 * WRITES else 0)
    decided = step >= 2 * WRITES - 1
    assert ("done" in said) is (step == 2 * WRITES)
    expected = AFTER[kind] if decided else BEFORE
    assert rows(db) == expected, f"{kind} that was killed at step {step}"
    assert rows(ml.connect(db.warehouse.url, options)) == expected
    for name in "ab":  # writers go on, and what was given up stays so
        db.sql(f"INSERT INTO {name} VALUES (9, 9)")
    expected = [[*held, (9, 9)] for held in expected]
    assert rows(db) == expected
    assert rows(ml.connect(db.warehouse.url, options)) == expected
    for name in "ab":
        assert all(db.table(name).check()["is_passed"].to_pylist())
