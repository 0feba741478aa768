"""Plays a sequence on both sides, comparing columns and rows after every statement.

python -m tests.helpers.alterations.play SEED FIRST END [FEATURE …]    # goes on after a sequence that differs
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from mergelake.api.python.warehouse import Warehouse
from mergelake.api.sql.database import Database
from mergelake.core.base.errors import ConflictError, MergelakeError
from mergelake.parts.write import rewrite as rewrite_columns
from mergelake.store import open_store
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.alterations.draw import TABLES, Drawing
from tests.helpers.alterations.elsewhere import Elsewhere
from tests.helpers.alterations.kinds import Shown, condition
from tests.helpers.alterations.server import Server, rows_of
from tests.helpers.mutations.events import rewrite
from tests.helpers.mutations.sides import Ours, Rows, code_of

NOT_IMPLEMENTED = (46, 48, 386)
BY_VALUE = (6, 27, 38, 41, 53, 69, 70, 72, 131, 321, 349, 407, 469, 691, 36)
"""Codes with which rows are refused that the statement met. ClickHouse takes some such statements, and fails later."""
FEATURES = (
    "constraints",
    "indexes",
    "ttl",
    "projections",
    "partitions",
    "moves",
    "kinds",
    "engines",
    "several",
    "replaced",
)
SHRINK_S = 60.0
FOLDERS = "/dev/shm" if Path("/dev/shm").is_dir() else None
SETTINGS = {
    "mutations_sync": 2, "alter_sync": 2, "lightweight_deletes_sync": 2, "session_timezone": "'UTC'",
    "allow_suspicious_low_cardinality_types": 1, "allow_suspicious_indices": 1, "materialize_ttl_after_modify": 0,
    "lightweight_mutation_projection_mode": "'rebuild'", "max_threads": 1, "print_pretty_type_names": 0,
}  # fmt: skip


UNMERGED = ", max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1"
"""Settings of ClickHouse's tables, so that no mutation waits for a merge."""
GROUPS = ("s, count()", "p, sum(k)", "s, k")
"""What projections of the tables hold, too."""
ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\t": "\\t", "\n": "\\n"})


class Differs(AssertionError):
    """The sides differ; the message has the script."""


class Abandoned(Exception):
    """ClickHouse has accepted a statement that fails on its rows."""


@contextmanager
def prepared(session: Any) -> Iterator[None]:
    """A database of ClickHouse's for the sequences, and settings by which statements wait."""
    session.query("CREATE DATABASE IF NOT EXISTS random_alterations")
    session.query("USE random_alterations")
    for name, value in SETTINGS.items():
        session.query(f"SET {name} = {value}")
    try:
        yield
    finally:
        for name in SETTINGS:
            session.query(f"SET {name} = DEFAULT")
        session.query("USE default")
        session.query("DROP DATABASE random_alterations")


@dataclass
class Known:
    """What ClickHouse has told of a table: it stays so until a statement names the table."""

    columns: list[Shown]
    rows: Rows
    where: str
    """A condition, and the rows for which it is true."""
    chosen: Rows


