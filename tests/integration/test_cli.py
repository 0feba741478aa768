"""The command line as a person and a script use it: results on stdout, the rest on stderr, exit codes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mergelake as ml
from mergelake.api.cli.main import app

COMMAND = [sys.executable, "-m", "mergelake.api.cli"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A warehouse with one table of two parts."""
    url = str(tmp_path_factory.mktemp("cli") / "warehouse")
    db = ml.connect(url)
    db.sql("CREATE TABLE t (k UInt64, s String, d Date) ENGINE = MergeTree PARTITION BY k % 2 ORDER BY k")
    db.sql("INSERT INTO t VALUES (1, 'a,b', '2026-01-01'), (2, 'it''s', '2026-01-02')")
    return url


class Ran:
    """What a command printed and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command in this process: starting Python anew costs more than the command."""

    def run(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            app(list(arguments))
        shown = capsys.readouterr()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, shown.out, shown.err)

    return run


def process(*arguments: str, **kwargs: Any) -> Ran:
    """Runs a command as a process of its own."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, **kwargs)
    return Ran(done.returncode, done.stdout, done.stderr)


QUERY = "SELECT k, s, d FROM t ORDER BY k"
SAME = "SELECT * FROM VALUES('k UInt64, s String, d Date', (1, 'a,b', '2026-01-01'), (2, 'it''s', '2026-01-02'))"
FORMATS = {
    "tsv": "TabSeparated",
    "csv": "CSVWithNames",
    "jsonl": "JSONEachRow",
    "markdown": "Markdown",
    "vertical": "Vertical",
    "TSVWithNamesAndTypes": "TSVWithNamesAndTypes",
    "JSONCompactEachRow": "JSONCompactEachRow",
}


@pytest.mark.parametrize(("name", "clickhouse"), FORMATS.items(), ids=list(FORMATS))
def test_a_query_is_printed_as_clickhouse_would(run: Any, url: str, oracle: Any, name: str, clickhouse: str) -> None:
    found = run("sql", "-d", url, "-q", QUERY, "--format", name)
    assert (found.code, found.err) == (0, "")
    assert found.out == str(oracle.query(SAME, clickhouse))
    assert run("sql", "-d", url, "-q", f"{QUERY} FORMAT {clickhouse}").out == found.out


def test_json_holds_names_types_and_rows(run: Any, url: str) -> None:
    found = json.loads(run("sql", "-d", url, "-q", QUERY, "-f", "json").out)
    assert [column["type"] for column in found["meta"]] == ["UInt64", "String", "Date"]
    assert [row["s"] for row in found["data"]] == ["a,b", "it's"]
    assert found["rows"] == 2


def test_pretty_draws_a_table(run: Any, url: str) -> None:
    found = run("sql", "-d", url, "-q", QUERY, "--format", "pretty")
    assert found.out.splitlines()[0].startswith("╭")
    assert "│      2 │ it's   │ 2026-01-02 │" in found.out
    assert found.err == ""
    timed = run("sql", "-d", url, "-q", QUERY, "--format", "pretty", "--time")
    assert timed.err.startswith("2 rows in set. Elapsed: ")


def test_several_statements_print_what_each_gives(run: Any, url: str) -> None:
    found = run("sql", "-d", url, "-q", "SELECT 1; SELECT count() FROM t; SHOW TABLES")
    assert found.out == "1\n2\nt\n"


def test_a_script_may_be_a_file_or_come_from_stdin(
    run: Any, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.sql"
    script.write_text("-- two statements; the first says nothing\nSET max_threads = 1;\nSELECT count() FROM t;\n")
    for arguments in ([str(script)], [], ["-"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO(script.read_text()))
        found = run("sql", "-d", url, *arguments)
        assert (found.code, found.out, found.err) == (0, "2\n", "")


def test_rows_go_out_and_in_without_harm(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Export from one warehouse, import into another; binary formats and Strings that are no text stay as they are."""
    there, here = str(tmp_path / "a"), str(tmp_path / "b")
    create = "CREATE TABLE t (k UInt32, s String) ENGINE = MergeTree ORDER BY k"
    sql(there, f"{create}; INSERT INTO t SELECT number, unhex(hex(number * 7919)) FROM numbers(1000)")
    sql(here, create)
    rows = sql(there, "SELECT k, hex(s) AS s FROM t ORDER BY k FORMAT CSVWithNames", capfdbinary)
    sql(here, f"INSERT INTO t FORMAT CSVWithNames\n{rows.decode()}")
    assert sql(here, "SELECT k, s FROM t ORDER BY k FORMAT CSVWithNames", capfdbinary) == rows
    raw = sql(there, "SELECT s FROM t ORDER BY k LIMIT 1 OFFSET 999 FORMAT RawBLOB", capfdbinary)
    assert raw == bytes.fromhex(f"{999 * 7919:016x}").lstrip(b"\0")
    parquet = sql(there, "SELECT k FROM t ORDER BY k FORMAT Parquet", capfdbinary)
    assert pq.read_table(pa.BufferReader(parquet))["k"].to_pylist() == list(range(1000))


