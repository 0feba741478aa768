"""Warehouses with all that a release stores, to be read and continued by later releases.

    python write_warehouses.py OUT_DIR [NAME...]

Everything is written by public means: SQL, methods of `Table` and `Warehouse`, the command line. Nothing of mergelake
is imported by another name than `mergelake` and `mergelake.store`. For each warehouse (`WAREHOUSES`) OUT_DIR gets

    NAME/warehouse/    the warehouse
    NAME/disk/         the disks of its nodes, if it has nodes
    NAME/tasks/        documents of `mergelake plan` and `mergelake work`
    NAME/znodes.json   the nodes of ZooKeeper with its logs: path -> base64 of the value, and
                       how often it was changed
    NAME.tar.gz        all of these
    expected.json      what this release answers to the questions of `questions`, by warehouse

Where a process has to die at a certain request, a store that kills it stands before the real one (`Before`), in a
process of its own. The command line runs in processes of their own, too.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mergelake as ml
from mergelake.store import open_store

AUTHOR = "writer"
HISTORY_KEPT = "history_retention_seconds = 4000000000, gc_grace_seconds = 86400"
"""Settings of tables of which a collector takes nothing, whenever it runs."""


def open_warehouse(folder: Path, store: object = None, log: str | None = None) -> ml.Database:
    """The warehouse of a folder, through another store if one is given."""
    return ml.Database(ml.Warehouse(store or str(folder / "warehouse"), author=AUTHOR, log=log))


def run(db: ml.Database, *statements: str) -> None:
    """Statements, one after another."""
    for statement in statements:
        db.sql(statement)


def cli(*arguments: str) -> subprocess.Popen[bytes]:
    """A process of the command line."""
    return subprocess.Popen([sys.executable, "-m", "mergelake.cli", *arguments], env=dict(os.environ))


def cli_done(*arguments: str) -> None:
    """A command that succeeds."""
    if cli(*arguments).wait(120):
        raise RuntimeError(f"mergelake {' '.join(arguments)} failed")


def wait_for(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Return when the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.05)


class Before:
    """A store that calls a function before each request that writes; everything else is that of the real store."""

    def __init__(self, store: Any, look: Callable[[str, str], None]) -> None:
        """`look` is called with the kind of the request, `create` or `put`, and with the key."""
        self._store, self._look = store, look

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, key: str, data: bytes) -> Any:
        """See `mergelake.store.Store`."""
        self._look("create", key)
        return self._store.create(key, data)

    def put(self, key: str, data: bytes) -> None:
        """See `mergelake.store.Store`."""
        self._look("put", key)
        self._store.put(key, data)


def dies_at(folder: Path, action: str) -> None:
    """Run an action of `ACTIONS` in a process of its own, which has to die by a signal."""
    code = subprocess.run([sys.executable, __file__, "--action", action, str(folder)], check=False).returncode
    if code != -signal.SIGKILL:
        raise RuntimeError(f"{action} ended with {code}")


def die() -> None:
    """End this process at once, as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


# ---------------------------------------------------------------------------------------------------------------------


