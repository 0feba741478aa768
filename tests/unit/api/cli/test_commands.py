"""The commands, in this process: what they print, where, and with which code they end."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mergelake.api.cli.main import app
from mergelake.api.sql.database import connect


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = str(tmp_path / "warehouse")
    db = connect(url)
    db.sql("CREATE TABLE t (k UInt64, s String, n Nullable(Float64)) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO t VALUES (1, 'a\tb', 1.5), (2, '', NULL); INSERT INTO t (k) VALUES (5)")
    return url


def run(*arguments: str) -> int:
    try:
        app(list(arguments))
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def test_sql_prints_tab_separated_values_where_nobody_watches(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sql", "-d", url, "-q", "SELECT * FROM t ORDER BY k; SELECT 7") == 0
    assert capsys.readouterr().out == "1\ta\\tb\t1.5\n2\t\t\\N\n5\t\t\\N\n7\n"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("csv", '"k","n"\n1,1.5\n2,\\N\n5,\\N\n'),
        ("jsonl", '{"k":1,"n":1.5}\n{"k":2,"n":null}\n{"k":5,"n":null}\n'),
        ("JSONCompactEachRow", "[1, 1.5]\n[2, null]\n[5, null]\n"),
    ],
)
def test_sql_prints_any_format(url: str, capsys: pytest.CaptureFixture[str], form: str, expected: str) -> None:
    assert run("sql", "-d", url, "-q", "SELECT k, n FROM t ORDER BY k", "--format", form) == 0
    assert capsys.readouterr().out == expected


def test_a_pretty_table_has_types_and_numbers_to_the_right(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sql", "-d", url, "-q", "SELECT k * 1000 AS k, n FROM t ORDER BY k", "--format", "pretty", "--time") == 0
    captured = capsys.readouterr()
    assert "│ UInt64 │ Nullable(Float64) │" in captured.out
    assert "│   1000 │               1.5 │" in captured.out
    assert "│   2000 │              NULL │" in captured.out
    assert "3 rows in set. Elapsed: " in captured.err
    assert "Processed 3 rows" in captured.err


def test_a_script_runs_and_stops_at_its_first_error(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.sql"
    script.write_text("INSERT INTO t (k) VALUES (9);\nSELECT count() FROM t;\nSELECT nosuch FROM t;\nSELECT 5;")
    assert run("sql", "-d", url, str(script)) == 1
    captured = capsys.readouterr()
    assert captured.out == "4\n"
    assert "Code: 47." in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("sql", "-q", "SELCT 1"), "expected SELECT?"),
        (("sql", "-q", "SELECT 1 FROM nosuch"), "UNKNOWN_TABLE"),
        (("sql", "-q", "SELECT 1", "--format", "Nosuch"), "UNKNOWN_FORMAT"),
        (("sql", "/nonexistent/script.sql"), "Cannot read the script"),
        (("parts", "URL", "nosuch"), "UNKNOWN_TABLE"),
        (("parts", "URL", "t", "--format", "yaml"), "It is table or json"),
        (("log", "show", "URL", "t", "99"), "The newest is"),
        (("parts", "URL", "t", "-o", "region"), "is not name=value"),
    ],
)
def test_errors_go_to_stderr_with_code_1_and_no_traceback(
    url: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    given = [url if argument == "URL" else argument for argument in arguments]
    assert run(*given, *(("-d", url) if given[0] == "sql" else ())) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err.replace("\n", " ")
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("tables", "URL"), "name"),
        (("parts", "URL", "t"), "rows"),
        (("history", "URL", "t"), "operations"),
        (("check", "URL", "t"), "part_path"),
    ],
)
def test_lists_come_as_a_table_or_as_json(
    url: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], key: str
) -> None:
    given = [url if argument == "URL" else argument for argument in arguments]
    assert run(*given, "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
    assert key in rows[0]
    assert run(*given) == 0
    assert key in capsys.readouterr().out


def test_log_prints_an_entry_as_json(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("log", "show", url, "t", "1") == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1


def test_explain_shows_pruning(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", url, "SELECT s FROM t WHERE k = 2") == 0
    assert "Parts: 1/2" in capsys.readouterr().out


def test_optimize_merges_and_node_finds_nothing_left(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("optimize", url, "t", "--final", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"merges": 1, "parts before": 2, "parts after": 1}
    assert run("node", url, "--once", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["merges failed"] == 0


def test_publish_names_what_became_visible(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("publish", url, "t", "--format", "json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["added"] == ["all_1_1_0", "all_2_2_0"]
    assert "ClickHouse reads it from" in captured.err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("mergelake 0.")


@pytest.mark.parametrize(
    ("query", "data", "expected"),
    [
        ("INSERT INTO t (k, s) FORMAT CSV", '7,"x;y"\n8,\n', "7\tx;y\n8\t\n"),
        ("SELECT 0; INSERT INTO t (k, s) FORMAT JSONEachRow;", '{"k": 9, "s": "z"}', "9\tz\n"),
        ("INSERT INTO t (k, s) VALUES", "(7, 'a'), (8, 'b')", "7\ta\n8\tb\n"),
        ("INSERT INTO t (k, s) VALUES (7, 'c')", "(8, 'not read')", "7\tc\n"),
    ],
)
def test_standard_input_is_the_data_of_an_insert_without_any(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, query: str, data: str, expected: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(data))
    assert run("sql", "-d", url, "-q", query) == 0
    capsys.readouterr()
    assert run("sql", "-d", url, "-q", "SELECT k, s FROM t WHERE k > 6 ORDER BY k") == 0
    assert capsys.readouterr().out == expected


@pytest.mark.chdb
@pytest.mark.parametrize(
    ("head", "program", "expected"),
    [
        ("INSERT INTO t (k, s) FORMAT CSV", "for i in range(200000): print(f'{i},;{i}')", "200000\t19999900000"),
        (
            "INSERT INTO t (k) SETTINGS max_threads = 1 FORMAT TSV;",
            "for i in range(400000): print(i)",
            "400000\t79999800000",
        ),
        ("INSERT INTO t (k) VALUES", "print(','.join(f'({i})' for i in range(200000)))", "200000\t19999900000"),
        ("INSERT INTO t (k) FORMAT CSV", "print('1\\n;\\n2')", None),
        ("INSERT INTO t (k) FORMAT CSV", "print('1\\n' * 1000000 + 'x')", None),
        ("INSERT INTO t (k) FORMAT Parquet", "", None),
    ],
)
def test_much_standard_input_is_read_as_it_comes(tmp_path: Path, head: str, program: str, expected: str | None) -> None:
    db = connect(str(tmp_path / "w"))
    db.sql("CREATE TABLE t (k UInt64, s String) ENGINE = MergeTree ORDER BY k")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as source:
        done = _insert(tmp_path, head, stdin=source.stdout)
    assert done.returncode == (expected is None), done.stderr
    assert db.sql("SELECT count(), sum(k) FROM t").text("TSV").strip() == (expected or "0\t0")


@pytest.mark.chdb
def test_standard_input_may_be_any_format(tmp_path: Path) -> None:
    db = connect(str(tmp_path / "w"))
    db.sql("CREATE TABLE t (k UInt64, s String DEFAULT 'none') ENGINE = MergeTree ORDER BY k")
    formats = ("Parquet", "Native", "RowBinary", "JSONCompactEachRow")
    for number, name in enumerate(formats):
        data = b"".join(db.sql(f"SELECT number + {number}::UInt64 AS k FROM numbers(1) FORMAT {name}").chunks())
        done = _insert(tmp_path, f"INSERT INTO t (k) FORMAT {name}", input=data)
        assert done.returncode == 0, done.stderr
    found = db.sql("SELECT * FROM t ORDER BY k").text("TSV")
    assert found == "".join(f"{k}\tnone\n" for k in range(len(formats)))


def _insert(folder: Path, query: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    """A statement of another process, whose standard input this one makes."""
    arguments = [sys.executable, "-m", "mergelake.api.cli", "sql", "-d", str(folder / "w"), "-q", query]
    return subprocess.run(arguments, capture_output=True, check=False, **more)  # type: ignore[call-overload, no-any-return]


def test_wrong_usage_is_told_before_anything_large_is_loaded() -> None:
    program = """
import sys
from mergelake.api.cli.main import app
try:
    app(["sql", "--nope"])
except SystemExit as left:
    print(left.code, sorted({"numpy", "pyarrow", "chdb", "llvmlite", "mergelake.api.sql.database"} & set(sys.modules)))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "2 []\n"
    assert "No such option: --nope" in found.stderr
