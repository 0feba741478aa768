"""The pages a new user follows, followed: every snippet runs, in order, and prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml

ROOT = Path(__file__).parents[2]
FOREVER = ("mergelake node", "mergelake publish warehouse events --follow")
"""Commands that run until they are stopped."""


_FENCE = re.compile(r"^(#+) ([^\n]*)$|^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A fenced block of a page."""

    section: str
    language: str
    text: str


def snippets(page: str) -> list[Snippet]:
    """The blocks of a page in order, with the heading that they stand under."""
    found, section = [], ""
    for match in _FENCE.finditer((ROOT / page).read_text()):
        if match.group(1):
            section = match.group(2)
        else:
            found.append(Snippet(section, match.group(3), match.group(4)))
    return found


class Reader:
    """Somebody who types a page in: one Python session and one shell in one directory."""

    def __init__(self, folder: Path, change: dict[str, str] | None = None, names: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.change = change or {}
        """What this reader has another name for: buckets, keys, directories."""
        self.names: dict[str, Any] = dict(names or {})
        self.printed = ""
        self.followed: list[str] = []

    def follow(self, snippet: Snippet) -> None:
        text = snippet.text
        for old, new in self.change.items():
            text = text.replace(old, new)
        match snippet.language:
            case "python":
                self._python(text)
            case "sh":
                for line in text.splitlines():
                    self._shell(line.split("  #")[0].strip())
            case "text":
                assert self.printed.strip() == text.strip()
            case "sql":
                self.followed.append(text)
            case "":
                return
            case other:
                raise AssertionError(f"what to do with {other}?")
        self.followed.append(snippet.section)

    def _python(self, text: str) -> None:
        out = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out):
            exec(compile(text, "<page>", "exec"), self.names)
        self.printed = out.getvalue()

    def _shell(self, line: str) -> None:
        if line.startswith("pip install"):
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            (wanted,) = re.findall(r"'mergelake\[(.*?)\]'", line)
            assert set(wanted.split(",")) <= set(extras)
            return
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        if line.startswith(FOREVER):
            self._forever(line, environment)
            return
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=environment,
            input="SELECT 1",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), line
        assert done.stdout, line
        self.printed = done.stdout

    def _forever(self, line: str, environment: dict[str, str]) -> None:
        said = self.folder / "said"
        with said.open("w") as err:
            running = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )
            try:
                deadline = time.monotonic() + 30
                while "Ctrl-C ends" not in said.read_text():
                    assert running.poll() is None, said.read_text()
                    assert time.monotonic() < deadline, line
                    time.sleep(0.05)
                running.send_signal(signal.SIGTERM)
                self.printed, _ = running.communicate(timeout=60)
            finally:
                running.kill()
                running.wait()
        assert running.returncode == 0, said.read_text()


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
        [sys.executable, "-m", "mergelake.cli", "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for command in re.findall(r"`mergelake ([a-z]+)", page.read_text()):
            assert re.search(rf"\b{command}\b", known), f"{page.name}: mergelake {command}"