def write_engines(folder: Path) -> None:
    """A table of each engine, with rows of equal keys in several parts; columns of many types."""
    db = open_warehouse(folder)
    run(
        db,
        f"""CREATE TABLE plain (k UInt64, v String, n Int64, arr Array(UInt32), d Nullable(Decimal(9, 2)),
            l LowCardinality(String), m Map(String, UInt32), t Tuple(a UInt8, b String), ts DateTime64(3, 'UTC'),
            day Date, id UUID, e Enum8('red' = 1, 'green' = 2), f Float64, ip IPv4, fixed FixedString(4),
            nested Nested(a UInt8, b String))
            ENGINE = MergeTree PARTITION BY k % 3 ORDER BY (k, l) SETTINGS {HISTORY_KEPT}, index_granularity = 16""",
        """CREATE TABLE changing (k UInt64, v Variant(String, UInt64), y Dynamic, j JSON)
            ENGINE = MergeTree ORDER BY k""",
        """CREATE TABLE replacing (k UInt64, v String, version UInt32, is_deleted UInt8)
            ENGINE = ReplacingMergeTree(version, is_deleted) ORDER BY k""",
        "CREATE TABLE collapsing (k UInt64, v String, sign Int8) ENGINE = CollapsingMergeTree(sign) ORDER BY k",
        """CREATE TABLE versioned (k UInt64, v String, sign Int8, version UInt32)
            ENGINE = VersionedCollapsingMergeTree(sign, version) ORDER BY k""",
        """CREATE TABLE summing (k UInt64, v String, n Int64, x Decimal(18, 3), xMap Nested(id UInt32, n UInt64))
            ENGINE = SummingMergeTree ORDER BY k""",
        """CREATE TABLE aggregating (k UInt64, v SimpleAggregateFunction(anyLast, String),
            n SimpleAggregateFunction(sum, UInt64), users AggregateFunction(uniq, UInt64),
            mean AggregateFunction(avg, Float64), middle AggregateFunction(quantiles(0.5, 0.9), Float64))
            ENGINE = AggregatingMergeTree ORDER BY k""",
        """CREATE TABLE coalescing (k UInt64, v Nullable(String), n Nullable(Int64))
            ENGINE = CoalescingMergeTree ORDER BY k""",
        "CREATE TABLE nothing (k UInt64, v String) ENGINE = MergeTree ORDER BY tuple()",
    )
    for first in (0, 20, 40):
        run(
            db,
            f"""INSERT INTO plain SELECT number, concat('v', toString(number)), -number * 3, range(number % 4),
                if(number % 5 = 0, NULL, number / 4), ['a', 'b', 'c'][number % 3 + 1], map('x', number, 'y', 1),
                (number, toString(number)), toDateTime64('2026-01-01 00:00:00.125', 3, 'UTC') + number,
                toDate('2026-01-01') + number, toUUID('00000000-0000-0000-0000-0000000000' ||
                leftPad(toString(number), 2, '0')), if(number % 2 = 0, 'red', 'green'), number / 8,
                toIPv4('10.0.0.' || toString(number)), leftPad(toString(number), 4, '0'), range(number % 3),
                arrayMap(x -> toString(x), range(number % 3)) FROM numbers({first}, 20)""",
        )
    run(
        db,
        "OPTIMIZE TABLE plain PARTITION 1 FINAL",
        """INSERT INTO changing VALUES (1, 'text', 7, '{"a": 1, "b": {"c": "x"}}'), (2, 8, 'word', '{"a": 2}')""",
        """INSERT INTO changing VALUES (3, NULL, NULL, '{}'), (4, 9, 1.5, '{"b": {"c": "y"}, "d": [1, 2]}')""",
        "INSERT INTO replacing VALUES (1, 'one', 1, 0), (2, 'two', 1, 0), (3, 'three', 1, 0), (4, 'four', 5, 0)",
        "INSERT INTO replacing VALUES (2, 'two again', 2, 0), (3, 'three', 2, 1), (4, 'four before', 4, 0)",
        "OPTIMIZE TABLE replacing FINAL",
        "INSERT INTO replacing VALUES (1, 'one again', 2, 0), (5, 'five', 1, 0)",
        "INSERT INTO collapsing VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 1)",
        "INSERT INTO collapsing VALUES (1, 'a', -1), (1, 'a2', 1), (3, 'c', -1)",
        "INSERT INTO versioned VALUES (1, 'a', 1, 1), (2, 'b', 1, 1), (4, 'd', -1, 7)",
        "INSERT INTO versioned VALUES (1, 'a', -1, 1), (1, 'a2', 1, 2), (3, 'c', 1, 1), (4, 'd', 1, 7)",
        "INSERT INTO summing VALUES (1, 'a', 10, 1.5, [1, 2], [10, 20]), (2, 'b', 5, 0.25, [], [])",
        "INSERT INTO summing VALUES (1, 'z', 7, 2.5, [2, 3], [5, 7]), (3, 'c', 1, 1, [9], [9])",
        """INSERT INTO aggregating SELECT number % 4 AS k, anyLast(concat('w', toString(number))), sum(number),
            uniqState(number), avgState(toFloat64(number)), quantilesState(0.5, 0.9)(toFloat64(number))
            FROM numbers(20) GROUP BY k""",
        """INSERT INTO aggregating SELECT number % 3 AS k, anyLast(concat('x', toString(number))), sum(number),
            uniqState(number), avgState(toFloat64(number)), quantilesState(0.5, 0.9)(toFloat64(number))
            FROM numbers(10, 20) GROUP BY k""",
        "INSERT INTO coalescing VALUES (1, 'ada', NULL), (2, NULL, 5), (3, 'cid', 6)",
        "INSERT INTO coalescing VALUES (1, NULL, 37), (2, 'bea', NULL)",
        "INSERT INTO nothing VALUES (2, 'b'), (1, 'a')",
        "INSERT INTO nothing VALUES (4, 'd'), (3, 'c')",
    )


