"""The same statements here and in ClickHouse: the same answers and errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from tests.helpers.refusals import clickhouse_error

CASES = Path(__file__).parents[1] / "cases"


def section(file: str, name: str) -> list[str]:
    """The statements after the line `-- name` of a file of cases."""
    sections = re.split(r"^-- (\w+)\n", (CASES / file).read_text(), flags=re.MULTILINE)
    return sections[sections.index(name) + 1].strip().split(";\n")


class Both:
    """Runs statements here and in ClickHouse, in a database of its own."""

    def __init__(self, oracle: Any, database: str, url: str = "memory://") -> None:
        self.oracle, self.database = oracle, database
        self.alike: frozenset[str] = frozenset()
        """Errors of which either will do: a statement has several, and which one is told is not defined."""
        self.db = ml.connect(url)
        oracle.query(f"DROP DATABASE IF EXISTS {database} SYNC")
        for run in (self.db.sql, oracle.query):
            run(f"CREATE DATABASE {database}")
            run(f"USE {database}")

    def differing(self, statements: list[str]) -> list[str]:
        """The statements with another error or another answer, and what differs."""
        return [found for statement in statements if (found := self._difference(statement))]

    def _difference(self, statement: str) -> str:
        try:
            ours, name = self.db.sql(statement).text("TSVWithNamesAndTypes"), ""
        except MergelakeError as failure:
            ours, name = "", failure.name
        theirs_name = clickhouse_error(self.oracle, statement)
        if name != theirs_name and not {name, theirs_name} <= self.alike:
            return f"{statement}: {name or 'no error'}, not {theirs_name or 'no error'}"
        if name or statement.split()[0] not in ("SELECT", "WITH", "SHOW", "EXISTS", "DESCRIBE"):
            return ""
        theirs = str(self.oracle.query(statement, "TSVWithNamesAndTypes"))
        return "" if ours == theirs else f"{statement}:\n{ours}\nnot\n{theirs}"

    def both(self, statements: list[str]) -> None:
        """Run statements that fail nowhere."""
        for statement in statements:
            self.db.sql(statement)
            self.oracle.query(statement)
            words = statement.split()
            if words[:2] == ["CREATE", "TABLE"] and "ReplacingMergeTree" in words:
                self.oracle.query(f"SYSTEM STOP MERGES {self.database}.{words[2]}")  # rows would go at some moment
