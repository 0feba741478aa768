"""The interactive shell: history, many lines until `;`, completion of keywords, tables and columns."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from mergelake.api.cli.highlight import COLOURS, SqlColours
from mergelake.api.cli.output import Output, format_of, print_result
from mergelake.api.cli.running import run_watched
from mergelake.api.sql.database import Database
from mergelake.api.sql.script import split_statements
from mergelake.api.sql.statements import Name
from mergelake.api.sql.virtual import schema_of
from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import MergelakeError

KEYWORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "PREWHERE",
    "GROUP",
    "BY",
    "ORDER",
    "BY",
    "HAVING",
    "LIMIT",
    "OFFSET",
    "FINAL",
    "SAMPLE",
    "JOIN",
    "LEFT",
    "INNER",
    "ASOF",
    "ANY",
    "USING",
    "ON",
    "AS",
    "ARRAY",
    "DISTINCT",
    "UNION",
    "ALL",
    "WITH",
    "TOTALS",
    "INSERT",
    "INTO",
    "VALUES",
    "FORMAT",
    "CREATE",
    "TABLE",
    "DATABASE",
    "DROP",
    "TRUNCATE",
    "RENAME",
    "EXCHANGE",
    "TABLES",
    "TO",
    "SHOW",
    "DATABASES",
    "DESCRIBE",
    "EXISTS",
    "OPTIMIZE",
    "PARTITION",
    "ALTER",
    "EXPLAIN",
    "indexes",
    "SET",
    "SETTINGS",
    "USE",
    "ENGINE",
    "MergeTree",
    "ReplacingMergeTree",
    "PRIMARY",
    "KEY",
    "IF",
    "NOT",
    "AND",
    "OR",
    "IN",
    "LIKE",
    "ILIKE",
    "BETWEEN",
    "IS",
    "NULL",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "ASC",
    "DESC",
    "DEFAULT",
    "CODEC",
    "INTERVAL",
    "INFILE",
    "OUTFILE",
    "COMPRESSION",
    "CHECK",
    "UNDROP",
    "ATTACH",
    "DETACH",
    "PART",
    "MODIFY",
    "RESET",
    "SETTING",
    "COLUMNS",
    "count()",
    "sum(",
    "avg(",
    "min(",
    "max(",
    "uniq(",
    "quantile(",
    "toDate(",
    "toYYYYMM(",
    "toStartOfHour(",
]
HELP = """\
End a statement with `;`. Several lines are fine. Ctrl-C cancels a running statement, Ctrl-D leaves.

  \\d              tables of the current database        \\d NAME   columns of a table
  \\l              databases                             \\u NAME   use a database
  \\f FORMAT       output format: pretty, json, csv, tsv, vertical, markdown or any of ClickHouse's
  \\x [on|off]     a line for each column, or rows again  \\G at the end of a statement: this one so
  help  \\h  \\?    this text                             exit  \\q  leave