def write_schemas(folder: Path) -> None:
    """Definitions that changed, over parts from before; TTL, projections, skip indexes; published tables."""
    db = open_warehouse(folder)
    run(
        db,
        f"""CREATE TABLE altered (k UInt64, a String, b Int32, gone UInt8, c UInt32 DEFAULT b + 1,
            mat UInt64 MATERIALIZED k * 2, al String ALIAS concat(a, '!')) ENGINE = MergeTree ORDER BY k
            COMMENT 'a table' SETTINGS {HISTORY_KEPT}""",
        "INSERT INTO altered (k, a, b, gone) VALUES (1, 'one', 10, 1), (2, 'two', 20, 2)",
        "ALTER TABLE altered RENAME COLUMN a TO v",
        "ALTER TABLE altered ADD COLUMN late String DEFAULT concat('late ', v) AFTER k",
        "INSERT INTO altered (k, v, b, gone) VALUES (3, 'three', 30, 3)",
        "ALTER TABLE altered DROP COLUMN gone",
        "ALTER TABLE altered MODIFY COLUMN b Int64 CODEC(ZSTD(3)) COMMENT 'wider'",
        "ALTER TABLE altered ADD COLUMN gone String",
        "ALTER TABLE altered ADD CONSTRAINT positive CHECK k < 1000000",
        "ALTER TABLE altered MODIFY COMMENT 'a table that was altered'",
        "ALTER TABLE altered MODIFY SETTING min_bytes_for_wide_part = 1000000",
        "INSERT INTO altered (k, v, b, gone) VALUES (4, 'four', 40, 'new')",
        "ALTER TABLE altered RESET SETTING min_bytes_for_wide_part",
        """CREATE TABLE expiring (k UInt64, v String, ts DateTime('UTC'),
            body String DEFAULT 'gone' TTL ts + INTERVAL 1 DAY) ENGINE = MergeTree ORDER BY k
            TTL ts + INTERVAL 30 DAY, ts + INTERVAL 1 HOUR DELETE WHERE v = 'short',
            ts + INTERVAL 2 DAY RECOMPRESS CODEC(ZSTD(9))""",
        """INSERT INTO expiring VALUES (1, 'old', '2000-01-01 00:00:00', 'a'), (2, 'kept', '2105-01-01 00:00:00', 'b'),
            (3, 'short', '2001-01-01 00:00:00', 'c')""",
        "INSERT INTO expiring VALUES (4, 'kept', '2105-01-01 00:00:00', 'd'), (5, 'short', '2105-01-01 00:00:00', 'e')",
        """CREATE TABLE grouped (k UInt32, ts DateTime('UTC'), n UInt64) ENGINE = MergeTree ORDER BY (k, ts)
            TTL ts + INTERVAL 1 DAY GROUP BY k SET n = sum(n)""",
        "INSERT INTO grouped VALUES (1, '2000-01-01 00:00:00', 1), (1, '2000-01-02 00:00:00', 2)",
        "INSERT INTO grouped VALUES (2, '2105-01-01 00:00:00', 4), (1, '2000-01-03 00:00:00', 8)",
        """CREATE TABLE indexed (k UInt64, v String, n Int64, words Array(String),
            INDEX of_n n TYPE minmax GRANULARITY 1, INDEX of_v v TYPE bloom_filter(0.01) GRANULARITY 1,
            INDEX of_set n TYPE set(100) GRANULARITY 2, INDEX tokens v TYPE tokenbf_v1(256, 2, 0) GRANULARITY 1,
            INDEX grams v TYPE ngrambf_v1(3, 256, 2, 0) GRANULARITY 1,
            PROJECTION by_n (SELECT * ORDER BY n), PROJECTION sums (SELECT v, sum(n), count() GROUP BY v))
            ENGINE = MergeTree ORDER BY k SETTINGS index_granularity = 8,
            lightweight_mutation_projection_mode = 'rebuild'""",
        """INSERT INTO indexed SELECT number, concat('word', toString(number % 5)), 100 - number,
            [toString(number)] FROM numbers(30)""",
        """INSERT INTO indexed SELECT number, concat('word', toString(number % 5)), 100 - number,
            [toString(number)] FROM numbers(30, 30)""",
        "ALTER TABLE indexed ADD INDEX later n TYPE minmax GRANULARITY 1",
        "ALTER TABLE indexed MATERIALIZE INDEX later SETTINGS mutations_sync = 1",
        "ALTER TABLE indexed DROP INDEX of_set",
        """CREATE TABLE layouts (k UInt64, v String, n Nullable(Int32)) ENGINE = MergeTree ORDER BY k DESC
            SETTINGS allow_experimental_reverse_key = 1""",
        "INSERT INTO layouts SELECT number, toString(number), number FROM numbers(10)",
        "ALTER TABLE layouts MODIFY SETTING min_bytes_for_full_part_storage = 0",
        "INSERT INTO layouts SELECT number, toString(number), NULL FROM numbers(10, 10)",
        "ALTER TABLE layouts MODIFY SETTING min_bytes_for_wide_part = 1000000",
        "INSERT INTO layouts SELECT number, toString(number), number FROM numbers(20, 10)",
        "ALTER TABLE layouts MODIFY SETTING min_bytes_for_wide_part = 0, part_profile = 'modern'",
        "INSERT INTO layouts SELECT number, toString(number), number FROM numbers(30, 10)",
        """CREATE TABLE shared (day Date, k UInt64, v String) ENGINE = MergeTree PARTITION BY day ORDER BY k""",
        "INSERT INTO shared SELECT toDate('2026-01-01') + number % 12, number, toString(number) FROM numbers(48)",
        "INSERT INTO shared SELECT toDate('2026-01-01') + number % 7, number, toString(number) FROM numbers(100, 14)",
        "OPTIMIZE TABLE shared PARTITION '2026-01-03' FINAL",
        "CREATE TABLE shown (k UInt64, v String, n UInt32) ENGINE = MergeTree PARTITION BY k % 2 ORDER BY k",
        "INSERT INTO shown SELECT number, toString(number), number FROM numbers(10)",
    )
    shown = db.table("shown")
    shown.attach_statement()
    shown.publish()
    run(
        db,
        "INSERT INTO shown SELECT number, toString(number), number FROM numbers(10, 10)",
        "OPTIMIZE TABLE shown PARTITION 0 FINAL",
        "ALTER TABLE shown DROP PARTITION 1",
        "ALTER TABLE shown ADD COLUMN more UInt8 DEFAULT 7",
    )
    shown = db.table("shown")
    shown.publish()
    run(db, "INSERT INTO shown (k, v, n) SELECT number, toString(number), number FROM numbers(20, 4)")


