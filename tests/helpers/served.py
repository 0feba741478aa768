"""A table that a stock ClickHouse has attached and reads all the time, while it is published again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

import mergelake as ml

WAIT_S = 60.0
COLUMNS = "p UInt8, i UInt32, k UInt32, v Int64, s String"
DIGEST = "count() AS rows, sum(cityHash64(k, v, s)) AS digest"

Seen = dict[tuple[int, int], tuple[int, int]]
"""Partition and insert (0: all of the partition) -> number of rows, and a digest of them."""


def refresh(oracle: Any, table: str) -> None:
    """Make ClickHouse list the names of a `database.table` and take them in, now and not within a second."""
    database, _, name = table.partition(".")
    policy = f"SELECT storage_policy FROM system.tables WHERE database = '{database}' AND name = '{name}'"
    disk = f"SELECT disks[1] FROM system.storage_policies WHERE policy_name = ({policy})"
    oracle.query(f"SYSTEM RESTART DISK {str(oracle.query(disk, 'TSV')).strip()}")


class Served:
    """A table of ours, and a ClickHouse that has attached it and reads it all the time."""

    def __init__(self, oracle: Any, url: str, name: str, *, settings: str = "", options: Any = None) -> None:
        self.db = ml.connect(url, options)
        wide = f"SETTINGS index_granularity = 512, min_bytes_for_wide_part = 0{settings}"
        self.db.sql(f"CREATE TABLE {name} ({COLUMNS}) ENGINE = MergeTree PARTITION BY p ORDER BY k {wide}")
        self.table = self.db.table(name)
        self.oracle, self.name = oracle, name
        self.inserts = 0
        self.history: list[Seen] = []
        self.reads: list[Seen] = []

    def block(self, rows: int, random: np.random.Generator, partition: int) -> pa.Table:
        """Rows of a part, with a number of their own."""
        self.inserts += 1
        text = [f"{number:x}" for number in random.integers(0, 1 << 62, rows)]
        numbers = {"i": np.full(rows, self.inserts, np.uint32), "k": np.arange(rows, dtype=np.uint32)}
        columns = {"p": np.full(rows, partition, np.uint8), **numbers, "v": random.integers(0, 1000, rows)}
        return pa.table({**columns, "s": text})

    def insert(self, rows: int, random: np.random.Generator, partition: int) -> None:
        """A part."""
        self.table.append(self.block(rows, random, partition))

    def attach(self) -> None:
        self.oracle.query(f"DROP TABLE IF EXISTS default.{self.name}")
        self.oracle.query(self.table.attach_statement(f"default.{self.name}", show_secrets=True))

    def refresh(self) -> None:
        """See `refresh`."""
        refresh(self.oracle, f"default.{self.name}")

    def drop(self) -> None:
        self.oracle.query(f"DROP TABLE default.{self.name}")

    def ours(self) -> Seen:
        """What we read."""
        return _seen(self.db.sql(f"{self.query(self.name)} FORMAT TSV").text())

    def theirs(self) -> Seen:
        """What ClickHouse reads."""
        return _seen(str(self.oracle.query(self.query(f"default.{self.name}"), "TSV")))

    def query(self, source: str) -> str:
        return f"SELECT p, i, {DIGEST} FROM {source} GROUP BY p, i WITH ROLLUP HAVING p != 0"

    def learn(self) -> Seen:
        """The newest version, which ClickHouse may show from now on."""
        self.history.append(self.ours())
        return self.history[-1]

    def wait(self, wanted: Seen) -> None:
        """Until ClickHouse shows these rows."""
        deadline = time.monotonic() + WAIT_S
        while (found := self.theirs()) != wanted:
            assert time.monotonic() < deadline, f"not refreshed: {found} instead of {wanted}"
            time.sleep(0.05)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read in another thread; afterwards every group of every read is one of some version."""
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                self.reads.append(self.theirs())
                time.sleep(0.002)

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def check(self, wanted: Callable[[tuple[int, int]], bool]) -> None:
        """The groups that are `wanted` were those of some version, in each read."""
        assert self.reads
        for seen in self.reads:
            for group in {group for state in (seen, *self.history) for group in state if wanted(group)}:
                assert seen.get(group) in [state.get(group) for state in self.history], group


def _seen(text: str) -> Seen:
    lines = [tuple(map(int, line.split())) for line in text.splitlines()]
    return {(p, i): (rows, digest) for p, i, rows, digest in lines}
