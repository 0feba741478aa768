"""INSERT … FROM INFILE stores what ClickHouse stores of the same file, or is refused as there.

By hand: MERGELAKE_CONFORMANCE=long draws some thousands.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import numpy as np
import pytest
import zstandard

import mergelake
from mergelake.api.sql.infile import format_of_path
from mergelake.core.base.errors import MergelakeError
from mergelake.core.types import types as t
from mergelake.core.types.types import parse_type
from mergelake.query.embedded.engine import translate
from tests.conformance.test_insert_json_against_clickhouse import STRICTER, Case
from tests.helpers.inserted import held_by_clickhouse, held_here
from tests.helpers.oracle import oracle
from tests.helpers.rounds import rounds

pytestmark = pytest.mark.chdb
FORMATS = [
    *(
        "CSV",
        "CSVWithNames",
        "TSV",
        "TSVWithNames",
        "TSKV",
        "JSONEachRow",
        "JSON",
        "CSVWithNamesAndTypes",
        "JSONCompactEachRowWithNames",
    ),
    *("Values", "Parquet", "Native", "Arrow", "ORC", "Avro", "RowBinary", "RowBinaryWithNames", "MsgPack"),
]
TYPES = [
    *("UInt8", "Int16", "Int64", "UInt64", "Float64", "String", "Date", "Date32", "DateTime", "DateTime64(3)"),
    *("Nullable(Int32)", "Nullable(String)", "LowCardinality(String)", "Decimal(9, 2)", "Bool", "FixedString(3)"),
    *("Array(UInt16)", "Array(Nullable(Int64))", "Array(String)", "UUID", "IPv4", "Int128"),
]
DEFAULTS = {"UInt8": "k % 7", "Int64": "-5", "String": "concat('d', toString(k))", "Nullable(Int32)": "42"}
THREE = "(k UInt32, a UInt8 DEFAULT k % 200, b String DEFAULT concat('d', toString(k)), c Nullable(Int32) DEFAULT 7)"
KINDS = [parse_type(kind) for kind in ("UInt32", "UInt8", "String", "Nullable(Int32)")]


def compared(columns: str, kinds: list[t.DataType], data: str, count: int) -> tuple[object, object]:
    """What either holds: columns, or the name of an error."""
    theirs = held_by_clickhouse(columns, kinds, data, count)
    ours = held_here(columns, kinds, data, external=True)
    return (ours.name if isinstance(ours, MergelakeError) else ours), theirs


@pytest.mark.parametrize("block", range(rounds(3, 100)))
def test_random_objects_of_a_file(tmp_path: Path, block: int) -> None:
    path = tmp_path / "rows.jsonl"
    for seed in range(block * 12 + 5000, block * 12 + 5012):
        case = Case(seed)
        path.write_bytes(case.data.encode("utf-8", "surrogateescape"))
        ours, theirs = compared(case.columns, case.kinds, f"FROM INFILE '{path}' FORMAT JSONEachRow", case.count)
        stricter = str(ours) in STRICTER or "null" in case.data  # NULL where none may be becomes a default there
        refused = isinstance(ours, str) and (isinstance(theirs, str) or stricter)
        laxer = theirs == "CANNOT_PARSE_NUMBER" and "-0" in case.data  # an unsigned number is read as a wide signed one
        assert refused or laxer or ours == theirs, (
            f"seed {seed}: {case.columns} {case.data}: {ours}, in ClickHouse {theirs}"
        )


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("seed", range(rounds(2, 60)))
def test_random_files_of_any_format_with_columns_left_out(tmp_path: Path, format_name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = [TYPES[i] for i in rng.integers(len(TYPES), size=int(rng.integers(2, 7)))]
    if format_name in ("Avro", "MsgPack", "ORC", "Arrow"):  # these have not all types
        kinds = [kind for kind in kinds if kind in ("Int64", "Float64", "String", "Nullable(Int32)")] or ["String"]
    columns = [f"c{i}" for i in range(len(kinds))]
    given = [name for name in columns if rng.random() < 0.7]
    path = tmp_path / f"rows.{format_name}"
    shape = ", ".join(f"{name} {kind}" for name, kind in zip(columns, kinds, strict=True))
    chosen = ", ".join(["number::UInt32 AS k", *given])
    oracle().query(
        f"INSERT INTO FUNCTION file('{path}', '{format_name}') SELECT {chosen} FROM "
        f"(SELECT *, rowNumberInAllBlocks() AS number FROM generateRandom('{shape}', {seed}, 4, 3) LIMIT 9)"
    )
    defaults = {kind: f" DEFAULT {DEFAULTS[kind]}" for kind in kinds if kind in DEFAULTS}
    named = [f"{name} {kind}{defaults.get(kind, '')}" for name, kind in zip(columns, kinds, strict=True)]
    table = f"(k UInt32, {', '.join(named)})"
    by_name = any(
        word in format_name for word in ("Names", "JSON", "TSKV", "Parquet", "Native", "Arrow", "ORC", "Avro")
    )
    listed = "" if by_name and seed % 2 else f"({', '.join(['k', *given])}) "
    infile = f"FROM INFILE '{path}' COMPRESSION 'none' FORMAT {format_name}"
    parsed = [parse_type(kind) for kind in ("UInt32", *kinds)]
    ours = held_here(table, parsed, f"{listed}{infile}", external=True)
    theirs = held_by_clickhouse(table, parsed, f"{listed}{infile}", 9)
    if isinstance(ours, MergelakeError):
        assert ours.name == theirs, f"{table} {listed}: {ours}"
    assert ours == theirs or isinstance(ours, MergelakeError), f"{table} {listed}"


@pytest.mark.parametrize(
    ("format_name", "data"),
    [
        ("CSV", '1,,"",\n2,3,,\\N\n3,4,x,5\n'),
        ("CSV", "1,2,x,3\n\n2,,,\n"),
        ("CSV", '"k","a","b","c"\n5,,,\n'),
        ("CSVWithNames", "k,b\n1,\n2,x\n"),
        ("CSVWithNames", "c,k\n,1\n4,2\n"),
        ("TSV", "1\t2\tx\t\\N\n"),
        ("TSVWithNames", "b\tk\nx\t1\n\t2\n"),
        ("JSONEachRow", '{"k":1}\n{"k":2,"a":5}{"k":3,"c":null,"b":""}'),
        ("JSONEachRow", '[{"k":1,"b":"x"},{"a":3,"k":7}]'),
        ("JSONCompactEachRowWithNames", '["k","c"]\n[1,null]\n[2,5]\n'),
        ("TSKV", "k=1\na=3\tk=2\n"),
        ("CSV", ""),
        ("JSONEachRow", ""),
        ("Values", "(1, 2, 'x', NULL), (2, DEFAULT, 'it''s', 3)"),
    ],
)
@pytest.mark.parametrize(
    "settings", ["", "input_format_csv_empty_as_default = 0", "input_format_defaults_for_omitted_fields = 0"]
)
def test_fields_and_cells_left_out_get_the_tables_defaults(
    tmp_path: Path, format_name: str, data: str, settings: str
) -> None:
    path = tmp_path / "given"
    path.write_text(data)
    infile = f"FROM INFILE '{path}' {f'SETTINGS {settings}' if settings else ''} FORMAT {format_name}"
    ours, theirs = compared(THREE, KINDS, infile, _rows_of(infile))
    # With this setting a DEFAULT among VALUES is the type's own, not the column's: refused.
    refused = format_name == "Values" and "omitted" in settings
    assert ours == ("NOT_IMPLEMENTED" if refused else theirs)


def _rows_of(infile: str) -> int:
    """How many rows ClickHouse makes of it; 0 for none that it takes."""
    try:
        oracle().query("DROP TABLE IF EXISTS counted")
        oracle().query(f"CREATE TABLE counted {THREE} ENGINE = MergeTree ORDER BY k")
        oracle().query(f"INSERT INTO counted {infile}")
        return int(str(oracle().query("SELECT count() FROM counted")))
    except Exception:
        return 0


@pytest.mark.parametrize(
    ("name", "content", "rest", "expected"),
    [
        ("x.csv", None, "FORMAT CSV", "FILE_DOESNT_EXIST"),
        ("x.unknown", b"1", "", "BAD_ARGUMENTS"),
        ("x.csv", b"1,2,x,3\n", "FORMAT Nosuch", "UNKNOWN_FORMAT"),
        ("x.csv", b"1,2,x,3\n", "COMPRESSION 'nosuch' FORMAT CSV", "NOT_IMPLEMENTED"),
        ("x.csv", b"1,two,x,3\n", "FORMAT CSV", "CANNOT_PARSE_INPUT_ASSERTION_FAILED"),
        ("x.csv", b"1,2\n", "FORMAT CSV", "CANNOT_PARSE_INPUT_ASSERTION_FAILED"),
        ("x.parquet", b"no parquet at all, and long enough", "", ""),
        ("x.native", b"\x01\x01\x01k\x07Strings", "", ""),
        ("x.csv.gz", b"not compressed", "", ""),
        ("x.jsonl", b'{"k":1,', "", ""),
        ("x.csv", b"1,2,x,3\n", "SETTINGS nosuch = 1 FORMAT CSV", "UNKNOWN_SETTING"),
        ("x.md", b"1", "", "FORMAT_IS_NOT_SUITABLE_FOR_INPUT"),
    ],
)
def test_wrong_files_have_clickhouses_errors(
    tmp_path: Path, name: str, content: bytes | None, rest: str, expected: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    ours, theirs = compared(THREE, KINDS, f"FROM INFILE '{path}' {rest}", 1)
    assert ours == theirs
    assert not expected or ours == expected


def _written(path: Path, compress: Callable[[bytes], bytes]) -> None:
    path.write_bytes(compress(b"1,2,x,3\n2,,,\n"))


@pytest.mark.parametrize(
    ("ending", "compress"),
    [
        ("gz", gzip.compress),
        ("xz", lzma.compress),
        ("zst", zstandard.ZstdCompressor().compress),
        ("lz4", lz4.frame.compress),
        ("bz2", bz2.compress),
        ("GZ", gzip.compress),
    ],
)
def test_compression_is_that_of_the_ending_or_the_one_that_is_named(
    tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"x.csv.{ending}"
    _written(path, compress)
    ours, theirs = compared(THREE, KINDS, f"FROM INFILE '{path}'", 2)
    assert ours == theirs
    other = tmp_path / "plain"
    _written(other, compress)
    word = {"zst": "zstd"}.get(ending.lower(), ending.lower())
    ours, theirs = compared(THREE, KINDS, f"FROM INFILE '{other}' COMPRESSION '{word}' FORMAT CSV", 2)
    assert ours == theirs


def test_endings_say_the_formats_that_they_say_to_clickhouse(tmp_path: Path) -> None:
    """Told apart by what each makes of one text."""
    for ending in ("csv", "tsv", "jsonl", "ndjson", "json", "native", "bin", "tskv", "foo", "tab", "x.gz", "CSV.zst"):
        path = tmp_path / f"f.{ending}"
        path.write_text("")
        try:
            oracle().query("DROP TABLE IF EXISTS counted")
            oracle().query(f"CREATE TABLE counted {THREE} ENGINE = MergeTree ORDER BY k")
            oracle().query(f"INSERT INTO counted FROM INFILE '{path}'")
            known = True
        except Exception as failure:
            known = translate(str(failure)).name != "BAD_ARGUMENTS"
        try:
            format_of_path(str(path))
            assert known, ending
        except MergelakeError:
            assert not known, ending


def test_wildcards_name_many_files_and_a_file_of_that_very_name_one(tmp_path: Path) -> None:
    for name in ("a", "b", "[1]*"):
        (tmp_path / f"{name}.csv").write_text(f"{len(name)},1,{name},2\n")
    ours, theirs = compared(THREE, KINDS, f"FROM INFILE '{tmp_path}/{{a,b}}.csv'", 2)
    assert ours == theirs
    assert compared(THREE, KINDS, f"FROM INFILE '{tmp_path}/no*.csv'", 0)[0] == ["[]"] * 4
    db = mergelake.connect("memory://wild", allow_external_access=True)
    db.sql(f"CREATE TABLE t {THREE} ENGINE = MergeTree ORDER BY k")
    db.sql(f"INSERT INTO t FROM INFILE '{tmp_path}/[1]*.csv'")
    assert db.sql("SELECT b FROM t").rows() == [("[1]*",)]


@pytest.mark.parametrize("format_name", ["CSV", "JSONEachRow", "Parquet", "Native"])
@pytest.mark.parametrize("value", ["300", "-1", "NULL::Nullable(UInt8)"])
def test_what_does_not_fit_is_refused_and_taken_only_on_request(tmp_path: Path, format_name: str, value: str) -> None:
    path = tmp_path / "given"
    oracle().query(f"INSERT INTO FUNCTION file('{path}', '{format_name}') SELECT 1::UInt32 AS k, {value} AS a")
    infile = f"FORMAT {format_name}"
    ours = held_here(THREE, KINDS, f"(k, a) FROM INFILE '{path}' {infile}", external=True)
    assert isinstance(ours, MergelakeError)
    settings = "insert_conversion = 'clickhouse'"
    ours = held_here(THREE, KINDS, f"(k, a) FROM INFILE '{path}' SETTINGS {settings} {infile}", external=True)
    theirs = held_by_clickhouse(THREE, KINDS, f"(k, a) FROM INFILE '{path}' {infile}", 1)
    assert (ours.name if isinstance(ours, MergelakeError) else ours) == theirs


def test_a_file_is_read_only_where_files_may_be(tmp_path: Path) -> None:
    db = mergelake.connect("memory://shut")
    db.sql(f"CREATE TABLE t {THREE} ENGINE = MergeTree ORDER BY k")
    with pytest.raises(MergelakeError, match="ACCESS_DENIED") as refused:
        db.sql(f"INSERT INTO t FROM INFILE '{tmp_path}/x.csv'")
    assert "allow_external_access=True" in refused.value.hint


def test_a_bad_row_at_the_end_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("".join(f"{i},1,x,2\n" for i in range(200_000)) + "bad\n")
    db = mergelake.connect(tmp_path / "w", allow_external_access=True)
    db.sql(f"CREATE TABLE t {THREE} ENGINE = MergeTree ORDER BY k SETTINGS max_insert_block_size = 10000")
    with pytest.raises(MergelakeError, match="CANNOT_PARSE"):
        db.sql(f"INSERT INTO t FROM INFILE '{path}'; SELECT 1")
    assert db.sql("SELECT count() FROM t").scalar() == 0
    path.write_text("".join(f"{i},1,x,2\n" for i in range(200_000)))
    db.sql(f"INSERT INTO t FROM INFILE '{path}'; SELECT 1")
    assert db.sql("SELECT count(), sum(k) FROM t").rows() == [(200_000, 199_999 * 100_000)]
    assert len(db.table("t").parts()) == 20
