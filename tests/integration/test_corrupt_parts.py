"""Stored bytes that are not what they were: told on every way to them, with object, offset and checksums."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.api.cli.main import app
from tests.helpers.refusals import held

ROWS = 5000


class Damaged:
    """A table of two parts in a directory, and the file of one that a test is about to damage."""

    def __init__(self, folder: Path, storage: str, partition: str = "tuple()") -> None:
        self.url = str(folder)
        limit = 0 if storage == "full" else 10 << 20
        db = ml.connect(self.url)
        db.sql(
            f"CREATE TABLE t (k UInt64, s String) ENGINE = MergeTree PARTITION BY {partition} ORDER BY k "
            f"SETTINGS min_bytes_for_full_part_storage = {limit}, index_granularity = 1000"
        )
        for first in (0, ROWS):
            db.sql(f"INSERT INTO t SELECT number + {first}, toString(cityHash64(number)) FROM numbers({ROWS})")
        table = db.table("t")
        part = table.snapshot().parts[1]
        self.part = part.name
        (extent,) = part.manifest.file_table()["s.bin"].extents
        self.key = f"{table.handle.directory}/{extent.key}"
        self.path = folder / self.key
        self.start, self.end = extent.offset, extent.offset + extent.length
        self.log = folder / table.handle.directory / "_log"

    def db(self) -> ml.Database:
        """A new process, as it were: no caches."""
        return ml.connect(self.url)

    def write(self, data: bytes) -> None:
        self.path.chmod(0o644)
        self.path.write_bytes(data)


@pytest.fixture(params=["packed", "full"])
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Damaged:
    return Damaged(tmp_path, request.param)


READS: dict[str, Callable[[ml.Database], Any]] = {
    "SELECT": lambda db: db.sql("SELECT sum(cityHash64(k, s)) FROM t").rows(),
    "INSERT SELECT": lambda db: db.sql("INSERT INTO t SELECT k, s FROM t"),
    "scan": lambda db: db.table("t").scan().arrow(),
    "OPTIMIZE": lambda db: db.sql("OPTIMIZE TABLE t FINAL"),
    "optimize": lambda db: db.table("t").optimize(final=True),
}


def _fails(damaged: Damaged, name: str, *says: str) -> list[ml.CorruptDataError]:
    """Every way to the bytes fails with `name`; no version is made and no object stays."""
    flipped = name == "CHECKSUM_DOESNT_MATCH"  # a file that is cut is told by the range that could not be read
    failures = []
    for read in READS.values():
        db = damaged.db()
        before, version = held(db), db.table("t").version
        with pytest.raises(ml.CorruptDataError) as caught:
            read(db)
        failure = caught.value
        assert failure.name == name, str(failure)
        assert failure.object_key == damaged.key
        assert (damaged.start if flipped else 0) <= failure.offset < damaged.end
        for text in (damaged.key, f"at offset {failure.offset}", *says):
            assert text in str(failure)
        assert held(db) == before
        assert db.table("t").version == version
        failures.append(failure)
    for found in (damaged.db().sql("CHECK TABLE t").arrow(), damaged.db().table("t").check()):
        assert found.column_names == ["part_path", "is_passed", "message"]
        good, bad = found.to_pylist()
        assert (good["is_passed"], good["message"]) == (1, "")
        assert (bad["part_path"], bad["is_passed"]) == (damaged.part, 0)
        for text in (damaged.key, "at offset", "expected", "found", *says):
            assert text in bad["message"]
        pieces = bad["message"].split("; ")
        assert len(set(pieces)) == len(pieces)
    return failures


def test_a_flipped_byte_names_object_offset_and_both_checksums(damaged: Damaged) -> None:
    data = bytearray(damaged.path.read_bytes())
    data[(damaged.start + damaged.end) // 2] ^= 0x40
    damaged.write(bytes(data))
    for failure in _fails(damaged, "CHECKSUM_DOESNT_MATCH", "Checksum of a compressed block does not match", "s.bin"):
        assert len(failure.expected) == len(failure.found) == 32
        assert failure.expected != failure.found
        assert failure.code == 40
    # what does not need the bad bytes still answers
    assert damaged.db().sql("SELECT count(), sum(k) FROM t").rows() == [(2 * ROWS, sum(range(2 * ROWS)))]


def test_a_truncated_file_names_object_offset_and_both_sizes(damaged: Damaged) -> None:
    damaged.write(damaged.path.read_bytes()[: (damaged.start + damaged.end) // 2])
    for failure in _fails(damaged, "CANNOT_READ_ALL_DATA", "shorter than its metadata says"):
        assert int(failure.expected.split()[0]) > int(failure.found.split()[0])


def test_a_missing_file_is_named_once_by_check(damaged: Damaged) -> None:
    damaged.path.unlink()
    for read in READS.values():
        db = damaged.db()
        before = held(db)
        with pytest.raises(ml.NotFoundError, match=damaged.key) as caught:
            read(db)
        assert (caught.value.name, caught.value.code) == ("FILE_DOESNT_EXIST", 107)
        assert held(db) == before
    bad = damaged.db().table("t").check().to_pylist()[1]
    assert bad["is_passed"] == 0
    assert bad["message"].count(damaged.key) == 1


@pytest.mark.parametrize("command", ["check", "optimize", "sql"])
def test_the_command_line_tells_it_with_code_1_and_no_traceback(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = Damaged(tmp_path, "packed")
    data = bytearray(damaged.path.read_bytes())
    data[damaged.start + 30] ^= 0xFF
    damaged.write(bytes(data))
    arguments = {
        "check": ["check", damaged.url, "t"],
        "optimize": ["optimize", damaged.url, "t", "--final"],
        "sql": ["sql", "-d", damaged.url, "-q", "SELECT max(s) FROM t"],
    }[command]
    with pytest.raises(SystemExit) as ended:
        app(arguments)
    assert ended.value.code == 1
    shown = capsys.readouterr()
    told = shown.out if command == "check" else shown.err
    assert damaged.key in told
    assert "Checksum of a compressed block does not match" in told
    assert "Traceback" not in shown.err


def _newest(log: Path) -> Path:
    return max(log.glob("*.json"))


def test_a_log_entry_of_a_newer_format_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path, "packed")
    entry = _newest(damaged.log)
    raw = json.loads(entry.read_text())
    del raw["digest"]  # it would tell that the entry was changed
    opened = damaged.db()
    table = opened.table("t")
    newer = entry.with_name(f"{raw['version'] + 1:020d}.json")
    for change in ({"format": 5}, {"ops": [{"op": "Teleport", "to": "elsewhere"}]}):
        newer.write_text(json.dumps({**raw, "version": raw["version"] + 1, "attempt": "x", **change}))
        for call in (
            lambda: damaged.db().table("t"),
            lambda: damaged.db().sql("SELECT count() FROM t"),
            lambda: damaged.db().sql("INSERT INTO t VALUES (1, 'a')"),
            lambda: opened.sql("SELECT count() FROM t"),
            table.refresh,
            lambda: table.append({"k": [1], "s": ["a"]}),
        ):
            objects = sorted(tmp_path.rglob("*"))
            with pytest.raises(ml.InvalidInputError) as caught:
                call()
            assert (caught.value.name, caught.value.code) == ("UNKNOWN_FORMAT_VERSION", 287)
            assert "upgrade this one" in str(caught.value)
            assert sorted(tmp_path.rglob("*")) == objects
        newer.unlink()
    assert damaged.db().sql("SELECT count() FROM t").scalar() == 2 * ROWS


def test_a_garbled_log_entry_is_corrupt_and_named(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path, "packed")
    entry = _newest(damaged.log)
    entry.chmod(0o644)
    for text in (
        "",
        "{",
        '{"format": 3}',
        '{"format": 3, "version": 99, "attempt": "", "timestamp_ms": 1, "author": "", "ops": []}',
    ):
        entry.write_text(text)
        with pytest.raises(ml.CorruptDataError) as caught:
            damaged.db().table("t")
        assert caught.value.object_key.endswith(entry.name)
        assert entry.name in str(caught.value)


# -- the way out -----------------------------------------------------------------------------------


def _break(damaged: Damaged, how: str) -> None:
    if how == "lost":
        damaged.path.unlink()
    elif how == "cut":
        damaged.write(damaged.path.read_bytes()[: damaged.start + 20])
    elif how == "link":
        damaged.path.unlink()
        damaged.path.symlink_to("/etc/hostname")
    else:
        data = bytearray(damaged.path.read_bytes())
        data[(damaged.start + damaged.end) // 2] ^= 0x40
        damaged.write(bytes(data))


@pytest.mark.parametrize("how", ["lost", "cut", "flipped", "link"])
def test_a_broken_part_is_an_error_that_names_it_and_is_skipped_where_a_setting_asks_for_it(
    damaged: Damaged, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    _break(damaged, how)
    db = damaged.db()
    reads = {name: READS[name] for name in ("SELECT", "scan")}
    for read in reads.values():
        with pytest.raises(ml.MergelakeError) as caught:
            read(db)
        for text in (damaged.key, f"part {damaged.part}", "skip_broken_parts = 1", f"DROP PART '{damaged.part}'"):
            assert text in str(caught.value)
    whole = [(ROWS, sum(range(ROWS)))]
    query = "SELECT count(), sum(k) FROM t WHERE s != ''"
    assert db.sql(query, settings={"skip_broken_parts": 1}).rows() == whole
    assert f"part {damaged.part}" in caplog.text
    with pytest.raises(ml.MergelakeError):
        db.sql(query)
    db.sql("SET skip_broken_parts = 1")
    assert db.sql(query).rows() == whole
    assert db.sql("SELECT count() FROM t").rows() == [(ROWS,)]
    assert db.sql("SELECT count() FROM t AS OF VERSION 2").rows() == [(ROWS,)]
    assert db.table("t").scan(skip_broken_parts=True).arrow().num_rows == ROWS
    db.sql("SET skip_broken_parts = 0")
    db.sql(f"ALTER TABLE t DROP PART '{damaged.part}'")
    assert db.sql(query).rows() == whole


def test_a_store_that_does_not_answer_makes_no_part_broken(damaged: Damaged, monkeypatch: pytest.MonkeyPatch) -> None:
    db = damaged.db()
    for problem in (ml.UnavailableError("silent"), ml.InvalidInputError("denied", name="S3_ERROR")):

        def silent(*_: object, problem: Exception = problem) -> None:
            raise problem

        monkeypatch.setattr(db.warehouse.store, "get_ranges", silent)
        monkeypatch.setattr(db.warehouse.store, "get_range", silent)
        for read in (lambda: db.table("t").scan(skip_broken_parts=True), lambda: db.sql("CHECK TABLE t")):
            with pytest.raises(type(problem)):
                read()