@dataclass
class Play:
    """Two tables here, two in ClickHouse."""

    session: Any
    seed: str
    tally: Counter[str] = field(default_factory=Counter)
    elsewhere: Sequence[Elsewhere] = ()
    script: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.events = random.Random(f"{self.seed} events")
        self.folder = tempfile.TemporaryDirectory(dir=FOLDERS)
        self.store = open_store(self.folder.name)
        self.db = Database(Warehouse(self.store))
        self.node = Warehouse(self.store).node("n", local=MemoryStore()) if self.events.random() < 0.5 else None
        """A node that merges on a disk of its own, a step at a time."""
        self.remembered: list[tuple[str, str, str, Rows]] = []
        self.known: dict[str, Known] = {}
        self.final = ""
        """What a query needs for rows that do not depend on merges."""
        self.server = Server(self.session)
        for name in (*TABLES, "v"):
            self.session.query(f"DROP TABLE IF EXISTS {name} SYNC")

    def draw(self, statements: int, features: Sequence[str] = FEATURES) -> None:
        """Draw and run so many statements."""
        rng = random.Random(self.seed)
        drawing = Drawing(rng, frozenset(features))
        for text in drawing.creations():
            self.run(text)
        while statements > 0:
            columns = {name: known.columns for name, known in self.known.items()}
            for text in drawing.statements(columns, {name: self.partitions(name) for name in columns}):
                if not self.run(text):
                    drawing.detached.difference_update(text.split()[2:3])  # in case it was refused
                statements -= 1
        self.end()

    def replay(self, script: Sequence[str]) -> None:
        """Run these statements."""
        for text in script:
            self.run(text)
        self.end()

    # -- one statement

    def run(self, text: str) -> bool:
        """Run a statement on both sides, and compare; returns whether it ran."""
        self._happen()
        self.script.append(text)
        self.tally["statements"] += 1
        found, told = self._run_here(text)
        if "is not finished yet" in told:  # a mutation uses the column; all of ClickHouse's are done
            for name in ("t", "u"):
                self.db.table(name).apply_mutations()
            found, told = self._run_here(text)
        if "has no parts in partition" in told:  # in ClickHouse it may have an empty one for a while
            self.tally["without parts"] += 1
            return False
        if found in NOT_IMPLEMENTED:
            self.tally["not implemented"] += 1
            self.tally[f"not implemented: {told[:90]}"] += 1
            return False
        if found in BY_VALUE and re.search("MODIFY COLUMN|MODIFY TTL|ADD CONSTRAINT", text):
            self.tally["refused for their values"] += 1
            return False
        expected = 0
        try:
            self.session.query(_as_theirs(text))
        except RuntimeError as problem:
            expected = code_of(problem)
            if expected == 341:
                raise Abandoned(str(problem)) from None
            theirs = str(problem)
        if found != expected:
            what = told if found else theirs
            raise self._differs("codes differ", f"ClickHouse {expected}", f"here {found}", what[:500])
        self.tally["refused"] += found != 0
        kind = " ".join(re.findall(r"\b[A-Z]{2,}\b", text)[:4])
        self.tally[f"{'refused' if found else 'ran'} {kind}"] += 1
        self.compare(text, found == 0)
        return found == 0

    def _run_here(self, text: str) -> tuple[int, str]:
        for other in self.elsewhere:
            if other.writes and self.events.random() < 0.4:
                return other.run(self.folder.name, text)
        if "ENGINE = ReplacingMergeTree" in text:
            self.final = " FINAL"
        if self.node is not None and "ENGINE = " in text:
            text += ", merge_upload_policy = 'volatile', merge_selector_base = 2"
        try:
            self.db.sql(text)
        except MergelakeError as problem:
            return problem.code, str(problem)
        return 0, ""

    def _happen(self) -> None:
        """What changes no answer here."""
        rng = self.events
        if self.node is not None and rng.random() < 0.5:
            self.tally["steps of a node"] += self.node.step()
        tables = [name for name in ("t", "u") if self.db.warehouse.has_table(f"default.{name}")]
        if not tables or rng.random() < 0.5:
            return
        table = self.db.table(rng.choice(tables))
        shape = rng.random()
        if shape < 0.4:
            with suppress(ConflictError):  # a node was faster
                rewrite(_Worker(table), rng)
        elif shape < 0.7:
            table.optimize()
        elif shape < 0.8:
            table.gc()
        elif shape < 0.88:  # all parts go, and come back in one entry
            table.rollback(table.refresh())
        else:
            self.db = Database(Warehouse(self.store, threads=rng.choice((1, 2))))

    # -- what is compared

    def compare(self, text: str, ran: bool) -> None:
        """Columns and rows of tables that the statement names; perhaps of the other one, and of an older version."""
        for name in TABLES:
            if not self.db.warehouse.has_table(f"default.{name}"):
                continue
            named = re.search(rf"\b{name}\b", text) is not None
            if ran and "REPLACE TABLE" in text:
                self.remembered = [each for each in self.remembered if each[0] != name or not named]
            if ran and named:
                self._learn(name, may_alter=text.startswith(("CREATE", "ALTER")))
            elif self.events.random() < 0.7:
                continue
            self._compare(name)
        if self.events.random() < 0.15:
            self._compare_view()
        if self.remembered and self.events.random() < 0.25:
            name, version, query, rows = self.events.choice(self.remembered)
            self._equal(_from(query, name, f"{name} AS OF {version}"), rows)

    def _learn(self, name: str, *, may_alter: bool) -> None:
        """Ask ClickHouse for a table, and compare its columns."""
        if may_alter:
            described = f"DESCRIBE TABLE {name}"
            ours, theirs = self.db.sql(described).rows(), self._theirs(described)
            if (escaped := _escaped(ours)) != theirs:
                raise self._differs("columns differ", f"ClickHouse {theirs}", f"here {escaped}")
            columns = [Shown(*row[:4]) for row in ours]
        else:
            columns = self.known[name].columns
        where = condition(self.events, columns)
        rows = self._theirs(f"SELECT {where}, {_readable(columns)} FROM {name}{self.final}")
        chosen = [row[1:] for row in rows if row[0] == "1"]
        self.known[name] = Known(columns, sorted(row[1:] for row in rows), where, sorted(chosen))

    def _compare(self, name: str) -> None:
        """Compare the rows of a table, as this and other processes read them."""
        known, query = self.known[name], self.query(name)
        self._equal(query, known.rows)
        if self.events.random() < 0.2:
            table = self.db.table(name)
            version = f"VERSION {table.refresh()}"
            if self.events.random() < 0.3:
                tag = f"f{len(self.script)}"
                table.freeze(tag)
                version = f"TAG '{tag}'"
            self.remembered.append((name, version, query, known.rows))
        for other in self.elsewhere:
            if self.events.random() < 0.5:
                self._equal(f"-- by {type(other).__name__}\n{query}", known.rows, self._read(other, query))
        if self.events.random() < 0.5:
            self._equal(f"{query} WHERE {known.where}", known.chosen)
        if not self.final and self.events.random() < 0.2:
            group = f"SELECT {self.events.choice(GROUPS)} FROM {name} GROUP BY ALL"
            self._equal(group, sorted(self._theirs(group)))
        if self.events.random() < 0.06:
            self._published(name, known.rows)

    def _compare_view(self) -> None:
        """Compare the rows of the view, or the errors if its table has changed so that it has none."""
        query = "SELECT * FROM v"
        try:
            theirs: Rows | int = sorted(rows_of(self.session.query(query, "TSV").bytes()))
        except RuntimeError as problem:
            theirs = code_of(problem)
        try:
            ours: Rows | int = sorted(rows_of(self.db.sql(query).encoded("TSV")))
        except MergelakeError as problem:
            ours = problem.code
        if ours != theirs:
            raise self._differs("a view differs", f"ClickHouse {theirs}", f"here {ours}")

    def query(self, name: str) -> str:
        """All rows of a table."""
        return f"SELECT {_readable(self.known[name].columns)} FROM {name}{self.final}"

    def partitions(self, name: str) -> list[str]:
        """Ids of the partitions with rows here."""
        state = self.db.table(name).handle.refresh()
        return sorted(state.partitions)

    def end(self) -> None:
        """The rows as they are: written down, merged, cloned, and read anew."""
        if self.node is not None:
            self.node.drain(5)
        for name in self.known:
            table = self.db.table(name)
            table.apply_mutations()
            self.db = Database(Warehouse(self.store))
            query, expected = self.query(name), self.known[name].rows
            self._equal(query, expected)
            self.db.sql(f"OPTIMIZE TABLE {name} FINAL")
            self._equal(query, expected)
            self.db.sql(f"CREATE TABLE c_{name} CLONE AS {name}")
            self._equal(_from(query, name, f"c_{name}"), expected)
            self._published(name, expected)

    def _published(self, name: str, expected: Rows) -> None:
        """The rows that a stock ClickHouse shows of the published table."""
        columns = [c.quoted for c in self.known[name].columns if c.is_readable]
        grace_s, anew = self.events.choice((0.0, 300.0)), self.events.random() < 0.4
        follow = self.server.follow
        wanted, found = follow(self.db.table(name), columns, expected, self.final, grace_s, anew, self.tally)
        self._equal(f"-- {name}, published, of {', '.join(columns)}", wanted, found)

    def _equal(self, query: str, expected: Rows, found: Rows | None = None) -> None:
        found = self._ours(query) if found is None else found
        if sorted(found) == expected:
            return
        lacking, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
        lines = [f"ClickHouse has {len(expected)} rows, here are {len(found)}"]
        lines += [f"only there: {row} x {n}" for row, n in list(lacking.items())[:4]]
        lines += [f"only here: {row} x {n}" for row, n in list(extra.items())[:4]]
        raise self._differs("rows differ", query, *lines)

    def _read(self, other: Elsewhere, query: str) -> Rows:
        try:
            return rows_of(other.read(self.folder.name, query))
        except MergelakeError as problem:
            raise self._differs(f"a read by {type(other).__name__} fails", query, str(problem)[:600]) from problem

    def _ours(self, query: str) -> Rows:
        try:
            return rows_of(self.db.sql(query).encoded("TSV"))
        except MergelakeError as problem:
            raise self._differs("a read fails", query, str(problem)[:600]) from problem

    def _theirs(self, query: str) -> Rows:
        try:
            return rows_of(self.session.query(query, "TSV").bytes())
        except RuntimeError as problem:
            raise Abandoned(str(problem)) from None

    def _differs(self, what: str, *details: str) -> Differs:
        return Differs("\n".join([f"{what}:", *details, "script:", *(f"{line};" for line in self.script)]))


