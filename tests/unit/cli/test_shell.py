from __future__ import annotations

import io
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from mergelake.cli.output import ROWS_SHOWN, Output, count, print_result, size
from mergelake.cli.running import run_watched
from mergelake.cli.shell import Names, Shell, _is_finished
from mergelake.core.clock import SystemClock
from mergelake.core.errors import MergelakeError
from mergelake.sql.database import Database, connect


@pytest.fixture
def db() -> Database:
    db = connect("memory://shell")
    db.sql("DROP TABLE IF EXISTS events; CREATE TABLE events (service String, k UInt64) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO events VALUES ('web', 1), ('api', 2)")
    return db


def shell(db: Database) -> tuple[Shell, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Shell(db, Output("table", out, err), SystemClock()), out, err


def test_the_shell_answers_keeps_going_after_an_error_and_leaves(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERGELAKE_HISTORY", str(tmp_path / "history"))
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        talk, out, err = shell(db)
        keys.send_text("SELECT nosuch FROM events;\r")
        keys.send_text("SELECT service\r FROM events ORDER BY k;\r")
        keys.send_text("\\d\rexit\r")
        talk.run()
    assert "UNKNOWN_IDENTIFIER" in err.getvalue()
    assert "│ web" in out.getvalue()
    assert "│ events │ MergeTree │" in out.getvalue()
    assert "SELECT service" in (tmp_path / "history").read_text()


def test_commands_of_the_shell(db: Database) -> None:
    talk, out, err = shell(db)
    assert talk.answer("\\d events")
    assert "service" in out.getvalue()
    assert talk.answer("\\f csv")
    assert talk.answer("SELECT 1 AS a;")
    assert out.getvalue().endswith('"a"\n1\n')
    assert talk.answer("help")
    assert "Ctrl-C" in out.getvalue()
    assert talk.answer("\\nosuch")
    assert "no command" in err.getvalue()
    assert not talk.answer("exit;")


@pytest.mark.parametrize(
    ("text", "finished"),
    [("SELECT 1", False), ("SELECT 1;", True), ("SELECT 1\n;", True), ("\\d", True), ("exit", True), ("", True)],
)
def test_enter_sends_a_finished_statement_only(text: str, finished: bool) -> None:
    assert _is_finished(text) is finished


def test_completion_knows_keywords_tables_and_the_columns_of_named_tables(db: Database) -> None:
    def complete(text: str) -> list[str]:
        return [found.text for found in Names(db).get_completions(Document(text), CompleteEvent())]

    assert "SELECT" in complete("SEL")
    assert "events" in complete("SELECT 1 FROM ev")
    assert "service" in complete("SELECT k FROM events WHERE ser")
    assert "service" not in complete("SELECT ser")


def test_a_watched_statement_shows_progress_and_raises_its_error(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")  # a dumb one shows none

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    output = Output("table", io.StringIO(), screen)
    query = "SELECT count() FROM events, numbers(3) AS n WHERE NOT ignore(sleepEachRow(0.15))"
    assert run_watched(db, query, output, SystemClock()).scalar() == 6
    assert " s" in screen.getvalue()
    with pytest.raises(MergelakeError, match="UNKNOWN_TABLE"):
        run_watched(db, "SELECT 1 FROM nosuch", output, SystemClock())


def test_numbers_for_people() -> None:
    assert [count(n) for n in (5, 1200, 3_400_000, 2e9)] == ["5", "1.20 thousand", "3.40 million", "2.00 billion"]
    assert [size(n) for n in (5, 1200, 3_400_000)] == ["5 B", "1.20 kB", "3.40 MB"]


def test_of_a_large_result_the_first_rows_are_drawn_and_all_counted(db: Database) -> None:
    out, err = io.StringIO(), io.StringIO()
    with db.sql("SELECT number AS n FROM numbers(3000000)") as result:
        print_result(Output("table", out, err), result, footer=True)
    assert out.getvalue().count("\n") < ROWS_SHOWN + 10
    assert "3000000 rows in set (1000 shown)" in err.getvalue()


def test_a_large_result_is_written_as_it_comes(db: Database) -> None:
    written: list[int] = []

    class File(io.StringIO):
        def write(self, text: str) -> int:
            written.append(len(text))
            return len(text)

    output = Output("table", File(), io.StringIO())
    result = run_watched(db, "SELECT number FROM numbers(4000000)", output, SystemClock(), "TabSeparated")
    print_result(output, result, footer=False)
    assert sum(written) == sum(len(str(number)) + 1 for number in range(4_000_000))
    assert max(written) <= 1 << 20
