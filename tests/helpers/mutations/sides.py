"""The two sides of a sequence: statements run here and in ClickHouse, and reads as comparable texts."""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Iterator, Sequence as Many
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from mergelake.api.python.warehouse import Warehouse
from mergelake.api.sql.database import Database
from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.text_write import to_text
from mergelake.core.types.types import FixedString, inner_type, parse_type
from mergelake.store import open_store
from mergelake.store.interface.protocol import Store
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.far_store import FarStore
from tests.helpers.mutations.sequences import Read
from tests.helpers.mutations.tables import DrawnTable

_SESSION = {"allow_suspicious_low_cardinality_types": "1", "session_timezone": "'UTC'", "mutations_sync": "0"}

Rows = list[tuple[str, ...]]


class Failed(Exception):
    """A mutation was accepted and failed on some row."""


@contextmanager
def in_small_pieces(rng: random.Random) -> Iterator[None]:
    """Cut what is read and written into pieces as if tables were large, sometimes."""
    limits = {
        "mergelake.scan.read.layers.LAYER_ROWS": (20, 200),
        "mergelake.scan.read.pieces.PIECE_BYTES": (500, 5000),
        "mergelake.jobs.mutate.execute.BATCH_ROWS": (7, 64),
        "mergelake.parts.write.rewrite.REWRITTEN_WHOLE_BYTES": (0, 0),
        "mergelake.query.attach.attached.ROWS_MIN": (0, 0),
        "mergelake.query.attach.attached.SCANNED_FIRST": (0, 0),
    }
    with ExitStack() as patches:
        for place, values in limits.items():
            if rng.random() < 0.5:
                patches.enter_context(patch(place, rng.choice(values)))
        yield


class Theirs:
    """ClickHouse: a mutation is done when `run` returns, and nothing merges by itself."""

    def __init__(self, session: Any, table: DrawnTable) -> None:
        self._session = session
        session.query("DROP TABLE IF EXISTS t SYNC")
        session.query(table.their_create)

    @staticmethod
    def prepare(session: Any) -> None:
        """Make and use a database, and set what the sequences need."""
        session.query("CREATE DATABASE IF NOT EXISTS random_mutations")
        session.query("USE random_mutations")
        for name, value in _SESSION.items():
            session.query(f"SET {name} = {value}")

    @staticmethod
    def leave(session: Any) -> None:
        """Undo `prepare`."""
        for name in _SESSION:
            session.query(f"SET {name} = DEFAULT")
        session.query("USE default")
        session.query("DROP DATABASE random_mutations")

    def run(self, statement: str) -> int:
        """Run a statement; returns the code of its error, 0 if there is none. Raises `Failed`."""
        settings = " SETTINGS lightweight_deletes_sync = 0" if statement.startswith("DELETE") else ""
        try:
            self._session.query(statement + settings)
        except RuntimeError as problem:
            return code_of(problem)
        if not statement.startswith(("INSERT", "OPTIMIZE")):
            self._wait()
        return 0

    def _wait(self) -> None:
        """Until all mutations are done. START MERGES wakes the scheduler, which sleeps while its pool is full."""
        query = (
            "SELECT count(), any(latest_fail_reason) FROM system.mutations "
            "WHERE database = 'random_mutations' AND table = 't' AND NOT is_done"
        )
        while True:
            count, reason = str(self._session.query(query, "TSVRaw")).rstrip("\n").split("\t", 1)
            if count == "0":
                return
            if reason:
                raise Failed(reason)
            for _ in range(4):
                self._session.query("SYSTEM START MERGES t")

    def partitions(self) -> list[str]:
        """Ids of the partitions that have parts."""
        query = (
            "SELECT DISTINCT partition_id FROM system.parts WHERE database = 'random_mutations' AND table = 't' "
            "AND active ORDER BY partition_id"
        )
        return str(self._session.query(query, "TSVRaw")).split()

    def read(self, read: Read) -> Rows | int:
        """The rows, or the code of the error."""
        return self.select(query_of(read))

    def select(self, query: str) -> Rows | int:
        """The rows of any SELECT."""
        return select(self._session, query)


def query_of(read: Read) -> str:
    """ClickHouse's query for what `read` reads here."""
    shown = [f"hex(toString({name}))" if read.by == "scan" else name for name in read.columns] or ["count()"]
    return f"SELECT {', '.join(shown)} {read.tail}"


def select(session: Any, query: str) -> Rows | int:
    """The rows of a SELECT in ClickHouse, or the code of the error."""
    try:
        return _rows(session.query(query, "TSV").bytes())
    except RuntimeError as problem:
        return code_of(problem)


