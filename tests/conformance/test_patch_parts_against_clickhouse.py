"""Patch parts of ClickHouse (lightweight UPDATE and DELETE): `read_part` gives the rows that ClickHouse shows.

By hand: MERGELAKE_CONFORMANCE=long draws some hundred histories.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.base.errors import CorruptDataError, MergelakeError, UnsupportedError
from mergelake.core.types.types import DataType, parse_type
from mergelake.parts.tools import public
from mergelake.parts.tools.public import PartData
from mergelake.parts.tools.verify import check_part
from mergelake.store.open import open_store
from tests.helpers.blocks import select
from tests.helpers.clickhouse_tables import data_path, part_paths
from tests.helpers.random_patches import History, rows
from tests.helpers.rounds import rounds
from tests.unit.api.cli.test_commands import run

KINDS: dict[str, DataType] = {"k": parse_type("UInt32"), "v": parse_type("Nullable(Int32)"), "s": parse_type("String")}
IDS = "enable_block_number_column = 1, enable_block_offset_column = 1, min_bytes_for_full_part_storage = 0"


@pytest.fixture
def table(oracle: Any) -> Iterator[str]:
    """Two parts of 500 rows; merges are stopped."""
    yield from _table(oracle, "ORDER BY k", f"{IDS}, index_granularity = 100")


def _table(oracle: Any, clauses: str, settings: str) -> Iterator[str]:
    name = "patches"
    oracle.query(f"DROP TABLE IF EXISTS {name}")
    columns = ", ".join(f"{column} {kind}" for column, kind in KINDS.items())
    oracle.query(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree {clauses} SETTINGS {settings}")
    oracle.query(f"SYSTEM STOP MERGES {name}")
    for first in (0, 500):
        oracle.query(f"INSERT INTO {name} SELECT number + {first}, number, toString(number) FROM numbers(500)")
    yield name
    oracle.query(f"DROP TABLE {name}")


def _delete(oracle: Any, table: str, where: str) -> None:
    oracle.query(f"DELETE FROM {table} WHERE {where} SETTINGS lightweight_delete_mode = 'lightweight_update_force'")


def _paths(oracle: Any, table: str, *, patches: bool) -> list[Path]:
    return [p for n, p in sorted(part_paths(oracle, table).items()) if n.startswith("patch-") == patches]


def _parts(oracle: Any, table: str, *columns: str, **options: Any) -> list[PartData]:
    return [ml.read_part(str(path), columns or None, **options) for path in _paths(oracle, table, patches=False)]


def _found(oracle: Any, table: str, *columns: str, **options: Any) -> list[str]:
    return rows(pa.concat_tables([part.storage() for part in _parts(oracle, table, *columns, **options)]))


def _shown(oracle: Any, table: str, settings: str = "") -> list[str]:
    return rows(select(oracle, f"SELECT * FROM {table}{settings}", KINDS))


@pytest.mark.parametrize("seed", range(rounds(10, 400)))
def test_random_updates_deletes_mutations_and_merges(oracle: Any, seed: int) -> None:
    history = History(oracle, seed)
    steps = history.random.randint(3, 14)
    for step in range(steps):
        history.step()
        if step % 4 == 3 or step == steps - 1 or history.ended:
            assert rows(history.found()) == rows(history.expected())
            if not history.background:
                plain = history.expected(" SETTINGS apply_patch_parts = 0")
                assert rows(history.found(patches=False)) == rows(plain)
        if history.ended:
            break


def test_the_newest_value_of_each_column_counts(oracle: Any, table: str) -> None:
    oracle.query(f"UPDATE {table} SET v = 1000, s = 'first' WHERE k < 300")
    oracle.query(f"UPDATE {table} SET s = 'second' WHERE k >= 200")
    oracle.query(f"UPDATE {table} SET v = NULL WHERE k % 3 = 0")
    _delete(oracle, table, "k % 7 = 0")
    oracle.query(f"UPDATE {table} SET v = v + 1 WHERE k % 2 = 0")
    assert _found(oracle, table) == _shown(oracle, table)
    assert _found(oracle, table, patches=False) == _shown(oracle, table, " SETTINGS apply_patch_parts = 0")
    assert sum(part.rows for part in _parts(oracle, table)) == len(_shown(oracle, table))
    assert sum(part.rows for part in _parts(oracle, table, "s")) == len(_shown(oracle, table))
    for part in _parts(oracle, table):
        batches = list(part.batches(batch_rows=100))
        assert len(batches) == 5
        assert pa.Table.from_batches(batches).equals(part.arrow())
        assert pa.table(part).equals(part.arrow())  # an Arrow stream
    texts = _found(oracle, table, "s")
    assert (len(texts), set(texts)) == (857, {"(b'first',)", "(b'second',)"})


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_rows_of_merged_parts_are_found_by_their_block(oracle: Any, version: str) -> None:
    """A merge that does not apply the patches: they name the sources of the merged part."""
    settings = f"{IDS}, apply_patches_on_merge = 0, patch_parts_version = '{version}'"
    for name in _table(oracle, "ORDER BY k % 10", settings):
        oracle.query(f"UPDATE {name} SET v = 7 WHERE k % 5 = 0")
        oracle.query(f"SYSTEM START MERGES {name}")
        oracle.query(f"OPTIMIZE TABLE {name} FINAL")
        oracle.query(f"UPDATE {name} SET v = 8 WHERE k % 3 = 0")
        _delete(oracle, name, "k % 2 = 0")
        (part,) = _parts(oracle, name)
        assert part.name == "all_1_2_1"
        assert list(part.types) == ["k", "v", "s"]
        assert _found(oracle, name) == _shown(oracle, name)
        assert check_part(part.part) == []
        with_ids = part.part.read(["_block_number"])
        assert {number for batch in with_ids for number in batch.column(0).to_pylist()} == {1, 2}


def test_what_a_mutation_wrote_down_is_not_applied_again(oracle: Any, table: str) -> None:
    oracle.query(f"UPDATE {table} SET v = 1 WHERE k < 10")
    oracle.query(f"SYSTEM START MERGES {table}")
    oracle.query(f"ALTER TABLE {table} UPDATE v = v + 5 WHERE k < 5 SETTINGS mutations_sync = 2")
    oracle.query(f"ALTER TABLE {table} DELETE WHERE k = 2 SETTINGS mutations_sync = 2")
    oracle.query(f"DELETE FROM {table} WHERE k = 3")
    assert all("_row_exists" in part.part.layout.columns for part in _parts(oracle, table)[:1])
    oracle.query(f"UPDATE {table} SET v = v + 100 WHERE k < 7")
    _delete(oracle, table, "k = 6")
    assert _found(oracle, table) == _shown(oracle, table)
    first = _parts(oracle, table)[0].arrow().to_pylist()
    assert [(row["k"], row["v"]) for row in first[:6]] == [(0, 106), (1, 106), (4, 106), (5, 101), (7, 1), (8, 1)]


def test_a_part_that_got_another_block_number(oracle: Any, table: str) -> None:
    """ClickHouse does not read the block numbers in such a part any more, and neither do we."""
    oracle.query(f"SYSTEM START MERGES {table}")
    oracle.query(f"OPTIMIZE TABLE {table} FINAL")
    oracle.query("DROP TABLE IF EXISTS moved")
    oracle.query(f"CREATE TABLE moved AS {table}")
    oracle.query("INSERT INTO moved VALUES (5000, 1, 'own')")
    oracle.query(f"ALTER TABLE moved ATTACH PARTITION tuple() FROM {table}")
    oracle.query("UPDATE moved SET v = -1 WHERE k % 4 = 0")
    (part,) = (part for part in _parts(oracle, "moved") if part.rows == 1000)
    assert part.part.has_column("_block_number")
    assert _found(oracle, "moved") == _shown(oracle, "moved")
    oracle.query("DROP TABLE moved")


def test_a_dropped_patch_part_is_not_applied(oracle: Any, table: str, tmp_path: Path) -> None:
    """An empty one takes its place; the files of the old one may stay for some minutes."""
    oracle.query(f"UPDATE {table} SET v = 1 WHERE k < 10")
    (patch,) = _paths(oracle, table, patches=True)
    shutil.copytree(patch, tmp_path / patch.name)
    oracle.query(f"ALTER TABLE {table} DROP PART '{patch.name}'")
    shutil.copytree(data_path(oracle, table), tmp_path, dirs_exist_ok=True)
    assert len(list(tmp_path.glob("patch-*"))) == 2
    found = [ml.read_part(str(tmp_path / name)).storage() for name in ("all_1_1_0", "all_2_2_0")]
    assert rows(pa.concat_tables(found)) == _shown(oracle, table)


def test_a_patch_part_shows_its_columns(oracle: Any, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    oracle.query(f"UPDATE {table} SET v = 1, s = 'x' WHERE k IN (3, 4)")
    _delete(oracle, table, "k = 700")
    found = {}
    for path in _paths(oracle, table, patches=True):
        part = ml.read_part(str(path))
        found |= {"deleted" if "_row_exists" in part.types else "updated": part.arrow().to_pylist()}
        assert part.rows == part.arrow().num_rows
        assert check_part(part.part) == []
        assert run("part", "inspect", str(path), "--check") == 0
        assert run("check-part", str(path)) == 0
    ids = {"_part": "all_1_1_0", "_part_data_version": 3, "_block_number": 1}
    assert found["updated"] == [{"k": k, "v": 1, "s": "x", **ids, "_block_offset": k} for k in (3, 4)]
    ids = {"_part": "all_2_2_0", "_part_data_version": 5, "_block_number": 2}
    assert found["deleted"] == [{"k": 700, **ids, "_row_exists": 0, "_block_offset": 200}]
    capsys.readouterr()
    first, second = _paths(oracle, table, patches=False)
    for path, own in ((first, "updated"), (second, "deleted")):
        assert run("part", "inspect", str(path), "--format", "json") == 0
        facts = json.loads(capsys.readouterr().out)
        (name,) = facts["patches"]
        assert (own == "deleted") == ("_row_exists" in ml.read_part(str(path.parent / name)).types)
        assert facts["rows"] == 500


def test_a_part_lacks_the_column_of_a_patch_part(oracle: Any, table: str) -> None:
    oracle.query(f"ALTER TABLE {table} ADD COLUMN c Int8 DEFAULT v % 5")
    oracle.query(f"UPDATE {table} SET v = 6 WHERE k = 1")
    oracle.query(f"UPDATE {table} SET c = 9 WHERE k = 1")
    first, second = _paths(oracle, table, patches=False)
    for columns in (None, ["k", "c"]):
        with pytest.raises(UnsupportedError, match=r"Only the patch part patch-.* has column c of .*APPLY PATCHES"):
            ml.read_part(str(first), columns)
    assert ml.read_part(str(first), ["k", "v"]).arrow().to_pylist()[1] == {"k": 1, "v": 6}
    assert ml.read_part(str(second)).arrow().num_rows == 500
    assert ml.read_part(str(first), patches=False).arrow().num_rows == 500


def test_a_key_column_that_older_parts_lack_is_no_change(oracle: Any, table: str) -> None:
    oracle.query(f"ALTER TABLE {table} ADD COLUMN k2 UInt8, MODIFY ORDER BY (k, k2)")
    oracle.query(f"UPDATE {table} SET v = 6 WHERE k % 2 = 1")
    assert "k2" in ml.read_part(str(_paths(oracle, table, patches=True)[0])).types
    shown = rows(select(oracle, f"SELECT k, v, s FROM {table}", KINDS))
    assert _found(oracle, table) == shown


def test_an_enum_may_have_more_values_in_patch_parts(oracle: Any) -> None:
    oracle.query("DROP TABLE IF EXISTS enums")
    oracle.query(f"CREATE TABLE enums (k UInt8, e Enum8('a' = 1)) ENGINE = MergeTree ORDER BY k SETTINGS {IDS}")
    oracle.query("INSERT INTO enums VALUES (1, 'a'), (2, 'a')")
    oracle.query("ALTER TABLE enums MODIFY COLUMN e Enum8('a' = 1, 'b' = 2)")
    oracle.query("UPDATE enums SET e = 'b' WHERE k = 2")
    (part,) = _parts(oracle, "enums")
    assert part.arrow().to_pylist() == [{"k": 1, "e": "a"}, {"k": 2, "e": "b"}]
    oracle.query("DROP TABLE enums")


def test_a_table_of_ours_gets_the_patched_rows(oracle: Any, table: str) -> None:
    oracle.query(f"UPDATE {table} SET v = 6, s = 'new' WHERE k % 2 = 1")
    _delete(oracle, table, "k % 10 = 0")
    db = ml.connect("memory://patched")
    db.sql("CREATE TABLE t (k UInt32, v Nullable(Int32), s String) ENGINE = MergeTree ORDER BY k")
    for part in _parts(oracle, table):
        db.table("t").append(part)
    counts = "SELECT count(), countIf(v = 6), countIf(s = 'new'), min(k) FROM"
    (row,) = db.sql(f"{counts} t").arrow().to_pylist()
    assert list(row.values()) == [900, 500 + _unchanged(oracle, table), 500, 1]
    assert str(oracle.query(f"{counts} {table}", "CSV")).strip() == ",".join(map(str, row.values()))


def _unchanged(oracle: Any, table: str) -> int:
    return int(str(oracle.query(f"SELECT countIf(v = 6 AND s != 'new') FROM {table}", "TSV")))


def test_parts_in_a_bucket_are_patched_after_one_more_listing(
    oracle: Any, table: str, s3_url: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle.query(f"UPDATE {table} SET v = 6 WHERE k % 2 = 1")
    store = open_store(s3_url, s3_options)
    for path in [*_paths(oracle, table, patches=False), *_paths(oracle, table, patches=True)]:
        for file in path.iterdir():
            store.put(f"{path.name}/{file.name}", file.read_bytes())
    parts = [ml.read_part(f"{s3_url}/{name}", options=s3_options) for name in ("all_1_1_0", "all_2_2_0")]
    assert rows(pa.concat_tables([part.storage() for part in parts])) == _shown(oracle, table)
    monkeypatch.setattr(public, "open_store", lambda *_: store)
    for patched in (True, False):
        before = store.counters
        ml.read_part(f"{s3_url}/all_1_1_0", options=s3_options, patches=patched)
        assert (store.counters - before).list == 1 + patched


def _rows_or_problem(part: Path, columns: list[str] | None) -> tuple[list[str], str]:
    try:
        return rows(ml.read_part(str(part), columns).storage()), ""
    except MergelakeError as problem:
        return [], str(problem)


@pytest.mark.parametrize("wide_bytes", [0, 1 << 30], ids=["wide", "compact"])
def test_damage_of_a_patch_part_is_told_with_its_name(oracle: Any, table: str, tmp_path: Path, wide_bytes: int) -> None:
    """Whatever byte is wrong or file is missing: the patched rows or an error, never others."""
    oracle.query(f"ALTER TABLE {table} MODIFY SETTING min_bytes_for_wide_part = {wide_bytes}")
    oracle.query(f"UPDATE {table} SET v = 6, s = 'new' WHERE k % 50 = 1")
    folder = tmp_path / "table"
    shutil.copytree(data_path(oracle, table), folder)
    (patch,) = folder.glob("patch-*")
    want = rows(ml.read_part(str(folder / "all_1_1_0")).storage())
    told = 0
    for file in sorted(patch.iterdir()):
        whole = file.read_bytes()
        broken = [bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]]) for at in range(0, len(whole), 19)]
        for body in [None, b"", *broken]:
            file.unlink()
            if body is not None:
                file.write_bytes(body)
            for columns in (None, list(KINDS)):
                found, problem = _rows_or_problem(folder / "all_1_1_0", columns)
                assert found == want or patch.name in problem, (file.name, problem)
                told += bool(problem)
            file.write_bytes(whole)
    assert told > 50
    (patch / "source_parts.dat").unlink()
    with pytest.raises(CorruptDataError, match=r"source_parts\.dat"):
        ml.read_part(str(folder / "all_2_2_0"))
    assert ml.read_part(str(folder / "all_2_2_0"), patches=False).rows == 500
    assert run("part", "inspect", str(folder / "all_2_2_0")) == 1
    shutil.rmtree(patch)
    assert ml.read_part(str(folder / "all_1_1_0")).rows == 500


def test_a_granule_of_sparse_values_that_was_written_in_pieces(oracle: Any) -> None:
    """A merge of parts one after the other writes the end of one and the begin of the next into one granule."""
    oracle.query("DROP TABLE IF EXISTS sparse")
    settings = "min_bytes_for_wide_part = 0, ratio_of_defaults_for_sparse_serialization = 0.5"
    oracle.query(
        f"CREATE TABLE sparse (k UInt32, p UInt32, s String) ENGINE = MergeTree ORDER BY k SETTINGS {settings}"
    )
    for first, count in ((0, 43), (43, 27), (70, 50)):
        values = "number % 40 = 42, if(number = 26, 'last', '')"
        oracle.query(f"INSERT INTO sparse SELECT number + {first}, {values} FROM numbers({count})")
    oracle.query("OPTIMIZE TABLE sparse FINAL")
    (path,) = part_paths(oracle, "sparse").values()
    part = ml.read_part(str(path))
    assert (path / "s.sparse.idx.bin").exists() or (path / "p.sparse.idx.bin").exists()
    assert rows(part.storage()) == rows(select(oracle, "SELECT * FROM sparse", part.types))
    assert check_part(part.part) == []
    oracle.query("DROP TABLE sparse")
