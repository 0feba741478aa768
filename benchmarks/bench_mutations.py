"""UPDATE and DELETE of about 1 % of a log table, against ClickHouse's lightweight ones and its mutations.

    python benchmarks/bench_mutations.py [rows of a part] [parts]

Both sides have the same rows in one merged part, LZ4. Measured: the time until the statement returns, a read that
touches the updated column before and while the change is pending, the time until it is written down, and the bytes
that all of it wrote. ClickHouse runs in a process of its own; the faster of two runs counts on both sides.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.bench_merge import COLUMNS
from benchmarks.common import Ratio, best_of, in_process, show

READ = "SELECT level, count(), sum(status), avg(latency) FROM {} GROUP BY level ORDER BY level"
_FIGURES = ("returns", "slower", "applied", "written")


def load(root: str, rows: int, parts: int) -> None:
    """A table of one merged part in `root`."""
    import mergelake as ml
    from mergelake.testing.logtable import log_block

    table = _create(ml.connect(root), rows)
    for number in range(parts):
        table.append(log_block(number, rows))
    table.optimize(final=True)


def _create(db: Any, rows: int) -> Any:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    settings = f"min_bytes_for_full_part_storage = 0, max_insert_block_size = {rows}, default_compression_codec = 'LZ4'"
    db.sql(f"CREATE TABLE logs ({columns}) ENGINE = MergeTree ORDER BY (service, timestamp) SETTINGS {settings}")
    return db.table("logs")


def victims(root: str) -> list[str]:
    """Hosts of about 1 % of the rows each."""
    import mergelake as ml

    rows = ml.connect(root).sql(
        "SELECT host FROM logs GROUP BY host ORDER BY abs(count() * 100 - sum(count()) OVER ()), host LIMIT 2"
    )
    return [str(host) for (host,) in rows.rows()]


def here(root: str, hosts: list[str]) -> dict[str, dict[str, float]]:
    """Ours: both statements, each written down before the next."""
    import mergelake as ml

    db = ml.connect(root)
    table = db.table("logs")
    store = table.handle.store

    def steps(statement: Callable[[], Any]) -> dict[str, float]:
        def read() -> None:
            db.sql(READ.format("logs")).rows()

        read()
        before = best_of(5, read)
        written = store.counters.bytes_put
        returns = best_of(1, statement)
        read()
        pending = best_of(5, read)
        applied = best_of(1, table.apply_mutations)
        return {
            "returns": returns,
            "slower": pending / before,
            "applied": returns + applied,
            "written": (store.counters.bytes_put - written) / 1e6,
        }

    return {
        "update": steps(lambda: table.update({"status": "999"}, where=f"host = '{hosts[0]}'")),
        "delete": steps(lambda: table.delete(where=f"host = '{hosts[1]}'")),
    }


def clickhouse(root: str, work: str, hosts: list[str]) -> dict[str, dict[str, float]]:
    """ClickHouse's lightweight statements, and its mutations on a second table."""
    import chdb.session

    import mergelake as ml

    session = chdb.session.Session(work)
    rows = ml.connect(root).table("logs").scan(ordered=True)
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    blocks = "enable_block_number_column = 1, enable_block_offset_column = 1"
    codec = "default_compression_codec = 'LZ4', min_bytes_for_wide_part = 0"
    for name, settings in (("light", f"{codec}, {blocks}"), ("heavy", codec)):
        create = f"CREATE TABLE default.{name} ({columns}) ENGINE = MergeTree ORDER BY (service, timestamp)"
        session.query(f"{create} SETTINGS {settings}")
    data = rows.arrow()
    session.query("INSERT INTO default.light SELECT * FROM Python(data)")
    session.query("INSERT INTO default.heavy SELECT * FROM default.light")
    for name in ("light", "heavy"):
        session.query(f"OPTIMIZE TABLE default.{name} FINAL")
    del data

    def steps(name: str, statement: str, then: str) -> dict[str, float]:
        def read() -> None:
            session.query(READ.format(f"default.{name}"))

        read()
        before = best_of(5, read)
        seen = _files(work)
        returns = best_of(1, lambda: session.query(statement))
        read()
        pending = best_of(5, read)
        applied = best_of(1, lambda: session.query(then)) if then else 0.0
        return {
            "returns": returns,
            "slower": pending / before,
            "applied": returns + applied,
            "written": _new_bytes(work, seen) / 1e6,
        }

    light = " SETTINGS allow_experimental_lightweight_update = 1"
    update, delete = f"status = 999 WHERE host = '{hosts[0]}'", f"WHERE host = '{hosts[1]}'"
    sync = " SETTINGS mutations_sync = 1"
    return {
        "update": steps(
            "light", f"UPDATE default.light SET {update}{light}", f"ALTER TABLE default.light APPLY PATCHES{sync}"
        ),
        "delete": steps(
            "light", f"DELETE FROM default.light {delete}", f"ALTER TABLE default.light APPLY DELETED MASK{sync}"
        ),
        "update mutation": steps("heavy", f"ALTER TABLE default.heavy UPDATE {update}{sync}", ""),
        "delete mutation": steps("heavy", f"ALTER TABLE default.heavy DELETE {delete}{sync}", ""),
    }