def write_changes(folder: Path) -> None:
    """Mutations in all states, upserts, tokens, tags, frozen and detached parts, a rollback, documents of tasks."""
    db = open_warehouse(folder)
    rows = "SELECT number, concat('v', toString(number)), number * 10, number % 2 FROM numbers"
    columns = "(k UInt64, v String, n Int64, p UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY k"
    names = ("pending", "written", "failing", "upserted", "kept", "planned", "repeated", "guarded")
    for name in names:
        run(
            db,
            f"CREATE TABLE {name} {columns} SETTINGS {HISTORY_KEPT}",
            f"INSERT INTO {name} {rows}(20)",
            f"INSERT INTO {name} {rows}(20, 10)",
        )
    run(
        db,
        "ALTER TABLE pending UPDATE v = concat(v, '!'), n = n + 1 WHERE k % 4 = 0",
        "DELETE FROM pending WHERE k = 7",
        f"INSERT INTO pending {rows}(30, 4)",
        "ALTER TABLE pending DELETE WHERE n = 80",
        "UPDATE pending SET n = n * 2 WHERE v LIKE '%!'",
        "ALTER TABLE pending UPDATE v = 'of partition 1' IN PARTITION 1 WHERE k > 25",
        "ALTER TABLE written UPDATE n = -n WHERE k < 5 SETTINGS mutations_sync = 1",
        "ALTER TABLE written UPDATE n = 0 WHERE k = 1000 SETTINGS mutations_sync = 1",  # no row: parts are marked
        "DELETE FROM written WHERE k = 3 SETTINGS lightweight_deletes_sync = 1",
        "ALTER TABLE written UPDATE v = 'x' WHERE k = 4",
        "OPTIMIZE TABLE written PARTITION 0 FINAL",
        "ALTER TABLE failing UPDATE n = toInt64(v) WHERE k = 20",
    )
    failing = db.table("failing")
    try:
        failing.apply_mutations()
    except ml.MergelakeError:
        pass
    else:
        raise RuntimeError("a text became a number")
    (failed,) = failing.mutations()["mutation_id"].to_pylist()
    failing.kill_mutation(failed)
    run(db, "ALTER TABLE failing UPDATE n = 5 WHERE k = 5", "ALTER TABLE failing UPDATE n = toInt64(v) WHERE k = 21")
    with suppress(ml.MergelakeError):
        failing.apply_mutations()
    upserted = db.table("upserted")
    upserted.merge([{"k": 1, "v": "merged", "n": 1, "p": 1}, {"k": 100, "v": "new", "n": 2, "p": 0}], on="k")
    upserted.merge(
        [{"k": 2, "v": "", "n": 5, "p": 0}, {"k": 101, "v": "newer", "n": 3, "p": 1}],
        on="k",
        when_matched={"n": "target.n + source.n"},
        matched_if="target.n < 1000",
        dedup_token="changes-1",
    )
    upserted.overwrite({"k": [5, 7], "v": ["over", "over"], "n": [1, 2], "p": [1, 1]}, "p = 1 AND k < 9")
    kept = db.table("kept")
    kept.tag("first")
    run(
        db,
        "ALTER TABLE kept UPDATE v = 'before the tag' WHERE k = 2",
        "ALTER TABLE kept FREEZE WITH NAME 'frozen'",
        "ALTER TABLE kept FREEZE PARTITION 1 WITH NAME 'frozen_one'",
        "ALTER TABLE kept FREEZE PARTITION 0 WITH NAME 'thawed'",
        "ALTER TABLE kept UNFREEZE WITH NAME 'thawed'",
        "ALTER TABLE kept UPDATE v = 'after the tag' WHERE k = 2",
        "ALTER TABLE kept DETACH PARTITION 1",
        "ALTER TABLE kept DROP PARTITION 0",
    )
    emptied = kept.refresh()
    kept.rollback("first")
    kept.tag("emptied", emptied)
    parts = sorted(kept.parts()["name"].to_pylist())
    run(
        db,
        f"ALTER TABLE kept DETACH PART '{parts[0]}'",
        f"ALTER TABLE kept DROP PART '{parts[1]}'",
        f"INSERT INTO kept {rows}(40, 4)",
    )
    one, *_ = sorted(row["name"] for row in kept.detached_parts().to_pylist())
    run(
        db,
        f"ALTER TABLE kept DROP DETACHED PART '{one}' SETTINGS allow_drop_detached = 1",
        f"INSERT INTO kept {rows}(50, 4)",
    )
    back = max(row["name"] for row in db.table("kept").detached_parts().to_pylist())
    run(db, f"ALTER TABLE kept ATTACH PART '{back}'")
    run(
        db,
        f"INSERT INTO repeated SETTINGS insert_deduplication_token = 'by part' {rows}(60, 2)",
        "ALTER TABLE repeated MODIFY SETTING non_replicated_deduplication_window = 10",
        "INSERT INTO repeated VALUES (62, 'v62', 620, 0), (63, 'v63', 630, 1)",
    )
    db.table("repeated").append({"k": [64], "v": ["v64"], "n": [640], "p": [0]}, dedup_token="batch-7")
    run(db, "ALTER TABLE guarded MODIFY SETTING immutable_partitions = 'p = 1'")
    run(db, "ALTER TABLE guarded UPDATE v = 'changed' WHERE k < 4")
    run(db, "ALTER TABLE planned UPDATE n = n + 1 WHERE k < 3")
    url = str(folder / "warehouse")
    cli_done("plan", url, "planned", "--out", str(folder / "tasks" / "mutations"), "--mutations")
    cli_done("plan", url, "planned", "--out", str(folder / "tasks" / "merges"), "--final")
    run(
        db,
        "CREATE TABLE sliced (k UInt64, v String) ENGINE = MergeTree ORDER BY k "
        "SETTINGS index_granularity = 4, min_bytes_to_split_merge = 1, merge_slice_bytes = 500",
        "INSERT INTO sliced SELECT number * 2, concat('even ', toString(number)) FROM numbers(40)",
        "INSERT INTO sliced SELECT number * 2 + 1, concat('odd ', toString(number)) FROM numbers(40)",
    )
    cli_done("plan", url, "sliced", "--out", str(folder / "tasks" / "slices"), "--final")
    for task in sorted((folder / "tasks" / "merges").iterdir()):
        done = subprocess.run(
            [sys.executable, "-m", "mergelake.cli", "work", str(task)], capture_output=True, check=True, timeout=120
        )
        (folder / "tasks" / f"{task.stem}.result").write_bytes(done.stdout)


