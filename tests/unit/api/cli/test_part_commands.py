"""`part inspect` and `check-part` on directories of ours and of ClickHouse's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.types.types import parse_type
from tests.helpers.clickhouse_tables import create, part_paths
from tests.unit.api.cli.test_commands import run

DDL = """CREATE TABLE t (k UInt64 CODEC(Delta, ZSTD), d Date, s LowCardinality(String), a Array(UInt8))
ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY (s, k) SETTINGS index_granularity = 100"""


@pytest.fixture
def part(tmp_path: Path) -> Path:
    rows = {"k": list(range(1000)), "d": ["2026-01-05"] * 1000, "s": [f"s{i % 3}" for i in range(1000)]}
    (written,) = ml.write_part(rows, str(tmp_path), DDL)
    return Path(written.path)


def test_inspect_tells_a_person_what_lies_there(part: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("part", "inspect", str(part)) == 0
    shown = capsys.readouterr().out
    for text in (
        "202601_1_1_0 (Wide, .mrk2)", "1000 in 10 granules of 100 rows", "2026-01-05 to 2026-01-05", "s, k", "s0, 0",
        "s2, 998", "Delta, ZSTD", "LowCardinality(String)", "no problems", "primary.idx",
    ):  # fmt: skip
        assert text in shown


def test_inspect_as_json_has_every_file_and_column(part: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("part", "inspect", str(part), "--format", "json", "--check") == 0
    facts = json.loads(capsys.readouterr().out)
    assert {file["name"]: file["size"] for file in facts["files"]} == {f.name: f.stat().st_size for f in part.iterdir()}
    assert [(c["name"], c["codec"]) for c in facts["columns"]] == [
        ("k", "Delta, ZSTD"),
        ("d", "LZ4"),
        ("s", "LZ4"),
        ("a", "LZ4"),
    ]
    assert facts["key"] == ["s", "k"]
    assert (facts["first_key"], facts["last_key"]) == (["s0", "0"], ["s2", "998"])
    assert (facts["rows"], facts["marks"], facts["final_mark"], facts["problems"]) == (1000, 10, True, [])


@pytest.mark.parametrize("wide", ["0", "100000000"])
def test_inspect_and_check_read_what_clickhouse_wrote(
    oracle: Any, wide: str, capsys: pytest.CaptureFixture[str]
) -> None:
    types = {name: parse_type(kind) for name, kind in {"k": "UInt64", "s": "String", "v": "Nullable(Int8)"}.items()}
    create(oracle, "inspected", types, order_by="(s, k)", settings=f"min_bytes_for_wide_part={wide}")
    oracle.query("INSERT INTO inspected SELECT number, toString(number % 7), number FROM numbers(20000)")
    (path,) = part_paths(oracle, "inspected").values()
    assert run("part", "inspect", str(path), "--format", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["rows"], facts["part_type"]) == (20000, "Wide" if wide == "0" else "Compact")
    assert (facts["key"], facts["first_key"], facts["last_key"]) == (["s", "k"], ["0", "0"], ["6", "19998"])
    assert {column["codec"] for column in facts["columns"]} == {"LZ4"}
    assert run("check-part", str(path)) == 0


@pytest.mark.parametrize("wide", ["0", "100000000"])
def test_inspect_tells_indexes_projections_deleted_rows_and_the_sizes_of_columns(
    oracle: Any, wide: str, capsys: pytest.CaptureFixture[str]
) -> None:
    oracle.query("DROP TABLE IF EXISTS inspected")
    oracle.query(
        "CREATE TABLE inspected (k UInt64, n Nullable(Float64) CODEC(Gorilla, LZ4),"
        " INDEX mm n TYPE minmax GRANULARITY 2, INDEX `b f` k TYPE bloom_filter,"
        " PROJECTION p (SELECT n ORDER BY n)) ENGINE = MergeTree ORDER BY k"
        f" SETTINGS min_bytes_for_wide_part = {wide}, index_granularity = 100,"
        " lightweight_mutation_projection_mode = 'rebuild'"
    )
    oracle.query("INSERT INTO inspected SELECT number, number / 7 FROM numbers(1000)")
    oracle.query("DELETE FROM inspected WHERE k < 30 SETTINGS lightweight_deletes_sync = 2")
    (path,) = part_paths(oracle, "inspected").values()
    assert run("part", "inspect", str(path), "--format", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert [(i["name"], i["type"], i["granules"]) for i in facts["indexes"]] == [("b f", "", 10), ("mm", "minmax", 5)]
    assert [(p["name"], p["rows"], p["columns"]) for p in facts["projections"]] == [("p", 1000, ["n"])]
    assert (facts["rows"], facts["deleted_rows"]) == (1000, 30)
    number, nullable = facts["columns"][:2]
    assert (number["uncompressed_size"], nullable["uncompressed_size"]) == (8000, 9000)
    assert nullable["codec"] == "Gorilla, LZ4"
    assert 0 < nullable["size"] < 9000
    assert run("part", "inspect", str(path)) == 0
    assert "30 of them deleted by a mask" in capsys.readouterr().out


def test_a_key_that_could_be_either_of_two_columns_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ddl = "CREATE TABLE t (a UInt8, b UInt8) ENGINE = MergeTree ORDER BY b"
    (written,) = ml.write_part({"a": [1, 2], "b": [1, 2]}, str(tmp_path), ddl)
    assert run("part", "inspect", written.path, "--format", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["key"], facts["first_key"], facts["last_key"]) == (["?"], ["1"], ["2"])


def test_a_key_of_expressions_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ddl = "CREATE TABLE t (a UInt32) ENGINE = MergeTree ORDER BY cityHash64(a)"
    (written,) = ml.write_part({"a": [1, 2]}, str(tmp_path), ddl)
    assert run("part", "inspect", written.path, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["key"] == []


def test_check_part_ends_with_1_and_names_the_file(part: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check-part", str(part)) == 0
    data = bytearray((part / "k.bin").read_bytes())
    data[40] ^= 1
    (part / "k.bin").write_bytes(data)
    assert run("part", "inspect", str(part)) == 0  # the small files are whole
    capsys.readouterr()
    for arguments in (("check-part", str(part), "--format", "json"), ("part", "inspect", str(part), "--check")):
        assert run(*arguments) == 1
        told = capsys.readouterr()
        assert "k.bin" in told.out + told.err
    (part / "k.bin").write_bytes(data[:-1])
    assert run("check-part", str(part)) == 1
    assert "A file of the part has another size" in capsys.readouterr().out


def test_check_part_with_the_definition_verifies_order_and_partition(
    part: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ddl = tmp_path / "table.sql"
    ddl.write_text(DDL)
    assert run("check-part", str(part), "--ddl", str(ddl)) == 0
    ddl.write_text(DDL.replace("ORDER BY (s, k)", "ORDER BY (s DESC, k)"))
    capsys.readouterr()
    assert run("check-part", str(part), "--ddl", str(ddl)) == 1
    assert "not in order" in capsys.readouterr().out
    ddl.write_text("SELECT 1")
    assert run("check-part", str(part), "--ddl", str(ddl)) == 1


def test_a_part_that_is_not_there_is_an_error_with_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["part", "inspect"], ["check-part"]):
        assert run(*command, str(tmp_path / "all_1_1_0")) == 1
        assert "NO_SUCH_DATA_PART" in capsys.readouterr().err


def test_parts_in_a_bucket_are_written_inspected_and_checked(
    s3_url: str, s3_options: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (written,) = ml.write_part({"k": [2, 1], "d": ["2026-01-05"] * 2}, s3_url, DDL, options=s3_options)
    assert ml.read_part(written.path, ["k"], options=s3_options).arrow().to_pydict() == {"k": [1, 2]}
    options = [word for name, value in s3_options.items() for word in ("-o", f"{name}={value}")]
    assert run("check-part", written.path, *options) == 0
    capsys.readouterr()
    assert run("part", "inspect", f"{s3_url}/202601_1_1_0", "--format", "json", *options) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["location"] == f"{s3_url}/202601_1_1_0"


def test_masked_and_empty_parts_are_told_too(oracle: Any, capsys: pytest.CaptureFixture[str]) -> None:
    types = {"k": parse_type("UInt64"), "s": parse_type("String")}
    create(oracle, "masked", types, order_by="k", settings="min_bytes_for_wide_part=0, remove_empty_parts=0")
    oracle.query("INSERT INTO masked SELECT number, 'x' FROM numbers(10)")
    for statement, rows, columns in (
        ("DELETE FROM masked WHERE k = 0", list(range(1, 10)), ["k", "s", "_row_exists"]),
        ("ALTER TABLE masked DELETE WHERE 1 SETTINGS mutations_sync = 2", [], ["k", "s"]),
    ):
        oracle.query(statement)
        (path,) = part_paths(oracle, "masked").values()
        assert ml.read_part(str(path), ["k"]).arrow().column("k").to_pylist() == rows
        assert run("part", "inspect", str(path), "--format", "json", "--check") == 0
        facts = json.loads(capsys.readouterr().out)
        assert [column["name"] for column in facts["columns"]] == columns
        assert facts["key"] == []  # the row that the index names is gone