def _as_theirs(text: str) -> str:
    """A statement for ClickHouse, where UPDATE needs columns that the tables have not."""
    if "ENGINE = " in text:
        return text + UNMERGED
    return re.sub(r"^UPDATE (\w) SET ", r"ALTER TABLE \1 UPDATE ", text)


class _Worker(Ours):
    """A table as `rewrite` takes it."""

    def __init__(self, table: Any) -> None:
        self.table, self.handle = table, table.handle


def _from(query: str, name: str, other: str) -> str:
    """A query of a table as one of another."""
    head, _, tail = query.rpartition(f" FROM {name}")
    return f"{head} FROM {other}{tail}"


def _readable(columns: Sequence[Shown]) -> str:
    return ", ".join(c.quoted for c in columns if c.is_readable)


def _escaped(rows: Sequence[tuple[str, ...]]) -> Rows:
    """Rows of texts, as `rows_of` has them."""
    return [tuple(cell.translate(ESCAPES).encode().decode("latin-1") for cell in row) for row in rows]


def verify(
    session: Any,
    seed: str,
    statements: int,
    features: Sequence[str] = FEATURES,
    tally: Any = None,
    elsewhere: Sequence[Elsewhere] = (),
) -> None:
    """Play a sequence; raises `Differs` with a script that is as short as a minute allows.

    `elsewhere`: who takes part in it. Then the script is not shortened.
    """
    play = Play(session, seed, Counter() if tally is None else tally, elsewhere)
    play.tally["sequences"] += 1
    whole = random.Random(f"{seed} whole").choice((0, 0, rewrite_columns.REWRITTEN_WHOLE_BYTES))
    with mock.patch.object(rewrite_columns, "REWRITTEN_WHOLE_BYTES", whole):  # 0: as if the parts were large
        _verify(play, statements, features)