def write_names(folder: Path) -> None:
    """The catalog: databases, renamed, exchanged, dropped and restored names, views, unions; clones and moves."""
    db = open_warehouse(folder)
    columns = f"(k UInt64, v String, p UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS {HISTORY_KEPT}"
    run(
        db,
        "CREATE DATABASE shop",
        "CREATE DATABASE old_name",
        "CREATE DATABASE gone",
        "CREATE DATABASE away",
        "RENAME DATABASE old_name TO new_name",
        f"CREATE TABLE gone.lost {columns}",
        "DROP DATABASE gone",
        f"CREATE TABLE away.here {columns}",
        "INSERT INTO away.here VALUES (1, 'here', 0)",
        "DROP DATABASE away",
        "UNDROP DATABASE away",
    )
    for name in (
        "shop.a",
        "shop.b",
        "shop.left_one",
        "shop.right_one",
        "dropped",
        "restored",
        "renamed_from",
        "target",
    ):
        run(
            db,
            f"CREATE TABLE {name} {columns}",
            f"INSERT INTO {name} SELECT number, '{name}', number % 2 FROM numbers(6)",
            f"INSERT INTO {name} SELECT number, '{name} again', number % 2 FROM numbers(6, 6)",
        )
    run(
        db,
        "RENAME TABLE renamed_from TO new_name.renamed_to",
        "EXCHANGE TABLES shop.a AND shop.b",
        "ALTER TABLE restored UPDATE v = 'changed' WHERE k = 1",
        "DROP TABLE restored",
        "UNDROP TABLE restored",
        "DROP TABLE dropped",
        "CREATE VIEW shop.seen AS SELECT k, v FROM shop.a WHERE k > 2",
        "CREATE VIEW asked AS SELECT k, v FROM shop.a WHERE k > {least:UInt64}",
        "CREATE VIEW unseen AS SELECT 1 AS one",
        "DROP VIEW unseen",
        "CREATE TABLE everything ENGINE = Merge('shop', '^(a|b)$')",
        "CREATE TABLE copied CLONE AS shop.left_one",
        "ALTER TABLE copied UPDATE v = 'of the clone' WHERE k = 2",
        "CREATE TABLE copied_twice CLONE AS copied",
        "DROP TABLE copied_twice",
        "CREATE OR REPLACE TABLE target ENGINE = MergeTree PARTITION BY p ORDER BY k "
        "AS SELECT * FROM shop.b WHERE k < 4",
        "UPDATE shop.left_one SET v = 'moved with its change' WHERE k = 3",
        "ALTER TABLE shop.left_one MOVE PARTITION 1 TO TABLE shop.right_one",
        "ALTER TABLE shop.right_one REPLACE PARTITION 0 FROM shop.a",
        "ALTER TABLE target ATTACH PARTITION 0 FROM shop.a",
        f"CREATE TABLE undecided_from {columns}",
        f"CREATE TABLE undecided_to {columns}",
        f"CREATE TABLE given_up_from {columns}",
        f"CREATE TABLE given_up_to {columns}",
        "INSERT INTO undecided_from SELECT number, 'stays', number % 2 FROM numbers(4)",
        "INSERT INTO given_up_from SELECT number, 'stays', number % 2 FROM numbers(4)",
    )
    rename_often(db, "copied")
    dies_at(folder, "move given_up")
    run(db, "INSERT INTO given_up_from VALUES (100, 'after it was given up', 0)")  # waits for PATIENCE_S
    dies_at(folder, "move undecided")


def move_and_die(folder: Path, name: str) -> None:
    """Prepare a transaction in both tables, and die before it is decided."""

    def look(kind: str, key: str) -> None:
        if key.startswith("_txn/"):
            die()

    db = open_warehouse(folder, Before(open_store(str(folder / "warehouse")), look))
    db.sql(f"ALTER TABLE {name}_from MOVE PARTITION 1 TO TABLE {name}_to")


def write_many_parts(folder: Path) -> None:
    """Some thousand parts: checkpoints with segments, of active and of retired parts."""
    db = open_warehouse(folder)
    columns = "(k UInt64, c UInt8) ENGINE = MergeTree PARTITION BY intDiv(k, 4) ORDER BY k"
    run(
        db,
        f"CREATE TABLE few {columns}",
        f"INSERT INTO few SELECT number, 1 FROM numbers({4 * PARTITIONS})",
        f"CREATE TABLE many {columns} SETTINGS checkpoint_interval = 50",
    )
    for _ in range(COPIES):
        run(db, "ALTER TABLE many ATTACH PARTITION ALL FROM few")
    run(db, "ALTER TABLE many DROP PARTITION 0")
    _settle()  # the checkpoint of version 50, with segments of active parts
    run(db, "ALTER TABLE many DETACH PARTITION 1", "OPTIMIZE TABLE many PARTITION 2 FINAL")
    dropped = [f"DROP PARTITION {number}" for number in range(4, PARTITIONS)]
    run(db, f"ALTER TABLE many {', '.join(dropped)}")
    many = db.table("many")
    while many.refresh() < 104:  # the checkpoint of version 100 has a segment of retired parts
        run(db, f"INSERT INTO many VALUES ({many.version % 8 + 8}, 2)")
        _settle()


PARTITIONS, COPIES = 48, 48


def write_writers(folder: Path) -> None:
    """Entries of several writers: threads that share them, processes that leave theirs in the intake."""
    run(
        open_warehouse(folder),
        "CREATE TABLE threads (k UInt64, v String) ENGINE = MergeTree ORDER BY k",
        "CREATE TABLE crowd (k UInt64, v String) ENGINE = MergeTree ORDER BY k",
        "CREATE TABLE left_over (k UInt64, v String) ENGINE = MergeTree ORDER BY k",
    )

    def slow(kind: str, key: str) -> None:
        if "/_log/" in key and kind == "create":
            time.sleep(0.05)

    store = str(folder / "warehouse")
    threads = open_warehouse(folder, Before(open_store(store), slow)).table("threads")
    at_once([lambda each=each: threads.append({"k": [each], "v": [f"thread {each}"]}) for each in range(12)])
    tables = [open_warehouse(folder, Before(open_store(store), slow)).table("crowd") for _ in range(4)]

    def commits(number: int) -> None:
        for each in range(6):
            tables[number].append(
                {"k": [10 * number + each], "v": [f"process {number}"]}, dedup_token=f"{number}-{each}"
            )

    at_once([lambda each=each: commits(each) for each in range(4)])
    dies_at(folder, "leave")
    rename_often(open_warehouse(folder), "threads")


