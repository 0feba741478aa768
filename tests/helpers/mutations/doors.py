"""Who else reads and writes the table of a sequence: another process, Spark, and a ClickHouse that has attached it.

Processes are started once, and asked over pipes; `open` turns to the table of the next sequence.
"""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from typing import Any, Protocol

import pyarrow as pa

from mergelake.api.spark.types import spark_arrow_type
from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.storage import to_storage
from mergelake.core.types.types import parse_type
from mergelake.store import open_store
from tests.helpers.mutations.sequences import Read
from tests.helpers.mutations.sides import Ours, Rows, code_of, in_small_pieces, query_of, select, texts_of
from tests.helpers.mutations.tables import DrawnTable

_REFRESH_S = 20.0


class Door(Protocol):
    """A reader of the table, perhaps a writer too."""

    name: str
    share: float
    """Of the statements after which it is asked."""
    old_versions: bool
    """Whether it reads them."""

    def open(self, table: DrawnTable, ours: Ours, rng: random.Random) -> None:
        """Turn to the table `t` of `ours`."""

    def takes(self, read: Read) -> Read:
        """What it can read of this."""

    def read(self, read: Read, version: int | None = None) -> Rows | int:
        """The rows, or the code of the error."""

    def run(self, statement: str) -> int | None:
        """Run a statement; returns the code of its error, 0 if there is none, None if it is not for this door."""


