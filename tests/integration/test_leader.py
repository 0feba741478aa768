"""Real processes that pass their commits on to a leader which is stopped and killed: nothing is lost, nothing
doubled."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest

from tests.helpers.torture import EXPLAINED, SLOT, Place, acknowledged, leader

CREATE = "CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k SETTINGS volatile_lease_seconds = 5"
WRITERS, BEGIN_S, SECONDS = 3, 60, 20


def writer(place: Place, folder: str, slot: int) -> None:
    """One row at a time, without a token: a commit that were appended twice would be two rows."""
    path, number = Path(folder) / f"writer-{slot}", 0
    table = place.open().table("t")
    while True:
        number += 1
        with suppress(*EXPLAINED):
            table.append(pa.table({"k": pa.array([slot * SLOT + number], pa.uint64())}))
            with path.open("ab") as file:
                file.write(b"%d\n" % number)


def passed_on(table) -> int:
    """Commits that one process appended for another."""
    table.refresh()
    return sum(m.author != entry.author for entry in table.handle.log.entries() for m in entry.members)


def until(holds, seconds=BEGIN_S):
    end_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.1)


@pytest.mark.slow
def test_a_leader_that_is_stopped_and_killed_loses_and_doubles_nothing(tmp_path):
    place = Place(str(tmp_path), {})
    db = place.open()
    db.sql(CREATE)
    table = db.table("t")
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.helpers.torture"])

    def begin(role, slot):
        process = context.Process(target=role, args=(place, folder, slot), daemon=True)
        process.start()
        return process

    with tempfile.TemporaryDirectory(prefix="mergelake-leader-") as folder:
        writers = [begin(writer, slot) for slot in range(WRITERS)]
        leading = begin(leader, 0)
        noted = [Path(folder) / f"writer-{slot}" for slot in range(WRITERS)]
        try:
            for _ in range(2):
                known = passed_on(table)
                until(lambda known=known: passed_on(table) > known + 20)
                os.kill(leading.pid, signal.SIGSTOP)
                counts = list(map(acknowledged, noted))
                until(lambda counts=counts: all(acknowledged(path) > n for path, n in zip(noted, counts, strict=True)))
                os.kill(leading.pid, signal.SIGCONT)
                known = passed_on(table)
                until(lambda known=known: passed_on(table) > known)
                leading.kill()
                leading.join()
                counts = list(map(acknowledged, noted))
                until(lambda counts=counts: all(acknowledged(path) > n for path, n in zip(noted, counts, strict=True)))
                leading = begin(leader, 0)
        finally:
            for process in [*writers, leading]:
                process.kill()
                process.join()
        told = {
            slot * SLOT + int(line) for slot, path in enumerate(noted) for line in path.read_bytes().split(b"\n")[:-1]
        }
    table.refresh()
    rows = Counter(table.scan().arrow()["k"].to_pylist())
    assert max(rows.values()) == 1
    assert told <= rows.keys()
    assert len(rows) - len(told) <= WRITERS + 10  # whose outcome was not known, or was not noted
    assert all(report.clean for _, report in db.warehouse.fsck("t"))