def rename_often(db: ml.Database, name: str) -> None:
    """Rename a table and back, until the catalog has a checkpoint."""
    for _ in range(33):
        run(db, f"RENAME TABLE {name} TO {name}_once", f"RENAME TABLE {name}_once TO {name}")
    _settle()


def at_once(calls: list[Callable[[], Any]]) -> None:
    """All calls, a thread each."""
    failures: list[BaseException] = []

    def caught(call: Callable[[], Any]) -> None:
        try:
            call()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=caught, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def leave_and_die(folder: Path) -> None:
    """Lose races until an insert is left in the intake for the next entry; die then."""
    others = [open_warehouse(folder).table("left_over") for _ in range(3)]
    turn = iter(range(1000))
    left = threading.Event()

    def look(kind: str, key: str) -> None:
        if left.is_set():
            die()
        if "/_log/intake/" in key:
            left.set()
            threading.Timer(0.2, die).start()  # when it has been written
        elif kind == "create" and "/_log/" in key:
            number = next(turn)
            others[number % 3].append({"k": [1000 + number], "v": ["faster"]})

    slow = open_warehouse(folder, Before(open_store(str(folder / "warehouse")), look)).table("left_over")
    for number in range(50):
        slow.append({"k": [number], "v": ["slower"]})


def write_nodes(folder: Path) -> None:
    """Volatile parts on the disks of nodes that were killed, leases, merges that were given up or taken over."""
    db = open_warehouse(folder)
    url, disk = str(folder / "warehouse"), folder / "disk"
    settings = (
        "merge_upload_policy = 'volatile', volatile_upload_age_seconds = 1000000, min_bytes_for_full_part_storage = 0"
    )
    columns = "(k UInt64, v String) ENGINE = MergeTree ORDER BY k"
    run(
        db,
        f"CREATE TABLE waiting {columns} SETTINGS {settings}",
        f"CREATE TABLE adopted {columns} SETTINGS {settings}, volatile_lease_seconds = 1",
        f"CREATE TABLE cancelled {columns} SETTINGS {settings}",
        f"CREATE TABLE direct {columns} SETTINGS merge_upload_policy = 'direct'",
        f"CREATE TABLE uploaded {columns} SETTINGS {settings}",
    )
    for name in ("waiting", "adopted", "cancelled", "direct", "uploaded"):
        for first in range(0, 30, 5):
            run(db, f"INSERT INTO {name} SELECT number, concat('{name} ', toString(number)) FROM numbers({first}, 5)")

    def live(name: str) -> list[dict[str, Any]]:
        table = db.table(name)
        table.refresh()
        return table.merges().to_pylist()

    def built(name: str, node: str) -> bool:
        records = disk / node / Path(db.table(name).location).name / "volatile"
        return 0 < len(live(name)) <= len(list(records.glob("*.json")))

    cli_done("node", url, "--name", "n0", "--table", "direct", "--roles", "merge", "--once")
    cli_done("node", url, "--name", "n0", "--table", "uploaded", "--local", str(disk), "--once")
    with killed(cli("node", url, "--name", "n1", "--table", "adopted", "--local", str(disk), "--poll", "0.05")):
        wait_for(lambda: built("adopted", "n1"), "volatile parts of adopted")
    node = ["node", url, "--name", "n2", "--local", str(disk), "--poll", "0.05", "--listen", "127.0.0.1:0"]
    with killed(cli(*node, "--roles", "merge,upload,mutate")):
        wait_for(lambda: built("waiting", "n2") and built("cancelled", "n2"), "volatile parts")
        wait_for(lambda: all(row["owner"] == "n2" for row in live("adopted")), "a take-over")
        wait_for(lambda: built("adopted", "n2"), "the volatile parts that were taken over")
        wait_for(lambda: _announced(db, "waiting"), "an announcement")
    run(db, "OPTIMIZE TABLE cancelled FINAL")
    for name in ("waiting", "adopted"):
        run(db, f"INSERT INTO {name} SELECT number, concat('{name} ', toString(number)) FROM numbers(30, 5)")
    run(db, "UPDATE waiting SET v = 'changed' WHERE k = 3")


def _announced(db: ml.Database, name: str) -> bool:
    return bool(db.sql(f"SELECT count() FROM system.nodes WHERE table = '{name}' AND address != ''").scalar())