class _Process:
    """One long-lived process."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))
        self._rng = random.Random()

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        return self._pool.submit(function, *arguments).result()

    def close(self) -> None:
        """End it."""
        self._pool.shutdown()


class AnotherProcess(_Process):
    """mergelake in another process, which writes too; sometimes it forgets what it knows of the log."""

    name, share, old_versions = "another process", 1.0, True

    def takes(self, read: Read) -> Read:
        return read

    def open(self, table: DrawnTable, ours: Ours, rng: random.Random) -> None:
        self._rng = rng
        self.call(_open, table, ours.store.url)

    def read(self, read: Read, version: int | None = None) -> Rows | int:
        found: Rows | int = self.call(_read, read, version, self._rng.random())
        return found

    def run(self, statement: str) -> int | None:
        return int(self.call(_run, statement))


_ours: Ours
"""Of the other process."""


def _open(table: DrawnTable, url: str) -> None:
    global _ours
    _ours = Ours(table, open_store(url), exists=True)


def _read(read: Read, version: int | None, chance: float) -> Rows | int:
    if chance < 0.2:
        _ours.reopen()
    with in_small_pieces(random.Random(chance)):
        return _ours.read(read, version)


def _run(statement: str) -> int:
    return _ours.run(statement)


class StockClickHouse(_Process):
    """A ClickHouse that knows nothing of mergelake, and attaches the table when it is published, or has attached it."""

    name, share, old_versions = "ClickHouse", 0.5, False
    _attached = 0

    def open(self, table: DrawnTable, ours: Ours, rng: random.Random) -> None:
        self._ours, self._rng = ours, rng
        self.share = rng.choice((0.1, 0.3, 0.8))  # publishing applies what is pending
        self.call(_query, "DROP TABLE IF EXISTS t")
        self._fresh = True

    def takes(self, read: Read) -> Read:
        return replace(read, ordered=False, limit=None)

    def read(self, read: Read, version: int | None = None) -> Rows | int:
        """Publish, and read when the newest parts are attached."""
        if self._fresh or self._rng.random() < 0.6:
            self.call(_query, "DROP TABLE IF EXISTS t")
            self._ours.table.publish(grace_seconds=self._rng.choice((0.0, 300.0)))
            self._attach("t")
        else:
            self._ours.table.publish()
            self._attach("u")
            self._wait()
            self.call(_query, "DROP TABLE u")
        self._fresh = False
        found: Rows | int = self.call(_query, query_of(read))
        return found

    def run(self, statement: str) -> int | None:
        return None

    def _attach(self, name: str) -> None:
        """Under a path that no disk of the process has, so that it lists the directory anew."""
        StockClickHouse._attached += 1
        statement = self._ours.table.attach_statement(f"default.{name}")
        done = self.call(_query, statement.replace("path = '/", f"path = '/{'./' * self._attached}"))
        assert done == [], done

    def _wait(self) -> None:
        """Until `t` has refreshed, and has the parts of `u`."""
        parts = "SELECT name FROM system.parts WHERE database = 'default' AND table = '{}' AND active ORDER BY name"
        wanted, until = self.call(_query, parts.format("u")), time.monotonic() + _REFRESH_S
        while (found := self.call(_query, parts.format("t"))) != wanted:
            assert time.monotonic() < until, f"not refreshed: {found} instead of {wanted}"
            time.sleep(0.03)


def _query(query: str) -> Rows | int:
    from tests.helpers.oracle import oracle

    settings = {"allow_suspicious_low_cardinality_types": "1", "session_timezone": "'UTC'"}
    for name, value in settings.items():
        oracle().query(f"SET {name} = {value}")
    return select(oracle(), query)


class Spark:
    """Spark: the source, frames of scans, SELECT by tasks; rows are appended, parts merged and rewritten by tasks."""

    name, share, old_versions = "Spark", 0.5, True
    ours: Ours
    """Its tasks run statements, merge parts and rewrite them."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def open(self, table: DrawnTable, ours: Ours, rng: random.Random) -> None:
        self._table, self._rng = table, rng
        self.ours = Ours(table, ours.store, spark=self._session, exists=True)
        self._taken = {name for name, kind in self.ours.kinds.items() if _has_spark_type(kind)}

    def takes(self, read: Read) -> Read:
        if read.by == "sql":
            return read
        columns = tuple(name for name in read.columns if name in self._taken)
        return replace(read, columns=columns, by="scan" if columns else "sql", ordered=False)

    def read(self, read: Read, version: int | None = None) -> Rows | int:
        try:
            if read.by == "sql":
                return self.ours.read(read, version, settings=" SETTINGS executor = 'spark'")
            rows = self._frame(read, version).toArrow()
        except Exception as problem:  # Spark has many classes for them
            return code_of(problem)
        types = {name: parse_type(self.ours.kinds[name]) for name in read.columns}
        arrays = [to_storage(rows.column(name), kind, name) for name, kind in types.items()]
        return texts_of(pa.table(arrays, names=list(types)), self.ours.kinds)

    def _frame(self, read: Read, version: int | None) -> Any:
        table = self.ours.table
        if self._rng.random() < 0.5:
            return table.scan(
                list(read.columns), read.where or None, prewhere=read.prewhere or None, final=read.final,
                limit=read.limit, version=version,
            ).spark(tasks=self._rng.choice((None, 1, 3)))  # fmt: skip
        where = " AND ".join(f"({text})" for text in (read.prewhere, read.where) if text)
        options = {"columns": ",".join(read.columns), **({"where": where} if where else {})}
        if read.final:
            options["final"] = "true"
        if version is not None:
            options["version"] = str(version)
        frame = self._session.read.format("mergelake").options(**options).load(table.path)
        return frame if read.limit is None else frame.limit(read.limit)

    def run(self, statement: str) -> int | None:
        if statement.startswith("OPTIMIZE"):
            return self.ours.run(statement)
        insert = re.match(r"INSERT INTO t \((.*?)\) ", statement)
        names = insert[1].split(", ") if insert else []
        return self._append(statement, names) if names and self._taken.issuperset(names) else None

    def _append(self, statement: str, names: list[str]) -> int:
        """Insert into a table of the same definition, and append its rows by one task."""
        ours = self.ours
        ours.connections[0].sql(self._table.our_create.replace("TABLE t", "TABLE s", 1))
        code = ours.run(statement.replace("INTO t", "INTO s", 1))
        if not code:
            frame = ours.connections[0].table("s").scan(names).spark().coalesce(1)
            if self._rng.random() < 0.5:
                ours.table.append(frame)
            else:
                frame.write.format("mergelake").mode("append").save(ours.table.path)
        ours.connections[0].sql("DROP TABLE s")
        return code


@contextmanager
def all_doors(spark: Any) -> Iterator[list[Door]]:
    """One of each, by a Spark session."""
    process, clickhouse = AnotherProcess(), StockClickHouse()
    yield [process, Spark(spark), clickhouse]
    process.close()
    clickhouse.close()


def local_spark() -> Any:
    """A Spark session for a run without pytest."""
    from mergelake.api.spark.session import session

    folder = tempfile.mkdtemp()
    return session("local[2]", config={"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": folder})


def _has_spark_type(kind: str) -> bool:
    try:
        spark_arrow_type(parse_type(kind))
    except MergelakeError:
        return False
    return True
