"""Warehouses that earlier releases wrote are read and continued: the answers are those of the release that wrote them.

`data/<commit>/` holds the warehouses as archives, `expected.json` with the answers, and `PROVENANCE.md`, which says how
they were made. `write_warehouses.py` made them. If a test fails here then tables of users cannot be read, or say
something else: the code has to change, not the data.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.jobs.merge.task_json import decode_result, decode_task, encode_result, encode_task
from mergelake.lake.work import commit_work, work
from mergelake.log.backends import batches
from mergelake.log.backends.intake import decode_left, encode_left
from mergelake.log.backends.keeper import close_all
from mergelake.log.model.operations import Entry, Prepare, RenewLease
from mergelake.log.reading import transactions
from mergelake.log.reading.transactions import decode_record, encode_record
from mergelake.log.storage.catalog import CatalogMachine
from mergelake.log.storage.checkpoint import decode_checkpoint, decode_root, encode_checkpoint
from mergelake.log.storage.encoding import decode_entry, encode_entry
from mergelake.log.storage.part_rows import (
    RETIRED,
    header_of,
    lists_of,
    open_stream,
    retired_columns,
    retired_of,
    table_of,
    write_stream as write_rows,
)
from mergelake.log.storage.segment import decode_segment, encode_segment
from mergelake.log.storage.segments import Segments
from mergelake.log.storage.stored_runs import RunRef, StoredRun
from mergelake.store import open_store
from mergelake.table.partitions.gc_notes import NoteName, Notes
from mergelake.table.volatile.volatile_record import decode_record as decode_volatile, encode_record as encode_volatile
from tests.compatibility.write_warehouses import ZOOKEEPER_ROOT, answer, plain, rows_of

DATA = Path(__file__).parent / "data"
RELEASES = sorted(path.name for path in DATA.iterdir())
STORED = [
    (release, path.name.removesuffix(".tar.gz"))
    for release in RELEASES
    for path in sorted((DATA / release).glob("*.gz"))
]
IN_BUCKET = [(release, name) for release, name in STORED if name != "zookeeper"]
KINDS = {
    "CreateTable",
    "AlterMetadata",
    "AddParts",
    "Publish",
    "DropParts",
    "DropRange",
    "DropDetached",
    "Prepare",
    "MoveLog",
    "AddVolatile",
    "CancelVolatile",
    "AdoptVolatile",
    "RenewLease",
    "ReleaseLease",
    "RowsUnchanged",
    "Mutation",
    "MarkMutated",
    "FinishMutations",
    "MutationFailed",
    "KillMutation",
    "Tag",
    "Untag",
    "AddReference",
    "DropReference",
    "AdvanceGcHorizon",
    "DropTable",
    "UndropTable",
    "CreateDatabase",
    "DropDatabase",
    "RenameDatabase",
    "PutTable",
    "RemoveTable",
    "RenameTable",
    "Exchange",
    "PutVirtual",
    "RemoveVirtual",
}
"""Every kind of operation that a log may hold."""


# ------------------------------------------------------------------------------------------------------- what is there


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a stored warehouse, unpacked once; nobody writes there."""
    known: dict[tuple[str, str], Path] = {}

    def folder(release: str, name: str) -> Path:
        if (release, name) not in known:
            known[release, name] = tmp_path_factory.mktemp(f"{release}-{name}")
            unpack(release, name, known[release, name])
        return known[release, name]

    return folder


