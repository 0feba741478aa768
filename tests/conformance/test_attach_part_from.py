"""Parts of ClickHouse's are taken in from their directories, or refused before anything is written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from tests.helpers.clickhouse_tables import part_paths

COLUMNS = "p Int8, k Int64, s LowCardinality(String), n Nullable(Decimal(9, 2))"
TAIL = "ENGINE = MergeTree PARTITION BY p ORDER BY (k, s) SETTINGS index_granularity = 100"


@pytest.fixture(scope="module", params=["min_bytes_for_wide_part = 0", "min_bytes_for_wide_part = '10Gi'"])
def parts(request, oracle, tmp_path_factory) -> Any:
    """Directories of parts, as FREEZE leaves them."""
    oracle.query("DROP TABLE IF EXISTS given SYNC")
    oracle.query(f"CREATE TABLE given ({COLUMNS}) {TAIL}, {request.param}, min_bytes_for_full_part_storage = 0")
    values = "number % 3 - 1, number * 7 % 1000, toString(number % 5), if(number % 4 = 0, NULL, number / 4)"
    oracle.query(f"INSERT INTO given SELECT {values} FROM numbers(3000)")
    oracle.query("ALTER TABLE given UPDATE n = 77 WHERE k % 10 = 0 SETTINGS mutations_sync = 2")
    oracle.query("DELETE FROM given WHERE k % 11 = 0 SETTINGS lightweight_deletes_sync = 2")
    folder = tmp_path_factory.mktemp("frozen")
    return [shutil.copytree(path, folder / name) for name, path in sorted(part_paths(oracle, "given").items())]


def table_of(name: str, columns: str = COLUMNS, tail: str = TAIL) -> Any:
    db = ml.connect(f"memory://attach-from-{name}")
    db.sql(f"DROP TABLE IF EXISTS t; CREATE TABLE t ({columns}) {tail}")
    return db.table("t")


def test_rows_are_those_of_clickhouse_once(oracle, parts):
    table = table_of("rows")
    for path in [*parts, *parts]:
        table.attach_part_from(str(path), dedup_token=path.name)
    expected = str(oracle.query("SELECT * FROM given ORDER BY ALL", "TSV"))
    assert ml.connect("memory://attach-from-rows").sql("SELECT * FROM t ORDER BY ALL").text("TSV") == expected
    assert len(list(table.handle.refresh().parts())) == len(parts) == 3


def test_what_does_not_fit_or_is_damaged_is_refused(parts, tmp_path):
    def broken(name: str, file: str, change: Any) -> Path:
        path = shutil.copytree(parts[0], tmp_path / name / parts[0].name)
        change(next(path.glob(file)))
        return path

    def flip(file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)

    good = parts[0]
    for name, path, table in (
        ("NO_SUCH_DATA_PART", tmp_path / "none_1_1_0", table_of("bad-0")),
        ("INCOMPATIBLE_COLUMNS", good, table_of("type", COLUMNS.replace("Int64", "Int32"))),
        ("INCOMPATIBLE_COLUMNS", good, table_of("less", COLUMNS.replace(", n Nullable(Decimal(9, 2))", ""))),
        ("CORRUPTED_DATA", good, table_of("partition", tail=TAIL.replace("PARTITION BY p", "PARTITION BY k % 2"))),
        ("CORRUPTED_DATA", good, table_of("order", tail=TAIL.replace("(k, s)", "(s, k)"))),
        ("BAD_SIZE_OF_FILE_IN_DATA_PART", broken("cut", "*.bin", lambda f: f.write_bytes(f.read_bytes()[:-5])),
         table_of("bad-1")),
        ("BAD_SIZE_OF_FILE_IN_DATA_PART", broken("gone", "*.bin", Path.unlink), table_of("bad-2")),
        ("CORRUPTED_DATA", broken("flipped", "*.bin", flip), table_of("bad-3")),
        ("CHECKSUM_DOESNT_MATCH", broken("sums", "checksums.txt", flip), table_of("bad-4")),
        ("NO_FILE_IN_DATA_PART", broken("columns", "columns.txt", Path.unlink), table_of("bad-5")),
    ):  # fmt: skip
        version, objects = table.version, {meta.key for meta in table.handle.store.list("")}
        with pytest.raises(MergelakeError) as refused:
            table.attach_part_from(str(path))
        assert refused.value.name == name, (path, refused.value)
        assert table.refresh() == version
        assert {meta.key for meta in table.handle.store.list("")} == objects