def _verify(play: Play, statements: int, features: Sequence[str]) -> None:
    try:
        play.draw(statements, features)
    except Abandoned as problem:
        play.tally["abandoned"] += 1
        play.tally[f"abandoned: {str(problem)[:120]}"] += 1
    except Exception as problem:
        if play.elsewhere:
            raise
        shrunk = _shrunk(play.session, play.seed, play.script, problem)
        raise Differs(f"sequence {play.seed!r}\n{shrunk}") from problem


def _shrunk(session: Any, seed: str, script: list[str], problem: Exception) -> str:
    """What is told of the problem by a shorter script."""
    told, until, size = str(problem), time.monotonic() + SHRINK_S, max(1, len(script) // 2)
    if not isinstance(problem, Differs):
        told = "\n".join([told, *(f"{line};" for line in script)])
    kind = told.split("\n", 1)[0]
    while size:
        at = 0
        while at < len(script) and time.monotonic() < until:
            fewer = script[:at] + script[at + size :]
            try:
                Play(session, seed).replay(fewer)
            except Abandoned:
                pass
            except Exception as again:
                if str(again).split("\n", 1)[0] == kind or type(again) is type(problem) is not Differs:
                    script, told = fewer, str(again) if isinstance(again, Differs) else told
                    continue
            at += size
        size = size // 2 if size > 1 else 0
    return told


def main(arguments: Sequence[str]) -> None:
    """Play the sequences of a seed."""
    from tests.helpers.oracle import oracle

    seed, first, end, *features = arguments
    session, tally, failed = oracle(), Counter[str](), 0
    with prepared(session):
        for number in range(int(first), int(end)):
            try:
                verify(session, f"{seed}/{number}", 25, features or FEATURES, tally)
            except Exception as problem:
                failed += 1
                print(f"---- {problem}", flush=True)
            if number % 50 == 49:
                print(f"{number + 1} at {time.strftime('%H:%M')}", file=sys.stderr, flush=True)
    print(", ".join(f"{count} {name}" for name, count in sorted(tally.items())))
    print(f"{failed} differ")


if __name__ == "__main__":
    main(sys.argv[1:])
