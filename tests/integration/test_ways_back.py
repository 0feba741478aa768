"""What was dropped comes back while its objects are there; single parts go and come; reading makes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mergelake as ml
from mergelake.api.cli.main import app
from mergelake.core.base.errors import InvalidInputError, MergelakeError, NotFoundError
from mergelake.log.model.conflict import step
from mergelake.log.model.state import State
from mergelake.log.storage.machine import TableMachine

KEEP_NOTHING = "SETTINGS history_retention_seconds = 0, gc_grace_seconds = 0"


@pytest.fixture
def db(tmp_path: Path) -> ml.Database:
    db = ml.connect(str(tmp_path / "warehouse"))
    db.sql("CREATE TABLE t (k UInt64, s String) ENGINE = MergeTree ORDER BY k")
    for first in (0, 10, 20):
        db.sql(f"INSERT INTO t SELECT number + {first}, toString(number) FROM numbers(10)")
    return db


def _sum(db: ml.Database, table: str = "t") -> tuple[object, ...]:
    return db.sql(f"SELECT count(), sum(k) FROM {table}").rows()[0]


# -- UNDROP ----------------------------------------------------------------------------------------


def test_a_dropped_table_comes_back_with_its_rows_settings_history_and_directory(db: ml.Database) -> None:
    db.sql("ALTER TABLE t MODIFY SETTING parts_to_throw_insert = 77")
    db.table("t").tag("before")
    db.table("t").append({"k": [100], "s": ["x"]}, dedup_token="one")
    location = db.table("t").location
    db.sql("DROP TABLE t")
    with pytest.raises(NotFoundError, match="does not exist"):
        db.sql("SELECT * FROM t")
    db.sql("UNDROP TABLE t")
    assert _sum(db) == (31, 435 + 100)
    table = ml.connect(db.warehouse.url).table("t")
    assert table.location == location
    assert table.schema.settings["parts_to_throw_insert"] == "77"
    assert table.scan(version="before").arrow().num_rows == 30
    assert table.append({"k": [100], "s": ["x"]}, dedup_token="one").duplicate
    assert "undrop table" in table.history().to_pylist()[0]["operations"]
    db.sql("INSERT INTO t VALUES (1, 'y')")
    db.sql("OPTIMIZE TABLE t FINAL")
    assert _sum(db) == (32, 536)
    assert all(report.clean for _, report in db.warehouse.fsck())


def test_undrop_says_what_clickhouse_says(db: ml.Database) -> None:
    cases = {
        "UNDROP TABLE t": (57, "already exists"),
        "UNDROP TABLE nix": (60, "was not dropped"),
        "UNDROP TABLE nodb.t": (81, "nodb"),
        "UNDROP TABLE t UUID 'x'": (376, "not a UUID"),
        "UNDROP DATABASE nix": (81, "nix"),
        "UNDROP t": (62, "Syntax error|TABLE"),
        "UNDROP TABLE t UUID '00000000-0000-0000-0000-000000000001'": (57, "already exists"),
    }
    for statement, (code, text) in cases.items():
        with pytest.raises(MergelakeError, match=text) as caught:
            db.sql(statement)
        assert caught.value.code == code, statement
    db.sql("DROP TABLE t")
    with pytest.raises(NotFoundError) as caught:
        db.sql("UNDROP TABLE t UUID '00000000-0000-0000-0000-000000000001'")
    assert caught.value.code == 60
    db.sql("CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a")
    with pytest.raises(InvalidInputError) as taken:
        db.sql("UNDROP TABLE t")
    assert taken.value.code == 57


def test_of_several_tables_of_one_name_the_last_comes_back_or_the_one_that_is_asked_for(db: ml.Database) -> None:
    first = db.table("t").handle.directory
    db.sql("DROP TABLE t")
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    db.sql("DROP TABLE t")
    db.sql("UNDROP TABLE t")
    assert _sum(db) == (0, 0)
    db.sql("RENAME TABLE t TO later")
    db.sql("UNDROP TABLE t")
    assert _sum(db) == (30, 435)
    db.sql("DROP TABLE t")
    uuid = f"{first[:8]}-{first[8:12]}-{first[12:16]}-{first[16:20]}-{first[20:]}"
    db.sql(f"UNDROP TABLE t UUID '{uuid.upper()}'")
    assert _sum(db) == (30, 435)


def test_a_dropped_database_comes_back_with_its_tables(db: ml.Database) -> None:
    db.sql("CREATE DATABASE d")
    for name in ("a", "b"):
        db.sql(f"CREATE TABLE d.{name} AS t")
        db.sql(f"INSERT INTO d.{name} SELECT * FROM t")
    db.sql("DROP DATABASE d")
    assert db.databases() == ["default"]
    db.sql("UNDROP DATABASE d")
    assert db.tables("d") == ["a", "b"]
    assert _sum(db, "d.a") == _sum(db, "d.b") == (30, 435)
    with pytest.raises(InvalidInputError) as caught:
        db.sql("UNDROP DATABASE d")
    assert caught.value.code == 82


def test_the_database_default_is_always_there(db: ml.Database) -> None:
    db.sql("DROP DATABASE default")
    for each in (db, ml.connect(db.warehouse.url)):
        assert each.databases() == ["default"]
        assert each.tables() == []
    db.sql("UNDROP DATABASE default")
    assert _sum(db) == (30, 435)
    db.sql("RENAME DATABASE default TO old")
    assert db.databases() == ["default", "old"]
    assert _sum(db, "old.t") == (30, 435)
    for _ in range(70):  # beyond a checkpoint
        db.sql("DROP DATABASE default")
    assert ml.connect(db.warehouse.url).databases() == ["default", "old"]


def test_a_table_whose_objects_were_collected_does_not_come_back(db: ml.Database) -> None:
    for name in ("u", "empty"):
        db.sql(f"CREATE TABLE {name} (k UInt64) ENGINE = MergeTree ORDER BY k {KEEP_NOTHING}")
    db.sql("INSERT INTO u VALUES (1)")
    for name in ("u", "empty"):
        db.sql(f"DROP TABLE {name}")
        db.sql(f"UNDROP TABLE {name}")
        db.sql(f"DROP TABLE {name}")
    for _ in range(8):
        db.warehouse.gc()
        for name in ("u", "empty"):
            try:
                db.sql(f"UNDROP TABLE {name}")
            except NotFoundError as gone:
                assert gone.code == 60  # noqa: PT017
            else:
                assert _sum(db, name) in ((0, 0), (1, 1))
                db.sql(f"DROP TABLE {name}")
    for name in ("u", "empty"):
        db.sql(f"DROP TABLE IF EXISTS {name}")
    for _ in range(8):
        db.warehouse.gc()
    for name in ("u", "empty"):
        with pytest.raises(NotFoundError, match="collected"):
            db.sql(f"UNDROP TABLE {name}")
    assert _sum(db) == (30, 435)


def test_collection_between_drop_and_undrop_takes_no_row(db: ml.Database) -> None:
    db.sql("ALTER TABLE t MODIFY SETTING gc_grace_seconds = 0")
    db.sql("OPTIMIZE TABLE t FINAL")
    db.sql("CREATE TABLE c CLONE AS t")
    for _ in range(3):
        db.sql("DROP TABLE t")
        for _ in range(4):
            db.warehouse.gc()
        db.sql("UNDROP TABLE t")
        for _ in range(4):
            db.warehouse.gc()
        assert db.sql("CHECK TABLE t").rows()[0][1] == 1
        assert _sum(db) == _sum(db, "c") == (30, 435)


# -- single parts ----------------------------------------------------------------------------------


def test_a_part_is_dropped_and_another_detached_and_attached_again(db: ml.Database) -> None:
    db.sql("ALTER TABLE t DROP PART 'all_2_2_0'")
    assert _sum(db) == (20, 45 + 245)
    db.sql("ALTER TABLE t DETACH PART 'all_3_3_0'")
    assert _sum(db) == (10, 45)
    db.sql("ALTER TABLE t ATTACH PART 'all_3_3_0'")
    assert _sum(db) == (20, 290)
    assert db.table("t").parts()["name"].to_pylist() == ["all_1_1_0", "all_4_4_0"]
    db.sql("OPTIMIZE TABLE t FINAL")
    assert _sum(db) == (20, 290)
    db.sql("ALTER TABLE t DETACH PART 'all_1_4_2'")
    with pytest.raises(MergelakeError, match="allow_drop_detached") as refused:
        db.sql("ALTER TABLE t DROP DETACHED PART 'all_1_4_2'")
    assert refused.value.code == 344
    db.sql("SET allow_drop_detached = 1")
    db.sql("ALTER TABLE t DROP DETACHED PART 'all_1_4_2'")
    assert _sum(db) == (0, 0)
    assert all(report.clean for _, report in db.warehouse.fsck())


def test_parts_that_are_not_there_are_refused_as_clickhouse_does(db: ml.Database) -> None:
    for statement, code in {
        "DROP PART 'all_9_9_0'": 232,
        "DETACH PART 'all_1_1_1'": 232,
        "DROP PART 'x'": 233,
        "DROP PART 5": 62,
        "DROP PART all_1_1_0": 62,
        "ATTACH PART 'all_1_1_0'": 233,
    }.items():
        with pytest.raises(MergelakeError) as caught:
            db.sql(f"ALTER TABLE t {statement}")
        assert caught.value.code == code, statement
    assert _sum(db) == (30, 435)


def test_a_dropped_part_can_be_inserted_again_with_its_token(db: ml.Database) -> None:
    for token in ("a", "b"):
        db.table("t").append({"k": [50], "s": [token]}, dedup_token=token)
    db.sql("ALTER TABLE t DROP PART 'all_4_4_0'")
    assert not db.table("t").append({"k": [50], "s": ["a"]}, dedup_token="a").duplicate
    assert db.table("t").append({"k": [50], "s": ["b"]}, dedup_token="b").duplicate
    assert _sum(db) == (32, 535)


def test_what_a_node_means_to_merge_with_a_dropped_part_is_given_up(db: ml.Database, tmp_path: Path) -> None:
    db.sql("CREATE TABLE v (k UInt64) ENGINE = MergeTree ORDER BY k SETTINGS merge_upload_policy = 'volatile'")
    for n in range(8):
        db.sql(f"INSERT INTO v VALUES ({n})")
    node = db.warehouse.node(local=str(tmp_path / "disk"))
    while node.step() or not node.idle():
        pass
    assert db.table("v").merges().num_rows
    db.sql("ALTER TABLE v DROP PART 'all_2_2_0'")
    assert db.table("v").merges().num_rows == 0
    while node.step() or not node.idle():
        pass
    node.drain()
    assert _sum(db, "v") == (7, 27)


def test_the_states_of_all_versions_are_the_same_by_checking_and_by_folding(db: ml.Database) -> None:
    db.sql("ALTER TABLE t DROP PART 'all_2_2_0'")
    db.sql("DROP TABLE t")
    db.sql("UNDROP TABLE t")
    db.sql("ALTER TABLE t DETACH PART 'all_4_4_1'")
    state = State()
    for entry in db.table("t").handle.log.entries():
        after = step(state, entry)
        assert after == TableMachine().fold(state, [entry])
        assert TableMachine().decode(TableMachine().encode(after), "") == after
        state = after


# -- reading makes nothing -------------------------------------------------------------------------


@pytest.mark.parametrize("there", [False, True])
def test_reading_where_no_warehouse_is_makes_none_and_says_so(
    tmp_path: Path, there: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none"
    if there:
        path.mkdir()
    db = ml.connect(str(path))
    assert db.tables() == []
    assert db.databases() == ["default"]
    assert db.sql("SELECT 1").rows() == [(1,)]
    assert db.sql("SHOW TABLES").rows() == []
    for statement in (
        "SELECT * FROM t",
        "DESCRIBE t",
        "SHOW CREATE TABLE t",
        "INSERT INTO t VALUES (1)",
        "DROP TABLE t",
    ):
        with pytest.raises(NotFoundError):
            db.sql(statement)
    for read in (lambda: db.table("t"), lambda: db.sql("SELECT * FROM t")):
        with pytest.raises(NotFoundError, match="no warehouse at"):
            read()
    db.sql("DROP TABLE IF EXISTS t")
    assert list(db.warehouse.gc()) == list(db.warehouse.fsck()) == []
    of_table = ("parts", "history", "check", "merges", "optimize", "tag")
    for command in (["tables"], ["gc"], ["fsck"], *([verb, "t"] for verb in of_table)):
        with pytest.raises(SystemExit) as ended:
            app([command[0], str(path), *command[1:]])
        assert ended.value.code == 1
        assert "no warehouse at" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        app(["log", "verify", str(path), "t"])
    assert ended.value.code == 1
    assert path.exists() == there
    if there:
        assert list(path.iterdir()) == []
    db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    assert ml.connect(str(path)).tables() == ["t"]


def test_a_node_where_no_warehouse_is_waits_for_one(tmp_path: Path) -> None:
    path = tmp_path / "none"
    ran = subprocess.run(
        [sys.executable, "-m", "mergelake.api.cli", "node", str(path), "--once"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert not path.exists()


# -- collection never leaves the warehouse ---------------------------------------------------------


def test_collection_deletes_nothing_behind_a_symbolic_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / ("a" * 32)).mkdir(parents=True)
    (outside / ("a" * 32) / "data").write_bytes(b"precious")
    (outside / "file").write_bytes(b"precious")
    root = tmp_path / "warehouse"
    db = ml.connect(str(root))
    for name in ("t", "u"):
        db.sql(f"CREATE TABLE {name} (k UInt64) ENGINE = MergeTree ORDER BY k {KEEP_NOTHING}")
        db.sql(f"INSERT INTO {name} VALUES (1)")
    for folder in (root, *(root / db.table(name).handle.directory for name in ("t", "u"))):
        (folder / ("b" * 32)).symlink_to(outside)
        (folder / ("c" * 32)).symlink_to(outside / ("a" * 32))
        for inner in ("_log", "_gc"):
            if folder != root:
                (folder / inner).mkdir(exist_ok=True)
                (folder / inner / "link").symlink_to(outside)
                (folder / inner / "00000000000000000000-00000000000000-objects-x.json").symlink_to(outside / "file")
    db.sql("OPTIMIZE TABLE t FINAL")
    db.sql("DROP TABLE u")
    for _ in range(10):
        db.warehouse.gc()
    assert (outside / "file").read_bytes() == (outside / ("a" * 32) / "data").read_bytes() == b"precious"
    assert _sum(db) == (1, 1)
