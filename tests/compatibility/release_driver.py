"""A process of one release: it takes commands as lines of JSON and answers each with a line, until its input ends.

It is run by the python of any release, so it uses nothing but what is public in all of them. The answer is
`{"is": …}`, or `{"error": name, "text": …}`; with `"fresh": true` in a command nothing is known from the ones before.
Output of others (a JVM's, say) goes to stderr.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from typing import Any

import pyarrow as pa

import mergelake as ml

SLOT = 1_000_000
"""Rows of a writer begin at its number times this."""
ROWS = 12
"""Rows of a batch."""
VERSIONED = 10
"""Keys of the table of versions, which each batch writes anew."""
TRIES = 200
"""How often what another commit was faster than is done again."""
_open: dict[str, ml.Database] = {}


def batch(slot: int, number: int) -> list[tuple[int, int, int, str]]:
    """The rows of a batch: p, k, v, s."""
    first = slot * SLOT + number * ROWS
    return [(k % 3, k, k, f"row {k}") for k in range(first, first + ROWS)]


def versions(slot: int, number: int) -> list[tuple[int, int]]:
    """The rows that a batch adds to the table of versions: k, v."""
    return [(k, number * 100 + slot) for k in range(VERSIONED)]


def database(url: str, options: dict[str, str] | None = None, log: str | None = None, **_: Any) -> ml.Database:
    """A warehouse, opened once."""
    if url not in _open:
        _open[url] = ml.connect(url, options or {}, log=log)
    return _open[url]


def again(action: Any, *arguments: Any, **named: Any) -> Any:
    """The result of an action that is done anew while other commits are faster: nothing has come of it then."""
    for left in reversed(range(TRIES)):
        try:
            return action(*arguments, **named)
        except ml.ConflictError:
            if not left:
                raise
    raise AssertionError


def rows_of(result: ml.Result) -> list[list[Any]]:
    return [list(row) for row in result.rows()]


def about(sql: str, settings: dict[str, str] | None = None, **place: Any) -> list[list[Any]]:
    """The rows of a statement."""
    db = database(**place)
    return rows_of(again(db.sql, sql, settings=settings or {}))


def write(slot: int, first: int, count: int, **place: Any) -> dict[str, Any]:
    """Insert batches in four ways, two with a token, which are sent twice; says what was acknowledged."""
    db = database(**place)
    table = db.table("t")
    done: list[int] = []
    repeated: list[bool] = []
    for number in range(first, first + count):
        p, k, v, s = zip(*batch(slot, number), strict=True)
        arrow = pa.table(
            {"p": pa.array(p, pa.uint8()), "k": pa.array(k, pa.uint64()), "v": pa.array(v, pa.uint64()), "s": s}
        )
        values = ", ".join(f"({p}, {k}, {v}, '{s}')" for p, k, v, s in batch(slot, number))
        token, way = f"{slot}-{number}", number % 4
        if way == 0:
            again(db.sql, f"INSERT INTO t (p, k, v, s) VALUES {values}")
        elif way == 1:
            again(table.append, arrow)
        elif way == 2:
            again(table.append, arrow, token)
            repeated.append(again(table.append, arrow, token).duplicate)
        else:
            inserting = f"INSERT INTO t (p, k, v, s) SETTINGS insert_deduplication_token = '{token}' VALUES {values}"
            for _ in range(2):
                again(db.sql, inserting)
        values = ", ".join(map(str, versions(slot, number)))
        again(db.sql, f"INSERT INTO r (k, v) VALUES {values}")
        done.append(number)
    return {"done": done, "repeated": repeated}


def look(rounds: int, optimize: bool = True, collect: bool = True, **place: Any) -> list[list[int]]:
    """Read, merge and collect beside others: the count of rows and of different ones, for each read."""
    db = database(**place)
    seen = []
    for number in range(rounds):
        mode = ("off", "peers")[number % 2]
        seen += rows_of(db.sql("SELECT count(), uniqExact(k) FROM t", settings={"read_volatile": mode}))
        if optimize:
            again(db.sql, f"OPTIMIZE TABLE {'tr'[number % 2]}")
        if collect and number % 3 == 2:
            db.warehouse.gc()
    return seen


def refresh(table: str, **place: Any) -> int:
    """The newest version of a table."""
    return database(**place).table(table).refresh()


def apply_mutations(table: str, **place: Any) -> list[list[Any]]:
    """Write pending mutations down; what the table says about all of them then."""
    opened = database(**place).table(table)
    again(opened.apply_mutations)
    return [list(row.values()) for row in opened.mutations().select(["command", "is_done"]).to_pylist()]


def collect(**place: Any) -> dict[str, int]:
    """A round of collection: objects noted and deleted."""
    reports = [report for _, report in database(**place).warehouse.gc()]
    return {
        name: sum(gone.objects for each in reports for gone in getattr(each, name)) for name in ("noted", "deleted")
    }


def fsck(repair: bool = False, **place: Any) -> dict[str, list[str]]:
    """What is wrong with each table, without what does no harm (an object of an insert that lost a race, say)."""
    found = database(**place).warehouse.fsck(repair=repair)
    return {name: [str(each) for each in report.findings if not each.harmless] for name, report in found}


def publish(table: str, **place: Any) -> int:
    """Publish a table."""
    return database(**place).table(table).publish().version


def node_round(seconds: float = 0, local: str | None = None, **place: Any) -> str:
    """What a node of this process says that begins and is told to end at once, after its first look."""
    warehouse = database(**place).warehouse
    node = warehouse.node("once", poll_s=0.05, local=local)
    stop = threading.Event()
    threading.Timer(seconds, stop.set).start()
    node.run(stop, 5.0)
    return ""


def spark(
    sql: str = "", write: list[list[Any]] | None = None, table: str = "t", master: str = "local[1]", **place: Any
) -> list[Any]:
    """Write rows into a table by a job, or read it by another and ask `sql` about the view `t`."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.enabled", "false")
    builder = builder.config("spark.executor.memory", "700m").config("spark.driver.memory", "700m")
    session = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    path = f"{place['url']}/default.{table}"
    options = {f"store.{name}": value for name, value in (place.get("options") or {}).items()}
    (worker,) = session.sparkContext.parallelize([0], 1).map(lambda _: __import__("mergelake").__file__).collect()
    assert worker == ml.__file__, worker
    if write is not None:
        frame = session.createDataFrame([tuple(row) for row in write], "p SMALLINT, k BIGINT, v BIGINT, s STRING")
        frame.write.format("mergelake").options(**options).mode("append").save(path)
        return [len(write)]
    session.read.format("mergelake").options(**options).load(path).createOrReplaceTempView("t")
    return [list(row) for row in session.sql(sql).collect()]


def who() -> dict[str, str]:
    """Where this release lies."""
    from importlib.metadata import entry_points

    (command,) = entry_points(group="console_scripts", name="mergelake")
    return {"mergelake": str(ml.__file__), "python": sys.executable, "command": command.value}


COMMANDS = {
    f.__name__: f
    for f in (about, write, look, refresh, apply_mutations, collect, fsck, publish, node_round, spark, who)
}


def answer(line: str) -> dict[str, Any]:
    command = json.loads(line)
    if command.pop("fresh", False):
        for db in _open.values():
            db.close()
        _open.clear()
    try:
        return {"is": COMMANDS[command.pop("do")](**command)}
    except ml.MergelakeError as error:
        return {"error": error.name or type(error).__name__, "text": str(error)}
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error)}


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    out = io.TextIOWrapper(os.fdopen(os.dup(1), "wb"), line_buffering=True)
    os.dup2(2, 1)
    for line in sys.stdin:
        out.write(json.dumps(answer(line), default=str) + "\n")


if __name__ == "__main__":
    main()
