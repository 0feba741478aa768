"""The pages a new user follows, followed: every snippet runs, in order, and prints what the page shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from tests.helpers.pages import ROOT, Reader, snippets


def test_the_readme_runs(tmp_path: Path, oracle: Any) -> None:
    reader = Reader(tmp_path, {"/data/warehouse": str(tmp_path / "warehouse")})
    for snippet in snippets("README.md"):
        reader.follow(snippet)
    assert reader.names["db"].sql(
        "SELECT service, max(latency) FROM events GROUP BY service ORDER BY service"
    ).rows() == [
        ("auth", 1.5),
        ("cart", 20.25),
    ]


def test_the_quickstart_runs_without_spark_and_buckets(tmp_path: Path, oracle: Any) -> None:
    reader = Reader(tmp_path)
    for snippet in snippets("docs/quickstart.md"):
        if snippet.section not in ("Spark", "Buckets"):
            reader.follow(snippet)
    assert {"A first table", "Rows from Python", "Time travel", "Merging", "The shell"} <= set(reader.followed)
    db = ml.connect(str(tmp_path / "warehouse"))
    assert db.sql("SELECT count(), uniqExact(user_id) FROM events").rows() == [(4, 4)]
    assert db.table("events").parts().num_rows == 2  # OPTIMIZE … FINAL left one a month


def test_what_the_page_says_for_those_who_come_from_elsewhere(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for snippet in snippets("docs/coming-from.md"):
        reader.follow(snippet)
    assert len(reader.followed) == 2


def test_the_page_of_what_is_refused_is_true() -> None:
    db = ml.connect("memory://refused")
    db.sql("CREATE TABLE t (k UInt64, s String) ENGINE = MergeTree ORDER BY k")
    version = db.table("t").version
    rows = re.findall(r"^\| `(.*?)` \| (\w+) \| (.*) \|$", (ROOT / "docs/refused.md").read_text(), re.MULTILINE)
    assert len(rows) > 40
    for statement, name, hint in rows:
        with pytest.raises(ml.MergelakeError) as caught:
            db.sql(statement)
        assert (caught.value.name, caught.value.hint) == (name, hint.replace("\\|", "|")), statement
    assert (db.tables(), db.table("t").version) == (["t"], version)


def test_the_quickstart_runs_with_spark(tmp_path: Path, spark: Any, oracle: Any) -> None:
    reader = Reader(tmp_path)
    for snippet in snippets("docs/quickstart.md"):
        if snippet.section in ("A first table", "Rows from Python", "Spark"):
            reader.follow(snippet)
    assert "Spark" in reader.followed
    assert "service|count" in reader.printed.replace(" ", "")  # Spark's own table
    assert ml.connect(str(tmp_path / "warehouse")).sql("SELECT count() FROM events").scalar() == 8


def test_the_quickstart_runs_on_a_bucket(tmp_path: Path, s3_url: str, s3_options: dict[str, str]) -> None:
    change = {
        "s3://bucket/warehouse": s3_url,
        "http://127.0.0.1:9000": s3_options["endpoint"],
        '"access_key_id": "…"': f'"access_key_id": "{s3_options["access_key_id"]}"',
        '"secret_access_key": "…"': f'"secret_access_key": "{s3_options["secret_access_key"]}"',
    }
    reader = Reader(tmp_path, change, {"ml": ml})
    for snippet in snippets("docs/quickstart.md"):
        if snippet.section == "Buckets":
            reader.follow(snippet)
    assert reader.names["db"].warehouse.url == s3_url
    assert reader.names["db"].databases() == ["default"]


def test_the_front_page_runs_on_a_bucket(tmp_path: Path, s3_url: str, s3_options: dict[str, str], oracle: Any) -> None:
    batch = {"ts": ["2026-01-01 00:00:00"], "service": ["auth"], "latency": [12]}
    reader = Reader(
        tmp_path, {'"s3://bucket/warehouse"': f'"{s3_url}", options'}, {"batch": batch, "options": s3_options}
    )
    for snippet in snippets("docs/index.md"):
        reader.follow(snippet)
    assert "auth" in reader.printed


def test_clickhouse_attaches_as_its_page_says(tmp_path: Path, oracle: Any) -> None:
    # M-073
    reader = Reader(tmp_path)
    first, *_ = (snippet for snippet in snippets("docs/quickstart.md") if snippet.section == "A first table")
    reader.follow(first)
    for snippet in snippets("docs/clickhouse.md"):
        reader.follow(snippet)
        if snippet.section == "Publish" and snippet.language == "python":
            assert "CREATE TABLE `default`.`events`" in reader.printed
    (shown,) = (text for text in reader.followed if text.startswith("CREATE TABLE"))
    statement = reader.names["table"].attach_statement("default.events")
    assert " ".join(statement.split()) == " ".join(with_path(shown, statement).split())
    oracle.query("DROP TABLE IF EXISTS default.events")
    oracle.query(with_path(shown, statement))
    rows = str(oracle.query("SELECT service, latency FROM default.events ORDER BY ts", "CSV"))
    assert rows == '"auth",1.5\n"cart",20.25\n'
    for refused in ("INSERT INTO default.events (user_id) VALUES (1)", "OPTIMIZE TABLE default.events FINAL"):
        with pytest.raises(Exception, match=r"TABLE_IS_READ_ONLY|READONLY|read-only|readonly"):
            oracle.query(refused)
    oracle.query("DROP TABLE default.events")
    assert reader.names["table"].scan().arrow().num_rows == 2  # the objects are still there


def with_path(shown: str, real: str) -> str:
    """The page's statement with the path of the reader's own table."""
    (path,) = re.findall(r"path = '([^']*)'", real)
    return re.sub(r"path = '[^']*'", f"path = '{path}'", shown)


def test_every_command_that_the_pages_name_exists() -> None:
    known = subprocess.run(
        [sys.executable, "-m", "mergelake.api.cli", "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for command in re.findall(r"`mergelake ([a-z]+)", page.read_text()):
            assert re.search(rf"\b{command}\b", known), f"{page.name}: mergelake {command}"


def test_what_the_page_of_costs_measures(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for snippet in snippets("docs/costs.md"):
        if snippet.language == "python":
            reader.follow(snippet)
    stats = reader.names["stats"]
    assert (stats.requests.put, reader.names["spent"].counters.put) == (2, 2)