def sql(url: str, statements: str, shown: pytest.CaptureFixture[bytes] | None = None) -> bytes:
    """What `mergelake sql` writes to stdout, as bytes."""
    with pytest.raises(SystemExit) as ended:
        app(["sql", "-d", url, "-q", statements])
    assert not ended.value.code
    return shown.readouterr().out if shown else b""


def test_tables_parts_history_and_log_show_what_there_is(run: Any, url: str) -> None:
    (table,) = json.loads(run("tables", url, "--format", "json").out)
    assert (table["database"], table["name"], table["engine"], table["total_rows"]) == ("default", "t", "MergeTree", 2)
    parts = json.loads(run("parts", url, "t", "--format", "json").out)
    assert [part["name"] for part in parts] == ["0_2_2_0", "1_1_1_0"]
    history = json.loads(run("history", url, "t", "--format", "json").out)
    assert [(entry["version"], entry["operations"]) for entry in history] == [
        (2, "insert 2 rows in 2 parts"),
        (1, "create table"),
    ]
    entry = json.loads(run("log", "show", url, "t").out)
    assert (entry["format"], entry["version"], entry["ops"][0]["op"]) == (3, 2, "AddParts")
    assert json.loads(run("log", "show", url, "t", "1").out)["ops"][0]["op"] == "CreateTable"
    for command in (["tables", url], ["parts", url, "t"], ["history", url, "default.t"]):
        drawn = run(*command)
        assert drawn.out.startswith("╭")
        assert drawn.code == 0
    assert "PrimaryKey" in run("explain", url, "SELECT s FROM t WHERE k = 1").out


def test_merging_checking_and_publishing_by_hand(run: Any, tmp_path: Path, oracle: Any) -> None:
    url = str(tmp_path)
    db = ml.connect(url)
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    for first in range(3):
        db.sql(f"INSERT INTO t SELECT number + {first * 10} FROM numbers(10)")
    assert json.loads(run("optimize", url, "t", "--final", "--format", "json").out) == {
        "merges": 1,
        "parts before": 3,
        "parts after": 1,
    }
    assert len(json.loads(run("parts", url, "t", "--all", "--format", "json").out)) == 4
    assert [row["is_passed"] for row in json.loads(run("check", url, "t", "--format", "json").out)] == [1]
    published = run("publish", url, "t", "--format", "json")
    assert json.loads(published.out)["added"] == ["all_1_3_1"]
    assert db.table("t").location in published.err
    oracle.query(db.table("t").attach_statement("default.from_the_command_line"))
    assert str(oracle.query("SELECT sum(k) FROM default.from_the_command_line", "TSV")).strip() == str(sum(range(30)))
    oracle.query("DROP TABLE default.from_the_command_line")