def unpack(release: str, name: str, target: Path) -> Path:
    with tarfile.open(DATA / release / f"{name}.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return target


def expected(release: str, name: str) -> dict[str, list[Any]]:
    """Statement -> rows, as the release answered."""
    found: dict[str, list[Any]] = json.loads((DATA / release / "expected.json").read_text())[name]
    return found


class Stored:
    """All objects of the warehouses of a release, by what they are."""

    def __init__(self, release: str, unpacked: Any) -> None:
        self.folders = {name: unpacked(release, name) for each, name in STORED if each == release}
        self.objects = {
            path.relative_to(folder / "warehouse").as_posix(): path
            for folder in self.folders.values()
            for path in sorted((folder / "warehouse").rglob("*"))
            if path.is_file()
        }

    def matching(self, pattern: str) -> dict[str, bytes]:
        """Keys and contents of objects; keys of different warehouses differ, but for those of catalogs."""
        return {key: path.read_bytes() for key, path in self.objects.items() if re.fullmatch(pattern, key)}

    def everywhere(self, pattern: str) -> list[bytes]:
        """Contents of objects of all warehouses."""
        paths = [path for folder in self.folders.values() for path in sorted((folder / "warehouse").rglob("*"))]
        return [path.read_bytes() for path in paths if path.is_file() and re.search(pattern, path.as_posix())]

    @property
    def znodes(self) -> dict[str, bytes]:
        """Nodes of ZooKeeper by path."""
        texts = json.loads((self.folders["zookeeper"] / "znodes.json").read_text())
        return {path: base64.b64decode(text) for path, (text, _) in texts.items()}

    def entries(self) -> Iterator[bytes]:
        """The bytes of all log entries: of objects, of batches, and of nodes of ZooKeeper."""
        for folder in self.folders.values():
            for path in sorted((folder / "warehouse").rglob("*.json")):
                if not re.fullmatch(r"(_log|log)/\d{20}\.json", f"{path.parent.name}/{path.name}"):
                    continue
                data = path.read_bytes()
                yield from [data] if data.startswith(b"{") else batches.decode(int(path.stem), data)
        for path, data in self.znodes.items():
            if re.search(r"/log/\d{20}$", path) and data.startswith(b"{"):
                yield data
        yield from self.everywhere(r"log/large/")


@pytest.fixture(params=RELEASES)
def stored(request: pytest.FixtureRequest, unpacked: Any) -> Stored:
    return Stored(request.param, unpacked)


def all_ops(entry: Entry) -> Iterator[Any]:
    for op in entry.ops:
        yield op
        if isinstance(op, Prepare):
            yield from op.ops


def test_all_kinds_of_operations_and_objects_are_in_the_data(stored):
    entries = [decode_entry(data) for data in stored.entries()]
    assert {type(op).__name__ for entry in entries for op in all_ops(entry)} == KINDS
    assert {json.loads(data)["format"] for data in stored.entries()} == {3, 4}
    assert {len({member.author for member in entry.members}) > 1 for entry in entries} >= {False}
    assert any(len(entry.members) > 1 for entry in entries)
    leases = [op for entry in entries for op in all_ops(entry) if isinstance(op, RenewLease)]
    assert any(lease.address and lease.token for lease in leases)
    assert any(lease.disk for lease in leases)
    for pattern in (
        r"\w+/_log/checkpoints/\d+\.arrow",
        r"\w+/_log/checkpoints/\d+-[0-9a-f]{32}\.segment",
        r"\w+/_log/checkpoints/\d+-[0-9a-f]{32}\.retired\.segment",
        r"\w+/_log/tags/\d+\.arrow",
        r"\w+/_log/intake/.+\.json",
        r"\w+/_log/_last_checkpoint",
        r"\w+/_log/large/.+",
        r"\w+/_gc/.+-objects-.+\.json",
        r"\w+/_gc/.+-log-.+\.json",
        r"\w+/_gc/now",
        r"\w+/_served/\d+",
        r"\w+/__meta/plain-.+/prefix\.path",
        r"\w+/__meta/drop-.+/prefix\.path",
        r"_txn/.+\.json",
        r"_catalog/log/checkpoints/\d+\.arrow",
    ):
        assert stored.matching(pattern), pattern
    outcomes = {decode_record(data).committed for data in stored.matching(r"_txn/.+").values()}
    assert outcomes == {True, False}
    decided = {key.removeprefix("_txn/").removesuffix(".json") for key in stored.matching(r"_txn/.+")}
    prepared = {op.transaction for entry in entries for op in entry.ops if isinstance(op, Prepare)}
    assert len(prepared - decided) == 1  # one whose process died before it was decided
    formats = {json.loads(data)["format"] for data in stored.everywhere(r"_catalog/log/checkpoints/\d+\.arrow$")}
    assert formats == {2, 3}
    assert any(data.startswith(b"@") for path, data in stored.znodes.items() if "/log/" in path)
    assert len(list((stored.folders["nodes"] / "disk").rglob("volatile/*.json"))) > 2
    assert b"" in stored.matching(r"\w+/_log/checkpoints/\d+\.arrow").values()
    parts = {(row[5], row[6]) for rows in parts_of(stored) for row in rows}
    assert parts >= {("Wide", "Packed"), ("Wide", "Full"), ("Compact", "Packed")}


def parts_of(stored: Stored) -> Iterator[list[Any]]:
    for release, name in STORED:
        if name in stored.folders:
            yield from (rows for query, rows in expected(release, name).items() if "FROM system.parts " in query)


# ---------------------------------------------------------------------------------------------------------- same bytes


def test_entries_have_the_same_bytes_again(stored):
    entries = list(stored.entries())
    assert len(entries) > 400
    for data in entries:
        assert encode_entry(decode_entry(data)) == data


def test_batches_of_entries_have_the_same_bytes_again(stored):
    found = 0
    for key, data in stored.matching(r"\w+/(_log|log)/\d{20}\.json").items():
        if not data.startswith(b"{"):
            found += 1
            assert batches.encode(batches.decode(int(key[-25:-5]), data)) == data
    assert found


def test_members_in_the_intake_have_the_same_bytes_again(stored):
    for data in stored.matching(r"\w+/_log/intake/.+").values():
        assert encode_left(decode_left(data)) == data


def test_records_of_transactions_have_the_same_bytes_again(stored):
    for data in stored.matching(r"_txn/.+").values():
        assert encode_record(decode_record(data)) == data


def test_notes_of_collectors_have_the_same_bytes_again(stored, tmp_path):
    for key, data in stored.matching(r"\w+/_gc/.+\.json").items():
        name = NoteName.parse(key.rpartition("/")[2])
        assert name is not None
        assert f"{key.rpartition('/')[0]}/{name.name}" == key
        folder = next(each for each in stored.folders.values() if (each / "warehouse" / key).exists())
        directory = key.partition("/")[0]
        note = Notes(open_store(str(folder / "warehouse")), directory, SimpleNamespace()).read(name)
        target = open_store(str(tmp_path / "notes"))
        again = Notes(target, directory, SimpleNamespace(new_id=lambda name=name: name.id))
        again.write(name.fence, name.time_ms, name.kind, note)
        assert target.get(key) == data


def test_documents_of_tasks_have_the_same_bytes_again(stored):
    tasks = stored.folders["changes"] / "tasks"
    planned = {}
    for path in sorted(tasks.rglob("*.json")):
        data = path.read_bytes()
        planned[path.stem] = decode_task(data)
        assert encode_task(planned[path.stem].url, planned[path.stem].task) == data
    assert {each.task.kind for each in planned.values()} == {"mutation", "optimize"}
    assert any(each.task.slice for each in planned.values())
    for path in sorted(tasks.glob("*.result")):
        task = planned[path.stem]
        assert encode_result(task.digest, decode_result(path.read_bytes(), task)) == path.read_bytes().strip()


def test_records_of_volatile_parts_have_the_same_bytes_again(stored):
    for path in sorted((stored.folders["nodes"] / "disk").rglob("volatile/*.json")):
        record = decode_volatile(path.read_bytes())
        assert record is not None
        assert encode_volatile(*record) == path.read_bytes()


def test_checkpoints_of_catalogs_have_the_same_bytes_again(stored):
    machine = CatalogMachine()
    for data in stored.everywhere(r"_catalog/log/checkpoints/\d+\.arrow$"):
        assert machine.encode(machine.decode(data, "")) == data


def streams(data: bytes) -> list[tuple[Any, pa.Table]]:
    """The headers and tables of the streams in a checkpoint or segment: what does not depend on the compressor."""
    source, found = pa.BufferReader(data), []
    while source.tell() < len(data) and data[source.tell() : source.tell() + 4] == b"\xff\xff\xff\xff":
        reader = open_stream(source)
        metadata = reader.schema.metadata
        found.append((metadata, reader.read_all()))
    return found


def same_content(again: bytes, data: bytes) -> bool:
    return again == data or streams(again) == streams(data)


def segments_of(folder: Path, prefix: str) -> Segments:
    return Segments(
        open_store(str(folder / "warehouse")),
        prefix,
        threads=1,
        newest=lambda version: (version, None, frozenset()),
        elsewhere=lambda part_id, version: iter(()),
        without=lambda version, names: None,
    )


def test_checkpoints_of_tables_have_the_same_content_again(stored):
    for key, data in stored.matching(r"\w+/_log/(checkpoints|tags)/\d+\.arrow").items():
        if not data:  # emptied by a collector: there must be no other one of that version
            continue
        folder = next(each for each in stored.folders.values() if (each / "warehouse" / key).exists())
        state = decode_checkpoint(data, key, segments_of(folder, key.rpartition("/")[0].rpartition("/")[0]))
        runs = tuple(run.ref if isinstance(run, StoredRun) else run for run in state.retired.runs)
        layout = replace(decode_root(data, key).layout, runs=runs)
        again = encode_checkpoint(state, layout)
        assert len(streams(data)) == 5
        assert same_content(again, data), key


def test_segments_of_checkpoints_have_the_same_content_again(stored):
    seen = []
    for key, data in stored.matching(r"\w+/_log/checkpoints/\d+\.arrow").items():
        if not data:
            continue
        folder = next(each for each in stored.folders.values() if (each / "warehouse" / key).exists())
        layout = decode_root(data, key).layout
        for ref in (*layout.refs, *layout.run_refs):
            path = folder / "warehouse" / key.rpartition("/")[0] / ref.name
            whole = path.read_bytes()
            seen.append(type(ref).__name__)
            if isinstance(ref, RunRef):
                parts = retired_of(lists_of(open_stream(pa.BufferReader(whole)).read_all()))
                sink = pa.BufferOutputStream()
                write_rows(sink, table_of(RETIRED, retired_columns(parts)))
                assert same_content(bytes(sink.getvalue()), whole)
                continue
            source = segments_of(folder, key.rpartition("/")[0].rpartition("/")[0])
            segment = decode_segment(ref, whole[: ref.hot_bytes], source, key)
            texts = list(segment.texts(whole, key))
            opened, again = encode_segment(ref.name, segment.rows, texts, source)
            assert list(opened.texts(again, key)) == texts
            assert opened.rows == segment.rows
            headers = [header_of(open_stream(pa.BufferReader(each)).schema) for each in (again, whole)]
            for header in headers:  # sizes and digests of frames depend on the release of the compressor
                header["frames"] = len(header["frames"])
            assert headers[0] == headers[1]
    assert set(seen) == {"SegmentRef", "RunRef"}


# --------------------------------------------------------------------------------------------------------------- reads


def different(db: ml.Database, wanted: dict[str, list[Any]]) -> dict[str, tuple[list[Any], list[Any]]]:
    """Statements with another answer than the expected one: that, and the answer."""
    found = {query: answer(db, query) for query in wanted}
    return {query: (wanted[query], found[query]) for query in wanted if found[query] != wanted[query]}


@pytest.mark.chdb
@pytest.mark.parametrize(("release", "name"), IN_BUCKET)
def test_every_answer_is_that_of_the_release_that_wrote_it(release, name, unpacked, oracle):
    db = ml.connect(unpacked(release, name) / "warehouse")
    assert different(db, expected(release, name)) == {}


@pytest.mark.chdb
@pytest.mark.parametrize("release", RELEASES)
def test_volatile_parts_are_read_from_the_disks_of_nodes_that_are_gone(release, unpacked, oracle):
    folder = unpacked(release, "nodes")
    db = ml.connect(folder / "warehouse", read_volatile=str(folder / "disk"))
    for table in ("waiting", "adopted"):
        query = f"SELECT k, v FROM default.{table} WHERE k >= 0 ORDER BY ALL"
        assert answer(db, query) == expected(release, "nodes")[query]
        assert any("in place of 6 stored parts" in row[0] for row in db.sql(f"EXPLAIN {query}").rows())


@pytest.mark.chdb
@pytest.mark.parametrize("release", RELEASES)
def test_without_zookeeper_everything_is_read_that_was_copied(release, unpacked, oracle):
    db = ml.connect(unpacked(release, "zookeeper") / "warehouse", log="sealed")
    wanted = expected(release, "zookeeper")
    alone = {query for query in wanted if "moved" in query or "FROM default.seen" in query or "system.tables" in query}
    assert different(db, {query: rows for query, rows in wanted.items() if query not in alone}) == {}
    rows = wanted["SELECT `k`, `v` FROM default.moved ORDER BY ALL"]
    assert answer(db, "SELECT k, v FROM moved ORDER BY ALL") == [row for row in rows if "alone" not in row[1]]


@pytest.mark.parametrize(("release", "name"), IN_BUCKET)
def test_nothing_is_wrong_with_what_was_stored(release, name, unpacked):
    warehouse = ml.Warehouse(str(unpacked(release, name) / "warehouse"))
    for table, report in warehouse.fsck():
        assert report.clean, (table, report.findings)


@pytest.mark.parametrize(("release", "name"), IN_BUCKET)
def test_every_byte_of_every_part_is_what_was_written(release, name, unpacked):
    warehouse = ml.Warehouse(str(unpacked(release, name) / "warehouse"))
    for table in warehouse.tables():
        if not is_virtual(warehouse, table):
            assert all(row["is_passed"] for row in warehouse.table(table).check().to_pylist()), table


def is_virtual(warehouse: ml.Warehouse, table: str) -> bool:
    database, _, name = table.partition(".")
    return name not in {held for each, held, _ in warehouse.catalog.refresh().tables() if each == database}


# ----------------------------------------------------------------------------------------------------------- continued

FRESH = 900_000
"""Keys of rows that are added here begin there."""


class Continued:
    """A table that is continued, with the rows that it has to have."""

    def __init__(self, db: ml.Database, full: str, engine: str, rows: list[Any] | None = None) -> None:
        """`rows` are those at the beginning; None: those that are read."""
        self.db, self.full, self.engine = db, full, engine
        self.query = list(rows_of(db, full, engine))[-1]
        self.schema = db.table(full).schema
        self.names = [column.name for column in self.schema.columns if column.default_kind != "EPHEMERAL"]
        self.rows = answer(db, self.query) if rows is None else rows
        assert self.rows[:1] != [["error"]]
        self.at = self.names.index("k")

    def check(self, when: str) -> None:
        found = answer(self.db, self.query)
        assert sorted(found, key=repr) == sorted(self.rows, key=repr), (self.full, when)

    def insert(self, count: int = 2) -> None:
        """Some rows of new keys; the other columns have their defaults."""
        first = max([FRESH, *(row[self.at] + 1 for row in self.rows)])
        columns = [("k", lambda key: str(key))]
        if "v" in self.names:
            columns.append(("v", lambda key: f"'fresh {key}'"))
        if "sign" in self.names:
            columns.append(("sign", lambda key: "1"))
        if "n" in self.names and "Summing" in self.engine:
            columns.append(("n", lambda key: "1"))
        keys = range(first, first + count)
        values = ", ".join(f"({', '.join(text(key) for _, text in columns)})" for key in keys)
        self.db.sql(f"INSERT INTO {self.full} ({', '.join(name for name, _ in columns)}) VALUES {values}")
        added = [row for row in answer(self.db, self.query) if row[self.at] in keys]
        assert [row[self.at] for row in added] == list(keys), self.full
        if "v" in self.names and "Variant" not in str(self.schema.column("v").type):
            assert [row[self.names.index("v")] for row in added] == [f"fresh {key}" for key in keys]
        self.rows += added

    def update(self) -> None:
        """Another value of one column for one of the old keys, if a column can be updated."""
        for name, value, text in (("b", 7, "7"), ("v", "changed", "'changed'"), ("c", 3, "3"), ("n", 5, "5")):
            if name not in self.names or not self.rows or "Variant" in str(self.schema.column(name).type):
                continue
            key = self.old_keys()[0]
            self.db.sql(f"ALTER TABLE {self.full} UPDATE {name} = {text} WHERE k = {key}")
            for row in self.rows:
                if row[self.at] == key:
                    row[self.names.index(name)] = value
                    if "al" in self.names and name == "v":
                        row[self.names.index("al")] = f"{value}!"
            return

    def delete(self) -> None:
        """The rows of another old key."""
        if len(keys := self.old_keys()) > 1:
            self.db.sql(f"DELETE FROM {self.full} WHERE k = {keys[1]}")
            self.rows = [row for row in self.rows if row[self.at] != keys[1]]

    def old_keys(self) -> list[int]:
        """Even ones first: those of odd keys are in partitions that may be immutable."""
        return sorted({row[self.at] for row in self.rows}, key=lambda key: (key % 2, key))


def expire(table: Continued) -> None:
    """What a merge makes of the rows of tables with a TTL."""
    name, rows = table.full, table.rows
    if name == "default.expiring":
        table.rows = [row for row in rows if row[2].startswith("2105")]
    if name == "default.grouped":
        ones = [row for row in rows if row[0] == 1]
        table.rows = [row for row in rows if row[0] != 1] + [[1, ones[0][1], sum(row[2] for row in ones)]] * bool(ones)


def continue_tables(warehouse: Path, given: dict[str, list[Any]], log: str | None = None) -> None:
    """Write to every table, change it, merge it, collect it, and check its rows after each step."""
    db = ml.connect(warehouse, log=log)
    tables: dict[str, Continued] = {}
    for full, engine in db.sql("SELECT database || '.' || name, engine FROM system.tables ORDER BY ALL").rows():
        if engine in ("View", "Merge") or full.startswith(("system.", "information_schema.", "INFORMATION_SCHEMA.")):
            continue
        query = list(rows_of(db, full, engine))[-1]
        tables[full] = Continued(db, full, engine, given.get(full, given.get(query)))
    tagged = {query: rows for query, rows in given.items() if " AS OF TAG " in query}
    for full, table in tables.items():
        table.check("as it was")
        table.insert()
        table.update()
        if full != "default.grouped":
            table.delete()
        table.check("changed")
        opened = db.table(full)
        opened.apply_mutations()
        table.check("mutated")
        db.sql(f"OPTIMIZE TABLE {full} FINAL")
        expire(table)
        table.check("merged")
        opened.refresh()
        assert not [row for row in opened.mutations().to_pylist() if not row["is_done"] and not row["is_killed"]]
        table.insert(1)
        opened.tag("continued")
    for _ in range(2):
        db.warehouse.gc()
    fresh = ml.connect(warehouse, log=log)
    for table in tables.values():
        table.db = fresh
        table.check("collected")
        assert all(row["is_passed"] for row in fresh.table(table.full).check().to_pylist()), table.full
    assert different(fresh, tagged) == {}
    for name, report in fresh.warehouse.fsck():
        assert report.clean, (name, report.findings)


@pytest.fixture
def copy(tmp_path: Path) -> Any:
    """An own copy of a stored warehouse."""
    return lambda release, name: unpack(release, name, tmp_path / "stored")


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction whose process died is given up at once."""
    monkeypatch.setattr(transactions, "PATIENCE_S", 0.1)


@pytest.mark.chdb
@pytest.mark.parametrize(
    ("release", "name"), [each for each in IN_BUCKET if each[1] not in ("changes", "names", "nodes")]
)
def test_tables_go_on_as_if_they_had_been_written_here(release, name, copy, oracle):
    continue_tables(copy(release, name) / "warehouse", expected(release, name))


@pytest.mark.chdb
@pytest.mark.parametrize("release", RELEASES)
def test_tables_with_pending_changes_go_on(release, copy, oracle):
    folder, given = copy(release, "changes"), expected(release, "changes")
    db = ml.connect(folder / "warehouse")
    # The mutation that fails is killed; the one before it is applied.
    failing = db.table("failing")
    mutations = [row for row in failing.mutations().to_pylist() if not row["is_killed"]]
    (bad,) = [row["mutation_id"] for row in mutations if "toInt64" in row["command"]]
    assert all(row["latest_fail_reason"] for row in mutations)
    assert answer(db, "SELECT * FROM failing") == [["error", "CANNOT_PARSE_TEXT"]]
    failing.kill_mutation(bad)
    given["default.failing"] = [[k, f"v{k}", 5 if k == 5 else k * 10, k % 2] for k in range(30)]
    # Inserts that are repeated add nothing, whichever way they are recognized.
    before = db.table("repeated").refresh()
    rows = "SELECT number, concat('v', toString(number)), number * 10, number % 2 FROM numbers"
    db.sql(f"INSERT INTO repeated SETTINGS insert_deduplication_token = 'by part' {rows}(60, 2)")
    db.sql("INSERT INTO repeated VALUES (62, 'v62', 620, 0), (63, 'v63', 630, 1)")
    assert db.table("repeated").append({"k": [64], "v": ["v64"], "n": [640], "p": [0]}, dedup_token="batch-7").duplicate
    assert db.table("upserted").merge([{"k": 2, "v": "", "n": 5, "p": 0}], on="k", dedup_token="changes-1").duplicate
    assert db.table("repeated").refresh() == before
    with pytest.raises(ml.MergelakeError, match="TABLE_IS_READ_ONLY"):
        db.sql("INSERT INTO guarded VALUES (1, 'no', 0, 1)")
    # Documents of tasks: results that were made then are committed now, others are made now.
    tasks = folder / "tasks"
    outcomes = []
    for path in sorted(tasks.rglob("*.json")):
        planned = decode_task(path.read_bytes())
        here = encode_task(str(folder / "warehouse"), planned.task)
        made = tasks / f"{path.stem}.result"
        if made.exists() and planned.task.result.partition_id == "0":
            result = encode_result(decode_task(here).digest, decode_result(made.read_bytes(), planned))
        elif planned.task.kind == "mutation" and planned.task.result.partition_id == "1":
            result = work(here)
        else:
            continue
        outcomes.append(commit_work(here, result))
        assert commit_work(here, result) == outcomes[-1]
    assert len(outcomes) == 3
    slices = sorted((tasks / "slices").glob("*.json"), key=lambda path: "-slice-" not in path.name)  # the merge is last
    for path in slices:
        planned = decode_task(path.read_bytes())
        here = encode_task(str(folder / "warehouse"), planned.task)
        result = work(here)
        if planned.task.slice is None:
            commit_work(here, result)
    assert db.table("sliced").parts()["name"].to_pylist() == [str(planned.task.result)]
    # What was detached comes back.
    detached = [row["name"] for row in db.table("kept").detached_parts().to_pylist()]
    assert detached
    kept = given["SELECT `k`, `v`, `n`, `p` FROM default.kept ORDER BY ALL"]
    for part in detached:
        db.sql(f"ALTER TABLE kept ATTACH PART '{part}'")
    back = answer(db, "SELECT * FROM kept ORDER BY ALL")
    assert len(back) > len(kept)
    assert all(row in back for row in kept)
    del given["SELECT `k`, `v`, `n`, `p` FROM default.kept ORDER BY ALL"]
    continue_tables(folder / "warehouse", given)


@pytest.mark.chdb
@pytest.mark.parametrize("release", RELEASES)
def test_names_and_what_is_shared_between_tables_go_on(release, copy, oracle):
    folder, given = copy(release, "names"), expected(release, "names")
    db = ml.connect(folder / "warehouse")
    db.sql("UNDROP TABLE dropped")
    rows = [[k, "dropped" if k < 6 else "dropped again", k % 2] for k in range(12)]
    assert answer(db, "SELECT * FROM dropped ORDER BY ALL") == rows
    db.sql("UNDROP DATABASE gone")
    assert answer(db, "SELECT * FROM gone.lost") == []
    db.sql("EXCHANGE TABLES shop.a AND shop.b")
    assert answer(db, "SELECT DISTINCT v FROM shop.a ORDER BY v") == [["shop.a"], ["shop.a again"]]
    db.sql("EXCHANGE TABLES shop.a AND shop.b")
    db.sql("RENAME TABLE shop.seen TO seen_here")
    query = "SELECT * FROM shop.seen ORDER BY ALL"
    assert answer(db, query.replace("shop.seen", "seen_here")) == given[query]
    db.sql("ALTER TABLE shop.right_one MOVE PARTITION 1 TO TABLE shop.left_one")
    for name in ("right_one", "left_one"):
        del given[f"SELECT `k`, `v`, `p` FROM shop.{name} ORDER BY ALL"]
    assert (1, 3) in db.sql("SELECT p, k FROM shop.left_one WHERE v = 'moved with its change'").rows()
    continue_tables(folder / "warehouse", given)
    moved = answer(ml.connect(folder / "warehouse"), "SELECT count() FROM undecided_to WHERE k < 900000")
    assert moved == [[0]]


@pytest.mark.chdb
@pytest.mark.parametrize("release", RELEASES)
def test_a_node_goes_on_with_the_disks_of_nodes_that_were_killed(release, copy, oracle):
    folder, given = copy(release, "nodes"), expected(release, "nodes")
    warehouse = ml.Warehouse(str(folder / "warehouse"))
    before = {name: warehouse.table(name).merges().num_rows for name in ("waiting", "adopted")}
    assert all(before.values())
    node = warehouse.node("n2", local=str(folder / "disk"), roles=("merge", "mutate", "upload"))
    while node.step() or not node.idle():
        pass
    node.drain(20)
    assert node.status.merges_failed == 0
    assert node.status.volatile_published > 0
    db = ml.connect(folder / "warehouse")
    for name in before:
        table = db.table(name)
        assert table.merges().num_rows == 0
        query = f"SELECT `k`, `v` FROM default.{name} ORDER BY ALL"
        assert answer(db, query) == given[query]
    continue_tables(folder / "warehouse", given)


# ----------------------------------------------------------------------------------------------------------- ZooKeeper


@pytest.fixture
def restored(zookeeper: dict[str, str]) -> Any:
    """Puts stored nodes into the ZooKeeper of the run; the address of their logs there. They go at the end."""
    kazoo = pytest.importorskip("kazoo.client")
    client = kazoo.KazooClient(hosts=zookeeper["ZOOKEEPER_HOSTS"])
    client.start()

    def restore(folder: Path) -> str:
        for path, (text, version) in sorted(json.loads((folder / "znodes.json").read_text()).items()):
            client.create(path, base64.b64decode(text))
            for _ in range(version):  # a log counts its entries by the versions of a node
                client.set(path, base64.b64decode(text))
        return f"zookeeper://{zookeeper['ZOOKEEPER_HOSTS']}{ZOOKEEPER_ROOT}"

    yield restore
    close_all()
    client.delete(ZOOKEEPER_ROOT, recursive=True)
    client.stop()
    client.close()


@pytest.mark.chdb
@pytest.mark.parametrize("release", RELEASES)
def test_logs_in_zookeeper_are_read_and_go_on(release, copy, restored, oracle):
    folder, given = copy(release, "zookeeper"), expected(release, "zookeeper")
    log = restored(folder)
    assert different(ml.connect(folder / "warehouse", log=log), given) == {}
    continue_tables(folder / "warehouse", given, log)
    shutil.rmtree(folder)


def test_values_of_results_have_one_form():
    assert plain({"a": (1, float("nan"), b"\x01", None)}) == {"a": [1, "nan", "01", None]}