Statements: SELECT (all of ClickHouse's), EXPLAIN [indexes = 1], CREATE, DROP, RENAME, EXCHANGE, TRUNCATE, INSERT,
OPTIMIZE TABLE [PARTITION] [FINAL], ALTER TABLE … DROP PARTITION, SHOW, DESCRIBE, USE, SET."""
_LEAVE = ("exit", "quit", "\\q", "exit;", "quit;")
_TABLES_COMPLETED = 50


class Shell:
    """An interactive session with a database."""

    def __init__(self, db: Database, output: Output, clock: Clock, format_name: str = "pretty") -> None:
        self.db, self.output, self.clock = db, output, clock
        self.format_name = format_name
        self.expanded = False
        """Whether rows are shown with a line for each column."""

    def run(self) -> None:
        """Read and run what is typed, until the user leaves."""
        session: PromptSession[str] = PromptSession(
            history=_history(),
            completer=Names(self.db),
            complete_while_typing=False,
            multiline=Condition(lambda: not _is_finished(session.default_buffer.text)),
            prompt_continuation=lambda width, number, wrapped: " " * (width - 3) + "-> ",
            key_bindings=_bindings(),
            enable_open_in_editor=True,
            lexer=SqlColours({word.upper() for word in KEYWORDS if word.isalpha()}),
            style=COLOURS,
        )
        self.output.note(f"mergelake on {self.db.warehouse.url}. `help` for help, `exit` to leave.")
        while True:
            try:
                text = session.prompt(f"{self.db.current_database} :) ")
                if not self.answer(text):
                    return
            except KeyboardInterrupt:  # at the prompt, or once more while a statement was being cancelled
                continue
            except EOFError:
                return

    def answer(self, text: str) -> bool:
        """Run what was typed; False if the shell should end."""
        stripped = text.strip()
        if stripped.lower() in _LEAVE:
            return False
        try:
            if stripped.startswith("\\") or stripped.lower() in ("help", "help;"):
                self._command(stripped)
            else:
                self.statements(text)
        except MergelakeError as failure:
            self.output.error(failure)
        except KeyboardInterrupt:
            self.output.note("Cancelled.")
        return True

    def statements(self, text: str) -> None:
        """Run each statement of `text` and print its result; after a final backslash and G, a line for each column."""
        stripped = text.rstrip().removesuffix(";").rstrip()
        expanded = self.expanded or stripped.endswith("\\G")
        text = stripped.removesuffix("\\G") if stripped.endswith("\\G") else text
        for start, end in split_statements(text):
            form = "Vertical" if expanded else format_of(self.format_name)
            with run_watched(self.db, text[start:end], self.output, self.clock, form) as result:
                print_result(self.output, result, footer=self.output.interactive)

    def _command(self, text: str) -> None:
        word, _, rest = text.rstrip(";").partition(" ")
        rest = rest.strip()
        match word:
            case "\\d" if rest:
                self.statements(f"DESCRIBE TABLE {rest}")
            case "\\d" | "\\dt":
                self.statements(
                    "SELECT name, engine, total_rows AS rows, formatReadableSize(total_bytes) AS size, parts "
                    "FROM system.tables WHERE database = currentDatabase() ORDER BY name".replace(
                        "currentDatabase()", "'" + self.db.current_database.replace("'", "\\'") + "'"
                    )
                )
            case "\\l":
                self.statements("SHOW DATABASES")
            case "\\u" | "\\c" if rest:
                self.db.use(rest)
            case "\\f" if rest:
                self.format_name = rest
            case "\\x" if rest.lower() in ("", "on", "off"):
                self.expanded = rest.lower() == "on" if rest else not self.expanded
                self.output.note(f"Expanded display is {'on' if self.expanded else 'off'}.")
            case "help" | "\\h" | "\\?":
                self.output.text(HELP)
            case _:
                self.output.note(f"There is no command {' '.join((word, rest)).strip()}; `help` lists what there is.")


class Names(Completer):
    """Completions: keywords, tables, and the columns of tables that the text names."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Completions of the word before the cursor."""
        word = document.get_word_before_cursor(WORD=False)
        if not word.strip():
            return
        lowered = word.lower()
        for name in (*self._names(document.text), *KEYWORDS):
            if name.lower().startswith(lowered) and name != word:
                yield Completion(name, start_position=-len(word))

    def _names(self, text: str) -> list[str]:
        try:
            tables = self._db.tables()
            columns = [
                column
                for table in tables[:_TABLES_COMPLETED]
                if table in text
                for column in schema_of(self._db, Name("", table)).names
            ]
        except MergelakeError:
            return []  # completion must not fail
        return [*tables, *columns, *self._db.databases()]


def _is_finished(text: str) -> bool:
    """Whether Enter sends the text: a command, or a statement with its `;`."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or stripped.lower() in (*_LEAVE, "help"):
        return True
    return stripped.endswith((";", "\\G"))


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return bindings


def _history() -> History:
    """`~/.mergelake_history`, or `$MERGELAKE_HISTORY`; in memory if that cannot be written."""
    path = Path(os.environ.get("MERGELAKE_HISTORY") or Path.home() / ".mergelake_history")
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