def _files(folder: str) -> dict[int, int]:
    return {
        status.st_ino: status.st_size
        for path in Path(folder).rglob("*")
        if path.is_file()
        for status in [os.stat(path)]
    }


def _new_bytes(folder: str, seen: dict[int, int]) -> int:
    """Bytes of files that are new: ClickHouse links files that it does not write anew."""
    return sum(size for inode, size in _files(folder).items() if inode not in seen)


def main() -> None:
    """Run everything and print the table."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    parts = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    with tempfile.TemporaryDirectory(prefix="mergelake-bench-") as folder:
        load(f"{folder}/lake", rows, parts)
        hosts = json.dumps(victims(f"{folder}/lake"))
        runs: dict[str, list[Any]] = {"here": [], "clickhouse": []}
        for number in range(2):
            shutil.copytree(f"{folder}/lake", f"{folder}/copy{number}")
            runs["here"].append(in_process("benchmarks.bench_mutations", "here", f"{folder}/copy{number}", hosts))
            shutil.rmtree(f"{folder}/copy{number}")
            runs["clickhouse"].append(
                in_process(
                    "benchmarks.bench_mutations", "clickhouse", f"{folder}/lake", f"{folder}/clickhouse{number}", hosts
                )
            )
            shutil.rmtree(f"{folder}/clickhouse{number}", ignore_errors=True)

        def best(who: str, what: str, figure: str) -> float:
            return min(float(run[what][figure]) for run in runs[who])

        lines = []
        for what in ("update", "delete"):
            lines.append(
                Ratio(f"{what} returns", best("here", what, "returns"), best("clickhouse", what, "returns"), "s", 0.5)
            )
            lines.append(Ratio(f"{what}: read while pending", best("here", what, "slower"), 1.0, "x", 1.3))
            mutation = best("clickhouse", f"{what} mutation", "applied")
            lines.append(Ratio(f"{what} written down", best("here", what, "applied"), mutation, "s", 1.0))
            theirs = min(best("clickhouse", each, "written") for each in (what, f"{what} mutation"))
            lines.append(Ratio(f"{what}: bytes in all", best("here", what, "written"), theirs, "MB", 1.0))
            print(what, {figure: [best(who, what, figure) for who in runs] for figure in _FIGURES})
        show(f"1 % of {rows * parts:,} rows", "ClickHouse", lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["here"]:
        print(json.dumps(here(sys.argv[2], json.loads(sys.argv[3]))))
    elif sys.argv[1:2] == ["clickhouse"]:
        print(json.dumps(clickhouse(sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))))
    else:
        main()
