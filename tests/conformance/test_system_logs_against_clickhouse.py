"""`system.part_log` tells of parts what ClickHouse's tells, and has its columns and types; `system.query_log` too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mergelake.api.sql.database import connect

STATEMENTS = (
    "CREATE TABLE t (d Date, k UInt32) ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY k",
    "INSERT INTO t VALUES ('2026-01-01', 1), ('2026-01-02', 2), ('2026-02-01', 3)",
    "INSERT INTO t VALUES ('2026-01-03', 4)",
    "INSERT INTO t VALUES ('2026-01-03', 1), ('2026-02-05', 7)",
    "OPTIMIZE TABLE t PARTITION 202601 FINAL",
    "ALTER TABLE t DELETE WHERE k = 1 SETTINGS mutations_sync = 2",
    "ALTER TABLE t DROP PARTITION 202602",
)
EVENTS = (
    "SELECT toString(event_type), toString(merge_reason), part_name, partition_id, partition, rows, merged_from, "
    "read_rows, mutation_ids FROM system.part_log WHERE table = 't' "
    "AND (event_type IN ('MergeParts', 'MutatePart') OR (event_type = 'NewPart' AND rows > 0)) ORDER BY ALL"
)
SERVER = """
import json, sys
import chdb

path, config, statements = sys.argv[1:]
open(config, "w").write("<clickhouse>" + "".join(
    f"<{name}><database>system</database><table>{name}</table></{name}>" for name in ("query_log", "part_log")
) + "</clickhouse>")
server = chdb.connect(f"{path}?config-file={config}")
*run, events = json.loads(statements)
for statement in run:
    server.query(statement)
server.query("SYSTEM FLUSH LOGS")
out = {"events": json.loads(server.query(events, "JSONCompact").data())["data"]}
for name in ("query_log", "part_log"):
    rows = json.loads(server.query(f"DESCRIBE system.{name}", "JSONCompact").data())["data"]
    out[name] = {row[0]: row[1] for row in rows}
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a ClickHouse that keeps logs says of these statements: it needs a process and a configuration of its own."""
    folder: Path = tmp_path_factory.mktemp("clickhouse")
    arguments = [str(folder / "data"), str(folder / "config.xml"), json.dumps([*STATEMENTS, EVENTS])]
    done = subprocess.run([sys.executable, "-c", SERVER, *arguments], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_part_log_has_clickhouses_events(clickhouse: dict[str, Any]) -> None:
    db = connect("memory://part-log")
    for statement in STATEMENTS:
        db.sql(statement)
    ours = [list(row) for row in db.sql(EVENTS).rows()]
    theirs = [
        [int(cell) if place in (5, 7) else cell for place, cell in enumerate(row)] for row in clickhouse["events"]
    ]
    assert ours == theirs


@pytest.mark.parametrize("name", ["part_log", "query_log"])
def test_the_logs_have_columns_and_types_of_clickhouse(clickhouse: dict[str, Any], name: str) -> None:
    ours_alone = {
        "part_log": {"kind", "version", "author", "put_requests", "cost"},
        "query_log": {"table_requests", "cost"},
    }
    theirs = clickhouse[name]
    described = {row[0]: row[1] for row in connect("memory://logs").sql(f"DESCRIBE system.{name}").rows()}
    assert described.keys() - theirs.keys() == ours_alone[name]
    for column, kind in described.items():
        assert column in ours_alone[name] or kind in (theirs[column], f"Nullable({theirs[column]})"), column
