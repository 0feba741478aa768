from __future__ import annotations

import io
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from mergelake.api.cli.highlight import SqlColours
from mergelake.api.cli.output import ROWS_SHOWN, Output, count, print_result, size
from mergelake.api.cli.running import progress_line, run_watched
from mergelake.api.cli.shell import Names, Shell, _is_finished
from mergelake.api.sql.database import Database, connect
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.progress import Progress


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


def test_rows_may_have_a_line_for_each_column(db: Database) -> None:
    talk, out, err = shell(db)

    def answered(text: str) -> str:
        out.truncate(out.seek(0))
        assert talk.answer(text)
        return out.getvalue()

    for text in ("SELECT 1 AS a, 2 AS b\\G", "SELECT 1 AS a, 2 AS b\\G;", "SELECT 1 AS a, 2 AS b \\G \n"):
        assert answered(text) == "Row 1:\n──────\na: 1\nb: 2\n"
    assert "│" in answered("SELECT 1 AS a;")
    answered("\\x")
    assert answered("SELECT 1 AS a;").startswith("Row 1:")
    assert answered("SELECT 1 AS a FORMAT CSV") == "1\n"
    answered("\\x off")
    assert "│" in answered("SELECT 1 AS a;")
    answered("\\x sometimes")
    assert err.getvalue().split("\n")[:3] == [
        "Expanded display is on.",
        "Expanded display is off.",
        "There is no command \\x sometimes; `help` lists what there is.",
    ]
    for command in ("\\d", "\\l", "\\u", "\\f", "\\x", "\\G", "\\?", "\\q"):
        assert command in answered("\\?")


@pytest.mark.parametrize(
    ("text", "styles"),
    [
        ("select max(k) -- all", "keyword function comment"),
        ("SELECT 'it''s', 1.5e3 /* a /* b */ */ FROM `from`", "keyword string number comment keyword"),
        ("SELECT 'open\nSELECT 1", "keyword string"),
        ("SELECT 1 /* open", "keyword number comment"),
        ("SELECT `open", "keyword string"),
        ("\\d SELECT", ""),
        ("", ""),
        ("SELECT " + "1, " * 10_000, ""),
        ("\n\n  SELECT\n\t1;\n", "keyword number"),
    ],
)
def test_sql_is_coloured_while_it_is_typed(text: str, styles: str) -> None:
    colours = SqlColours({"SELECT", "FROM"})
    pieces = list(colours.pieces(text))
    assert "".join(piece for _, piece in pieces) == text
    assert " ".join(style.removeprefix("class:sql.") for style, _ in pieces if style) == styles
    document = Document(text)
    line_of = colours.lex_document(document)
    lines = ["".join(piece for _, piece, *_ in line_of(number)) for number in range(len(document.lines))]
    assert lines == document.lines
    assert line_of(len(document.lines)) == []


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


def test_progress_is_never_whole_nor_beyond_what_there_is() -> None:
    def shown(*news: Progress, elapsed: float = 2.0) -> str:
        return progress_line(elapsed, news).plain[2:]

    assert shown() == "  2.0 s"
    assert shown(Progress("read", 0, 10)) == "  2.0 s"
    half = shown(Progress("read", 500, 1000, 4000))
    assert half == f"  2.0 s  {'━' * 6}{'╌' * 6} 50%  500 of 1.00 thousand rows read, 4.00 kB (250 rows/s)"
    assert " 99%" in shown(Progress("read", 1000, 1000))
    assert "╌" in shown(Progress("read", 1000, 1000))
    assert shown(Progress("read", 1001, 1000)) == "  2.0 s  1.00 thousand rows read (500 rows/s)"
    both = shown(Progress("read", 10, 20), Progress("written", 5))
    assert both.startswith("  2.0 s  5 rows written (2 rows/s)  ━")
    assert both.endswith("50%  10 of 20 rows read (5 rows/s)")
    assert "0%" in shown(Progress("merged", 1, 1000))


def test_an_insert_tells_rows_written_and_a_merge_rows_merged(db: Database) -> None:
    db.sql("DROP TABLE IF EXISTS told")
    small = "max_insert_block_size = 1000, min_bytes_for_full_part_storage = 0"
    db.sql(f"CREATE TABLE told (k UInt64) ENGINE = MergeTree ORDER BY k SETTINGS {small}")
    seen: list[Progress] = []
    db.on_progress = seen.append
    db.sql("INSERT INTO told SELECT number FROM numbers(10500)")
    written = [news for news in seen if news.doing == "written"]
    assert [news.rows for news in written] == [*range(1000, 11_000, 1000), 10_500]
    assert written[0].bytes < written[-1].bytes
    assert {news.total_rows for news in written} == {0}
    seen.clear()
    db.sql("OPTIMIZE TABLE told FINAL")
    assert {(news.doing, news.total_rows) for news in seen} == {("merged", 10_500)}
    rows = [news.rows for news in seen]
    assert rows == sorted(rows)
    assert rows[-1] == 10_500
    seen.clear()
    db.sql("SELECT sum(k) FROM told")
    assert seen[-1] == Progress("read", 10_500, 10_500, seen[-1].bytes)
    assert seen[-1].bytes > 0
    db.on_progress = None


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
