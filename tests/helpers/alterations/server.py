"""A stock ClickHouse that has attached the published tables, and keeps them while they are altered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mergelake.core.base.errors import MergelakeError
from tests.helpers.mutations.sides import Rows
from tests.helpers.served import refresh

DATABASE = "random_alterations"


@dataclass(frozen=True)
class Shown:
    """A published table on the server, as of the last look."""

    location: str
    columns: tuple[str, ...]
    rows: Rows
    """Sorted."""


class Server:
    """Follows tables by the statements with which it attached them, as long as these are right."""

    disks = 0
    """How many disks the process has seen: one that it knows is not listed anew."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._shown: dict[str, Shown] = {}
        self._final = ""

    def follow(
        self,
        table: Any,
        columns: Sequence[str],
        expected: Rows,
        final: str,
        grace_s: float,
        anew: bool,
        tally: Counter[str],
    ) -> tuple[Rows, Rows]:
        """Publish a table, of which these columns (quoted) have the rows `expected`; rows wanted, and rows seen.

        `final`: what its queries end with. `anew`: attach it by a new statement, even if the old one is right.
        """
        self._final = final
        name = f"{DATABASE}.published_{table.name.rpartition('.')[2]}"
        before = self._shown.get(name)
        if before is not None and before.location != table.location:
            before = None  # another table of this name
        if before is not None:
            # What is not published is not seen, whatever the server does.
            found = self._seen(name, before.columns)
            if found != before.rows:
                return before.rows, found
        try:
            table.publish(grace_seconds=grace_s)
        except MergelakeError as failure:
            if failure.name != "INCOMPATIBLE_COLUMNS":
                raise
            if before is not None and (found := self._seen(name, before.columns)) != before.rows:
                return before.rows, found
            tally["publishing stopped"] += 1
            self._drop(name)
            table.publish(grace_seconds=grace_s, redefine=True)
            before = None
        if before is not None:
            both = [column for column in before.columns if column in columns]
            at = [columns.index(column) for column in both]
            wanted, found = sorted(tuple(row[i] for i in at) for row in expected), self._seen(name, both)
            tally["followed by a server"] += 1
            if wanted != found or not anew:
                self._shown[name] = Shown(table.location, tuple(both), found)
                return wanted, found
        self._drop(name)
        Server.disks += 1
        text = table.attach_statement(name, refresh_seconds=3600)
        self._session.query(text.replace("path = '/", f"path = '/{'./' * Server.disks}"))
        found = self._seen(name, columns)
        self._shown[name] = Shown(table.location, tuple(columns), found)
        return expected, found

    def close(self) -> None:
        """Forget all tables."""
        for name in [*self._shown]:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._shown.pop(name, None)
        self._session.query(f"DROP TABLE IF EXISTS {name} SYNC")

    def _seen(self, name: str, columns: Sequence[str]) -> Rows:
        refresh(self._session, name)
        if not columns:
            return []
        return sorted(
            rows_of(self._session.query(f"SELECT {', '.join(columns)} FROM {name}{self._final}", "TSV").bytes())
        )


def rows_of(data: bytes) -> Rows:
    """The rows of a TSV."""
    lines = data.decode("latin-1").removesuffix("\n").split("\n") if data else []
    return [tuple(line.split("\t")) for line in lines]