class Ours:
    """mergelake, by two connections to one warehouse."""

    name = "here"

    def __init__(
        self, table: DrawnTable, store: Store | None = None, *, spark: Any = None, exists: bool = False
    ) -> None:
        """The store is of the kind that the table names unless given; `exists`: the table is there.

        `spark` is a session that runs the tasks of statements.
        """
        self._folder = tempfile.TemporaryDirectory()
        if store is None:
            made = {"far": FarStore, "near": MemoryStore, "disk": lambda: open_store(self._folder.name)}
            store = made[table.store]()
        self.store, self._spark = store, spark
        self.reopen()
        if not exists:
            self.connections[0].sql(table.our_create)
        self.kinds = table.kinds
        self.table = self.connections[0].table("t")
        self.handle = self.table.handle

    @property
    def version(self) -> int:
        """The newest version."""
        return self.handle.log.state.version

    def run(self, statement: str, connection: int = 0) -> int:
        """Run a statement; returns the code of its error, 0 if there is none."""
        try:
            self.connections[connection].sql(statement)
        except MergelakeError as problem:
            return problem.code
        self.handle.refresh()
        return 0

    def reopen(self) -> None:
        """Forget all that is known of the log."""
        self.connections = [Database(Warehouse(self.store, threads=n, spark=self._spark)) for n in (1, 2)]

    def read(self, read: Read, version: int | None = None, table: str = "t", *, settings: str = "") -> Rows | int:
        """The rows in the order in which they come, or the code of the error; `settings` ends a SELECT."""
        db = self.connections[read.connection]
        try:
            if read.by == "sql":
                query = f"SELECT {', '.join(read.columns) or 'count()'} {read.tail}{settings}"
                if version is not None:
                    query = query.replace("FROM t", f"FROM t AS OF VERSION {version}", 1)
                query = query.replace("FROM t", f"FROM {table}", 1)
                if read.connection:  # by Arrow, perhaps without ClickHouse
                    return _rows(db.sql(query).encoded("TSV"))
                return _rows(db.sql(f"{query} FORMAT TSV").encoded("TSV"))
            return texts_of(self.scan(read, version, table), self.kinds)
        except MergelakeError as problem:
            return problem.code
        except pa.ArrowInvalid as problem:
            if "Invalid UTF8" not in str(problem):
                raise
            return 48  # pyarrow reads no dictionaries of texts that are not UTF-8 from several parts of an answer

    def scan(self, read: Read, version: int | None = None, table: str = "t") -> pa.Table:
        """The rows of a scan, in storage form."""
        found = self.connections[read.connection].table(table).scan(
            list(read.columns), read.where or None, prewhere=read.prewhere or None, final=read.final,
            ordered=read.ordered, limit=read.limit, version=version,
        )  # fmt: skip
        return pa.Table.from_batches(list(found._storage_batches()), _schema_of(found))


def _schema_of(scan: Any) -> pa.Schema:
    from mergelake.scan.read.pieces import batch_schema

    return batch_schema(scan.plan)


def texts_of(rows: pa.Table, kinds: dict[str, str]) -> Rows:
    """Rows in storage form as a read shows them."""
    columns = []
    for name in rows.column_names:
        kind = parse_type(kinds[name])
        column = rows.column(name)
        chunks = [to_text(chunk, kind).to_pylist() for chunk in column.chunks]
        cells = [cell for chunk in chunks for cell in chunk]
        if isinstance(inner_type(kind), FixedString):  # toString drops the padding
            cells = [None if cell is None else cell.rstrip(b"\0") for cell in cells]
        columns.append(["\\N" if cell is None else cell.hex().upper() for cell in cells])
    return list(zip(*columns, strict=True))


def _rows(data: bytes) -> Rows:
    lines = data.decode("latin-1").removesuffix("\n").split("\n") if data else []
    return [tuple(line.split("\t")) for line in lines]


def code_of(problem: Exception) -> int:
    """The code in the message of an error, which is raised if it has none."""
    found = re.search(r"Code: (\d+)", str(problem))
    if found is None:
        raise problem
    return int(found.group(1))


def describe(rows: Rows | int, limit: int = 8) -> str:
    """For messages."""
    return f"error {rows}" if isinstance(rows, int) else f"{len(rows)} rows {rows[:limit]}"


def keys_of(block: pa.Table, texts: Many[str], kinds: dict[str, str]) -> Rows:
    """Values of expressions over rows in storage form, as texts."""
    from mergelake.expr import compile_expression

    types = {name: parse_type(kind) for name, kind in kinds.items()}
    columns = []
    for text in texts:
        compiled = compile_expression(text, types)
        values = compiled.evaluate(block)
        cells = to_text(values, compiled.type).to_pylist()
        columns.append(["\\N" if cell is None else cell.hex().upper() for cell in cells])
    return list(zip(*columns, strict=True))