ERRORS = {
    "a statement that is none": (["sql", "-q", "SELEC 1"], "SYNTAX_ERROR"),
    "an unknown column": (["sql", "-q", "SELECT z FROM t"], "UNKNOWN_IDENTIFIER"),
    "a bad value": (["sql", "-q", "INSERT INTO t (k) VALUES (NULL)"], "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"),
    "an unknown type": (["sql", "-q", "CREATE TABLE y (k Int7) ENGINE = MergeTree ORDER BY k"], "UNKNOWN_TYPE"),
    "an unknown format": (["sql", "-q", "SELECT 1", "-f", "nosuch"], "UNKNOWN_FORMAT"),
    "a script that is not there": (["sql", "nosuch.sql"], "BAD_ARGUMENTS"),
    "a script and a query": (["sql", "x.sql", "-q", "SELECT 1"], "BAD_ARGUMENTS"),
    "a bad option": (["sql", "-q", "SELECT 1", "-o", "region"], "BAD_ARGUMENTS"),
    "an unknown table": (["parts", "URL", "tt"], "UNKNOWN_TABLE"),
    "an unknown database": (["history", "URL", "nosuch.t"], "UNKNOWN_DATABASE"),
    "an unknown version": (["log", "show", "URL", "t", "99"], "BAD_ARGUMENTS"),
    "an unknown table to merge": (["optimize", "URL", "tt"], "UNKNOWN_TABLE"),
    "an unknown partition": (["node", "URL", "--table", "tt", "--once"], "UNKNOWN_TABLE"),
    "what is no address": (["node", "URL", "--listen", "9440"], "BAD_ARGUMENTS"),
    "an address that nobody listens at": (["node", "URL", "--advertise", "lake:9440"], "BAD_ARGUMENTS"),
    "listening once": (["node", "URL", "--listen", "127.0.0.1:0", "--once"], "BAD_ARGUMENTS"),
    "an unknown output form": (["tables", "URL", "--format", "yaml"], "BAD_ARGUMENTS"),
    "an unknown kind of store": (["tables", "ftp://x/y"], "BAD_ARGUMENTS"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_is_one_line_on_stderr_and_exit_code_1(run: Any, url: str, case: str) -> None:
    arguments, name = ERRORS[case]
    arguments = [url if word == "URL" else word for word in arguments]
    if arguments[0] == "sql":
        arguments += ["-d", url]
    found = run(*arguments)
    assert found.code == 1
    assert found.out == ""
    assert name in found.err
    assert found.err.startswith("Code: ")
    assert "Traceback" not in found.err


def test_a_failing_statement_ends_a_script_with_code_1_and_no_traceback(url: str) -> None:
    found = process("sql", "-d", url, input="SELECT 1; SELECT z FROM t; SELECT 2")
    assert (found.code, found.out) == (1, "1\n")
    assert found.err.startswith("Code: 47. ")
    assert "Traceback" not in found.err


def test_wrong_usage_is_code_2(run: Any) -> None:
    assert run("nosuch").code == run("log", "show").code == 2


def test_a_closed_pipe_is_no_error(url: str) -> None:
    shell = f"{sys.executable} -m mergelake.api.cli sql -d {url} -q 'SELECT number FROM numbers(1000000)' | head -1"
    found = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=True)
    assert (found.stdout, found.stderr) == ("0\n", "")


def test_a_node_merges_in_the_background_and_leaves_within_five_seconds(tmp_path: Path) -> None:
    # M-096
    url = str(tmp_path)
    db = ml.connect(url)
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    table = db.table("t")
    log = (tmp_path / "node.log").open("w+")
    arguments = ["node", url, "--name", "n1", "--poll", "0.05", "--format", "json"]
    node = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        for first in range(20):
            table.append({"k": range(first * 10, first * 10 + 10)})
        deadline = time.monotonic() + 60
        while table.parts().num_rows > 10:
            assert node.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
            table.refresh()
        os.kill(node.pid, signal.SIGTERM)
        out, _ = node.communicate(timeout=60)
    finally:
        node.kill()
        node.wait()
        log.close()
    assert node.returncode == 0
    assert json.loads(out)["merges done"] > 0
    assert json.loads(out)["merges failed"] == 0
    said = (tmp_path / "node.log").read_text()
    assert "Node n1 looks after 1 table " in said
    assert "Traceback" not in said
    assert sorted(table.scan().arrow()["k"].to_pylist()) == list(range(200))


def test_a_node_that_listens_says_where_and_withdraws_on_sigterm(tmp_path: Path) -> None:
    url = str(tmp_path)
    db = ml.connect(url)
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    table = db.table("t")
    arguments = ["node", url, "--name", "n1", "--poll", "0.05", "--roles", "merge", "--listen", "127.0.0.1:0"]
    node = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert node.stderr is not None
        assert "takes commits at 127.0.0.1:" in node.stderr.readline()
        deadline = time.monotonic() + 60
        passed_on = False
        while not passed_on:  # announced once a few commits were seen
            assert time.monotonic() < deadline
            version = table.append({"k": [1]}).version
            (entry,) = table.handle.log.entries(version, version)
            passed_on = any(member.author != entry.author for member in entry.members)
        assert table.state().leases["n1"].address
        os.kill(node.pid, signal.SIGTERM)
        node.communicate(timeout=60)
    finally:
        node.kill()
        node.wait()
    assert node.returncode == 0
    table.refresh()
    assert not table.state().leases
    table.append({"k": [1]})


def test_a_node_that_runs_once_merges_what_is_due_and_leaves(run: Any, tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path))
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    for first in range(12):
        db.table("t").append({"k": [first]})
    found = run("node", str(tmp_path), "--once", "--format", "json")
    assert found.code == 0
    assert json.loads(found.out)["merges done"] > 0
    assert db.table("t").parts().num_rows < 12


def test_publish_follows_until_it_is_told_to_stop(tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path))
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    table = db.table("t")
    table.append({"k": [1]})
    command = [*COMMAND, "publish", str(tmp_path), "t", "--follow", "--poll", "0.05"]
    publisher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        names = Path(table.location, "__meta")
        for count in (1, 2):
            deadline = time.monotonic() + 60
            while not names.exists() or sum(1 for path in names.rglob("*") if path.is_file()) < count:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            table.append({"k": [count + 1]})
        publisher.send_signal(signal.SIGINT)
        publisher.communicate(timeout=60)
    finally:
        publisher.kill()
        publisher.wait()
    assert publisher.returncode == 0
