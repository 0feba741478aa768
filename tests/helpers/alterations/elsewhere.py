"""Who else takes part in a sequence: another process, which runs statements and reads, and Spark, which reads."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Protocol

from mergelake.api.python.warehouse import Warehouse
from mergelake.api.sql.database import Database
from mergelake.core.base.errors import MergelakeError
from mergelake.store import open_store


class Elsewhere(Protocol):
    """Another reader of a warehouse, perhaps a writer too."""

    writes: bool

    def read(self, url: str, query: str) -> bytes:
        """The rows of a query, as TSV. Raises MergelakeError."""

    def run(self, url: str, statement: str) -> tuple[int, str]:
        """Run a statement; returns the code of its error and its text, 0 if there is none."""


class AnotherProcess:
    """mergelake in another process, which keeps what it knows of a warehouse."""

    writes = True

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))

    def read(self, url: str, query: str) -> bytes:
        """The rows of a query."""
        return self._pool.submit(_read, url, query).result()

    def run(self, url: str, statement: str) -> tuple[int, str]:
        """Run a statement."""
        return self._pool.submit(_run, url, statement).result()

    def close(self) -> None:
        """End it."""
        self._pool.shutdown()


class OnSpark:
    """Queries by Spark's tasks."""

    writes = False

    def __init__(self, session: Any) -> None:
        self._session = session

    def read(self, url: str, query: str) -> bytes:
        """The rows of a query."""
        db = Database(Warehouse(open_store(url), spark=self._session))
        return db.sql(f"{query} SETTINGS executor = 'spark'").encoded("TSV")

    def run(self, url: str, statement: str) -> tuple[int, str]:
        """Is not asked."""
        raise NotImplementedError


_known: dict[str, Database] = {}
"""Of the other process."""


def _database(url: str) -> Database:
    if url not in _known:
        _known.clear()
        _known[url] = Database(Warehouse(open_store(url)))
    return _known[url]


def _read(url: str, query: str) -> bytes:
    return _database(url).sql(query).encoded("TSV")


def _run(url: str, statement: str) -> tuple[int, str]:
    try:
        _database(url).sql(statement)
    except MergelakeError as problem:
        return problem.code, str(problem)
    return 0, ""
