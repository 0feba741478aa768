"""docs/parts.md and docs/format.md, followed: ClickHouse attaches what they build, and the bytes are those shown."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from tests.helpers.clickhouse_tables import data_path
from tests.helpers.pages import Reader, snippets

ROOT = Path(__file__).parents[2]
MINIMAL = "CREATE TABLE minimal (k UInt64, s String) ENGINE = MergeTree ORDER BY k"


def _attach(oracle: Any, table: str, paths: list[str]) -> None:
    for path in map(Path, paths):
        shutil.copytree(path, data_path(oracle, table) / "detached" / path.name)
        oracle.query(f"ALTER TABLE {table} ATTACH PART '{path.name}'")


def test_the_bulk_load_of_the_page_ends_in_clickhouse(tmp_path: Path, oracle: Any) -> None:
    reader = Reader(tmp_path)
    for snippet in snippets("docs/parts.md"):
        if snippet.language == "sql":
            oracle.query("DROP TABLE IF EXISTS hits")
            oracle.query(snippet.text)
        elif snippet.section == "By Spark":
            compile(snippet.text, "<page>", "exec")
        else:
            reader.follow(snippet)
    _attach(oracle, "hits", [part.path for part in reader.names["parts"]])
    assert str(oracle.query("SELECT * FROM hits ORDER BY ms", "CSV")).splitlines() == [
        '"2026-02-01",3,"/",9',
        '"2026-01-31",7,"/",12',
        '"2026-02-01",7,"/cart",48',
    ]
    checked = str(oracle.query("CHECK TABLE hits SETTINGS check_query_single_value_result = 1", "TSV")).split()
    assert checked[0] == "1"


@pytest.mark.slow
def test_the_spark_tasks_of_the_page_build_parts_that_clickhouse_attaches(
    tmp_path: Path, spark: Any, oracle: Any
) -> None:
    (snippet,) = (s for s in snippets("docs/parts.md") if s.section == "By Spark")
    ddl = "CREATE TABLE spark_hits (day Date, user UInt64) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY user"
    frame = spark.sql("SELECT DATE'2026-01-01' + CAST(id % 60 AS INT) AS day, id AS user FROM range(10000)")
    text = snippet.text.replace("s3://staging/hits", str(tmp_path)).replace("repartition(8", "repartition(2")
    names: dict[str, Any] = {"frame": frame, "ddl": ddl}
    exec(compile(text, "<page>", "exec"), names)
    exec(compile(text, "<page>", "exec"), names)  # tasks that run again leave one copy
    assert sum(row.rows for row in names["built"]) == 10_000
    oracle.query("DROP TABLE IF EXISTS spark_hits")
    oracle.query(ddl)
    _attach(oracle, "spark_hits", [str(tmp_path / row.name) for row in names["built"]])
    assert str(oracle.query("SELECT count(), sum(user), uniqExact(day) FROM spark_hits", "CSV")).strip() == (
        "10000,49995000,60"
    )


def _dump(folder: Path) -> str:
    lines = []
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        lines.append(f"{file.name} {len(data)}")
        for at in range(0, len(data), 16):
            row = data[at : at + 16]
            text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            lines.append(f"  {at:04x}  {row.hex(' '):<47}  {text}")
    return "\n".join(lines)


def test_the_hexdump_is_what_we_write_and_clickhouse_attaches(tmp_path: Path, oracle: Any) -> None:
    (part,) = ml.write_part(
        {"k": [1, 2, 3], "s": ["a", "", "xyz"]}, str(tmp_path), f"{MINIMAL} SETTINGS default_compression_codec = 'NONE'"
    )
    shown = re.search(r"<!-- hexdump.*?-->\n```\n(.*?)\n```", (ROOT / "docs/format.md").read_text(), re.DOTALL)
    assert shown is not None
    assert _dump(Path(part.path)) == shown.group(1)
    oracle.query("DROP TABLE IF EXISTS minimal")
    oracle.query(MINIMAL)
    _attach(oracle, "minimal", [part.path])
    assert str(oracle.query("SELECT * FROM minimal ORDER BY k", "CSV")) == '1,"a"\n2,""\n3,"xyz"\n'
    assert str(oracle.query("CHECK TABLE minimal", "TSV")).strip().split("\t")[-1] in ("1", "")