@contextmanager
def killed(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a process at the end, so that it cannot leave in good order."""
    try:
        yield
    finally:
        process.kill()
        process.wait()


def write_collected(folder: Path) -> None:
    """Tables after some rounds of collection: notes, horizons, a log that was cut, holds that were given back."""
    db = open_warehouse(folder)
    columns = "(k UInt64, v String) ENGINE = MergeTree ORDER BY k"
    soon = "history_retention_seconds = 0, gc_grace_seconds = 0"
    run(
        db,
        f"CREATE TABLE busy {columns} SETTINGS {soon}, checkpoint_interval = 4",
        f"CREATE TABLE noted {columns} SETTINGS history_retention_seconds = 86400",
        f"CREATE TABLE lender {columns} SETTINGS {soon}",
        "INSERT INTO lender SELECT number, 'lent' FROM numbers(5)",
        "CREATE TABLE borrower CLONE AS lender",
        "CREATE TABLE borrower_too CLONE AS lender",
        "DROP TABLE borrower_too",
        "CREATE TABLE collected (k UInt64) ENGINE = MergeTree ORDER BY k SETTINGS gc_grace_seconds = 0, "
        "history_retention_seconds = 0",
        "INSERT INTO collected VALUES (1)",
        "DROP TABLE collected",
    )
    for first in range(0, 50, 5):
        run(db, f"INSERT INTO busy SELECT number, toString(number) FROM numbers({first}, 5)")
    db.table("busy").tag("tagged")
    run(db, "OPTIMIZE TABLE busy FINAL", "ALTER TABLE busy UPDATE v = 'changed' WHERE k = 1")
    for _ in range(4):
        db.warehouse.gc()
        time.sleep(0.01)
    run(db, "ALTER TABLE busy DROP PART '" + min(db.table("busy").parts()["name"].to_pylist()) + "'")
    run(db, "INSERT INTO busy SELECT number, toString(number) FROM numbers(100, 5)", "DROP TABLE lender")
    # Parts of an insert that was never committed are found and noted.
    dies_at(folder, "insert noted")
    run(db, "INSERT INTO noted VALUES (1, 'one')", "INSERT INTO noted VALUES (2, 'two')")
    cli_done("gc", str(folder / "warehouse"))


def insert_and_die(folder: Path) -> None:
    """Write the part of an insert, and die before it is committed."""

    def look(kind: str, key: str) -> None:
        if kind == "create" and "/_log/" in key:
            die()

    db = open_warehouse(folder, Before(open_store(str(folder / "warehouse")), look))
    db.sql("INSERT INTO noted VALUES (3, 'never')")


def write_zookeeper(folder: Path) -> None:
    """Logs in ZooKeeper, one moved there while it was in use, one moved back; entries that are there alone."""
    from kazoo.client import KazooClient

    with zookeeper_hosts() as hosts:
        place, url = f"zookeeper://{hosts}{ZOOKEEPER_ROOT}", str(folder / "warehouse")
        db = open_warehouse(folder)
        columns = "(k UInt64, v String) ENGINE = MergeTree ORDER BY k"
        run(
            db,
            f"CREATE TABLE moved {columns}",
            "INSERT INTO moved VALUES (1, 'in the bucket'), (2, 'in the bucket')",
        )
        cli_done("log", "move", url, "-o", f"log={place}")
        db = open_warehouse(folder)
        run(
            db,
            "INSERT INTO moved VALUES (3, 'in ZooKeeper')",
            f"CREATE TABLE born {columns} SETTINGS checkpoint_interval = 4",
            f"CREATE TABLE back {columns}",
            "INSERT INTO back VALUES (1, 'before'), (2, 'before')",
            "CREATE VIEW seen AS SELECT k FROM moved",
        )
        for number in range(9):
            run(db, f"INSERT INTO born VALUES ({number}, 'row {number}')")
        cli_done("log", "seal", url, "back")
        run(open_warehouse(folder), "INSERT INTO back VALUES (3, 'after')")
        # An entry that is too large for ZooKeeper: an object, which its node names.
        run(db, f"ALTER TABLE moved MODIFY COMMENT '{'x' * 1_000_000}'", "ALTER TABLE moved MODIFY COMMENT 'short'")
        _settle()
        dies_at(folder, "commit")
        client = KazooClient(hosts=hosts)
        client.start()
        try:
            nodes = dict(_nodes(client, ZOOKEEPER_ROOT))
        finally:
            client.stop()
            client.close()
        encoded = {path: [base64.b64encode(data).decode(), version] for path, (data, version) in sorted(nodes.items())}
        (folder / "znodes.json").write_text(json.dumps(encoded, indent=1))
        pack(folder, folder.parent / f"{folder.name}.tar.gz")
        (folder / "answers.json").write_text(json.dumps(answers(folder)))


ZOOKEEPER_ROOT = "/mergelake-compatibility"


def _settle() -> None:
    """Wait for copies and checkpoints that this process makes in the background."""
    for thread in threading.enumerate():
        if thread.name in ("mergelake-checkpoint", "mergelake-seal"):
            thread.join()


def _nodes(client: Any, path: str) -> Iterator[tuple[str, tuple[bytes, int]]]:
    data, stat = client.get(path)
    if stat.ephemeralOwner:
        return
    yield path, (data, stat.version)
    for child in client.get_children(path):
        yield from _nodes(client, f"{path}/{child}")


def commit_and_die(folder: Path) -> None:
    """Commit in ZooKeeper, and die before the copy to the bucket."""

    def look(kind: str, key: str) -> None:
        if "/_log/" in key:
            die()

    db = open_warehouse(folder, Before(open_store(str(folder / "warehouse")), look))
    db.sql("INSERT INTO moved VALUES (4, 'in ZooKeeper alone')")
    time.sleep(10)


@contextmanager
def zookeeper_hosts() -> Iterator[str]:
    """A ZooKeeper of its own, started by the script in `tools/services`."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.helpers.services import service

    with service("zookeeper", ports=1, ZK_FSYNC="no") as variables:
        yield variables["ZOOKEEPER_HOSTS"]


WAREHOUSES: dict[str, Callable[[Path], None]] = {
    "engines": write_engines,
    "schemas": write_schemas,
    "changes": write_changes,
    "names": write_names,
    "many_parts": write_many_parts,
    "writers": write_writers,
    "nodes": write_nodes,
    "collected": write_collected,
    "zookeeper": write_zookeeper,
}
ACTIONS: dict[str, Callable[[Path], None]] = {
    "move undecided": lambda folder: move_and_die(folder, "undecided"),
    "move given_up": lambda folder: move_and_die(folder, "given_up"),
    "leave": leave_and_die,
    "insert noted": insert_and_die,
    "commit": commit_and_die,
}

# ---------------------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value of a result as JSON has it; equal values have equal forms."""
    if isinstance(value, dict):
        return {str(name): plain(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | str | float):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


def answer(db: ml.Database, query: str) -> list[Any]:
    """The rows of a statement, or the name of its error."""
    try:
        return [plain(row) for row in db.sql(query).rows()]
    except ml.MergelakeError as failure:
        return [["error", getattr(failure, "name", type(failure).__name__)]]


FINAL = ("Replacing", "Collapsing", "Summing", "Aggregating", "Coalescing")


def questions(db: ml.Database) -> Iterator[str]:
    """SQL about everything in a warehouse."""
    yield "SHOW DATABASES"
    for database in db.databases():
        yield f"SHOW TABLES FROM {database}"
        here = f"database = '{database}'"
        names = "name, engine, total_rows, parts, comment"
        yield f"SELECT {names} FROM system.tables WHERE {here} ORDER BY name"
        yield f"SELECT table, name, type, default_expression FROM system.columns WHERE {here} ORDER BY table, position"
        for name, engine in db.sql(f"SELECT name, engine FROM system.tables WHERE {here} ORDER BY name").rows():
            full = f"{database}.{name}"
            yield f"SHOW CREATE TABLE {full}"
            if engine == "View" and "{" in db.sql(f"SHOW CREATE TABLE {full}").scalar():
                yield f"SELECT * FROM {full}(least = 3) ORDER BY ALL"
            elif engine in ("View", "Merge"):
                yield f"SELECT * FROM {full} ORDER BY ALL"
            else:
                yield from questions_of_table(db, database, name, engine)


def questions_of_table(db: ml.Database, database: str, name: str, engine: str) -> Iterator[str]:
    """SQL about one table, at all of its versions."""
    full, of_table = f"{database}.{name}", f"database = '{database}' AND table = '{name}'"
    yield from rows_of(db, full, engine)
    yield f"SELECT count() FROM {full}"
    parts = "name, partition_id, active, rows, level, part_type, part_storage_type"
    yield f"SELECT {parts} FROM system.parts WHERE {of_table} ORDER BY ALL"
    mutations = "mutation_id, command, parts_to_do_names, is_done, is_killed, latest_failed_part, latest_fail_reason"
    yield f"SELECT {mutations} FROM system.mutations WHERE {of_table} ORDER BY ALL"
    yield f"SELECT partition_id, name FROM system.detached_parts WHERE {of_table} ORDER BY ALL"
    yield f"SELECT name, type, expr FROM system.data_skipping_indices WHERE {of_table} ORDER BY ALL"
    yield f"SELECT name, type, query FROM system.projections WHERE {of_table} ORDER BY ALL"
    merges = "partition_id, result_part_name, source_part_names, node, is_volatile"
    yield f"SELECT {merges} FROM system.merges WHERE {of_table} AND is_volatile ORDER BY ALL"
    yield f"SELECT node, version, volatile_parts FROM system.nodes WHERE {of_table} ORDER BY ALL"
    table = db.table(full)
    for tag in table.tags():
        yield f"SELECT * FROM {full} AS OF TAG '{tag}' ORDER BY ALL"
    versions = sorted(table.history()["version"].to_pylist())
    for version in versions if len(versions) < 30 else versions[-8:]:
        yield f"SELECT count(), min(k), max(k), sum(cityHash64(*)) FROM {full} AS OF VERSION {version}"


def rows_of(db: ml.Database, full: str, engine: str) -> Iterator[str]:
    """SQL for all rows of a table: as they lie there, and with FINAL."""
    listed = ", ".join(
        f"finalizeAggregation({column.name}) AS {column.name}"
        if str(column.type).startswith("AggregateFunction")
        else f"`{column.name}`"
        for column in db.table(full).schema.columns
        if column.default_kind != "EPHEMERAL"
    )
    yield f"SELECT {listed} FROM {full} ORDER BY ALL"
    if any(word in engine for word in FINAL):
        yield f"SELECT {listed} FROM {full} FINAL ORDER BY ALL"


def answers(folder: Path, log: str | None = None) -> dict[str, list[Any]]:
    """The answers to all questions about the warehouse of a folder: statement -> rows."""
    db = open_warehouse(folder, log=log)
    found = {query: answer(db, query) for query in questions(db)}
    disk = folder / "disk"
    if disk.exists():
        db = ml.connect(folder / "warehouse", read_volatile=str(disk))
        for name in ("waiting", "adopted"):
            query = f"SELECT k, v FROM default.{name} WHERE k >= 0 ORDER BY ALL"
            found[query] = answer(db, query)
    return found


def pack(folder: Path, target: Path) -> None:
    """The folder as an archive: names in order, no owners; times are kept, for collectors ask for them."""

    def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = int(info.mtime)
        return info

    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for path in sorted(folder.rglob("*")):
            if path.name != ".reserve":  # a megabyte of zeros
                archive.add(path, path.relative_to(folder), recursive=False, filter=anonymous)


def main(arguments: list[str]) -> None:
    """See the module's docstring."""
    if arguments[0] == "--action":
        ACTIONS[arguments[1]](Path(arguments[2]))
        return
    out, wanted = Path(arguments[0]).absolute(), arguments[1:] or list(WAREHOUSES)
    expected_path = out / "expected.json"
    expected = json.loads(expected_path.read_text()) if expected_path.exists() else {}
    for name in wanted:
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        began = time.monotonic()
        WAREHOUSES[name](folder)
        _settle()
        kept = folder / "answers.json"
        if not kept.exists():
            pack(folder, out / f"{name}.tar.gz")
        expected[name] = json.loads(kept.read_text()) if kept.exists() else answers(folder)
        kept.unlink(missing_ok=True)
        size = (out / f"{name}.tar.gz").stat().st_size
        print(f"{name}: {size:,} bytes, {len(expected[name])} answers, {time.monotonic() - began:.1f} s", flush=True)
        text = {each: expected[each] for each in WAREHOUSES if each in expected}
        expected_path.write_text(json.dumps(text, indent=0, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
