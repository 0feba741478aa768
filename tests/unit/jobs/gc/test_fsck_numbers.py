"""What cannot be, in what the log says of a table."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from mergelake.api.python.warehouse import Warehouse
from mergelake.api.sql.database import Database
from mergelake.core.base.errors import CorruptDataError
from mergelake.core.model.manifest import FileTable, decode_files
from mergelake.core.model.manifest_json import ManifestJson, decode_manifest
from mergelake.jobs.gc.fsck import parts_at_rest
from mergelake.jobs.gc.fsck_numbers import absurd_state
from mergelake.jobs.gc.object_sizes import ObjectSizes
from mergelake.log.model.operations import AddParts
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.state import State
from mergelake.store.objects.memory import MemoryStore


@pytest.fixture
def db() -> Database:
    db = Database(Warehouse(MemoryStore(), threads=1))
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k PARTITION BY k % 2")
    db.sql("INSERT INTO t SELECT number FROM numbers(100)")
    db.sql("OPTIMIZE TABLE t FINAL")
    return db


def _state(db: Database, **changes: object):
    """The table's state with one part described otherwise."""
    state = db.table("t").handle.log.state
    parts = state.partitions["0"]
    changed = replace(parts[0], manifest=replace(parts[0].manifest, **changes))
    return replace(state, partitions=Partitions.of({**state.partitions, "0": (changed, *parts[1:])}))


def _told(state: State) -> list[tuple[str, str]]:
    """(part, what is wrong with it)."""
    found = parts_at_rest(state, ObjectSizes())
    return [(finding.where, finding.what) for finding in found if finding.kind == "parts"]


def _files(db: Database, change) -> FileTable:
    raw = json.loads(db.table("t").handle.log.state.partitions["0"][0].manifest.files.text)
    change(raw)
    return FileTable(json.dumps(raw))


def test_a_whole_table_has_no_absurd_numbers(db: Database) -> None:
    assert _told(_state(db)) == []
    assert list(absurd_state(_state(db))) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rows": 3, "marks": 9}, "3 rows in 9 granules"),
        ({"schema_version": 7}, "schema version 7 is not known"),
        ({"columns": (0, 99)}, "columns [99]"),
        ({"base_version": 10**9}, "does not exist yet"),
        ({"bytes_on_disk": 1}, "it should have 1"),
        ({"key_range": ("zz", "")}, "not hexadecimal"),
    ],
)
def test_counts_that_cannot_be_are_told(db: Database, changes: dict[str, object], told: str) -> None:
    assert told in str(_told(_state(db, **changes)))


@pytest.mark.parametrize("at", [1, 6, 7])
@pytest.mark.parametrize("value", [-1, -(2**70), 2**63, 2**70, "x", None])
def test_sizes_and_extents_that_cannot_be_are_an_error_for_readers_and_a_finding(
    db: Database, at: int, value: object
) -> None:
    files = _files(db, lambda raw: raw[1][0].__setitem__(at, value))
    with pytest.raises(CorruptDataError, match="file table"):
        decode_files(files.text)
    ((name, told),) = _told(_state(db, files=files))
    assert name.startswith("0_")
    assert "file table" in told


def test_extents_that_do_not_add_up_and_keys_that_lead_away_are_told(db: Database) -> None:
    told = str(_told(_state(db, files=_files(db, lambda raw: raw[1][0].__setitem__(7, 1)))))
    assert "in extents of 1" in told
    told = str(_told(_state(db, files=_files(db, lambda raw: raw[0].__setitem__(0, "../../etc/passwd")))))
    assert "which is no key" in told


def test_fsck_tells_them_with_the_part_and_reads_on(db: Database) -> None:
    log = db.table("t").handle.log
    part = log.state.partitions["1"][0].manifest
    raw = json.loads(part.files.text)
    raw[1][0][6] = -5
    strange = replace(part, id="f" * 32, files=FileTable(json.dumps(raw)), base_version=log.state.version)
    log.commit(lambda _: [AddParts((strange,))])
    report = dict(db.warehouse.fsck("t"))["default.t"]
    assert not report.clean
    assert "file table" in str([finding.what for finding in report.findings])


@pytest.mark.parametrize("name", ["rows", "marks", "bytes_on_disk", "schema_version", "level", "base_version"])
@pytest.mark.parametrize("value", [-1, 2**63, "1", 1.5, None])
def test_a_manifest_with_counts_that_cannot_be_is_refused(db: Database, name: str, value: object) -> None:
    raw = json.loads(msgspec.json.encode(ManifestJson.of(db.table("t").snapshot().parts[0].manifest)))
    with pytest.raises(ValueError, match=name):
        decode_manifest(json.dumps({**raw, name: value}))
