"""Projections written here are ClickHouse's: attached, checked, and used with right answers."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.manifest import ProjectionPart
from mergelake.engines.projections.projections import NAMED_FUNCTIONS, table_projections
from mergelake.format.files.checksums import decode_checksums
from mergelake.parts.read.listing import plain_files
from mergelake.parts.write import rewrite
from mergelake.parts.write.projected import WrittenProjection, projection_entries
from tests.helpers.clickhouse_tables import CLASSIC, attach, part_paths
from tests.helpers.projections import FOREIGN, UNCERTAIN, body, draw_projection, draw_rows, lines, question

FIRST, END = int(os.environ.get("PROJECTIONS_FIRST", "0")), int(os.environ.get("PROJECTIONS_END", "4"))
_UNUSED = "optimize_use_projections=0, optimize_use_implicit_projections=0"
_IFS = (
    "sumIf(v, k > 100)", "countIf(v > 3)", "avgIf(n, v < 0)", "maxIf(s, v % 3 = 1)", "minIf(ns, k % 2 = 0)",
    "sumIf(n, v > 50)", "countIf(n IS NULL)", "sumIf(f, v = 2)", "groupBitOrIf(u, v > 90)",
)  # fmt: skip
_CALLS = (
    "uniq(b)", "quantile(0.90)(a)", "quantile(1.0)(b)", "quantiles(0.5, 0.99)(b + 1)", "topK(3)(s)", "median(b)",
    "medianExactIf(b, a > 2)", "max_by(s, b)", "argMax((s, b), a)", "count(DISTINCT s)", "countDistinctIf(s, a = 3)",
    "STDDEV_POP(b)", "std(a)", "sumIf(b, a > 2 AND b < 3)", "sum(b) FILTER (WHERE a > 2)", "sum(DISTINCT b)",
    "groupArrayInsertAt('x', 3)(s, a)", "groupArray(10)(s)", "array_agg(n)", "groupConcat(s)", "any_value(s)",
    "last_value_respect_nulls(n)", "approx_top_count(2)(s)", "sumMap(arr, arr)", "sumMapFiltered([1, 2])(arr, arr)",
    "uniqCombined64(14)(d)", "quantilesExactWeighted(0.1)(b, a)", "histogram(3)(b)", "sumOrNullIf(b, n > 1)",
)  # fmt: skip
_OF_DATES = ("toYear", "toMonth", "toYYYYMM", "toYYYYMMDD", "toMonday", "toDate")
_NEWER = ("columns_substreams.txt", "serialization.json")
"""Small files that parts of newer versions have, and that we do not write in the classic profile."""
_CHANGES = (
    "ALTER TABLE t UPDATE v = v + 1 WHERE k % 3 = 0", "ALTER TABLE t UPDATE s = 'new', n = NULL WHERE v > 50",
    "ALTER TABLE t DELETE WHERE k % 5 = 2", "DELETE FROM t WHERE v < -50", "ALTER TABLE t UPDATE f = 1.5 WHERE 1",
    "ALTER TABLE t UPDATE u = u + 3, d = '2026-05-05' WHERE k > 1000", "DELETE FROM t WHERE k = 7",
)  # fmt: skip


def _order(projections: list[str]) -> str:
    """The table's key: rows of inserts follow one another by `k`, so merges copy them."""
    return "k" if len(projections[0]) % 2 else "(lc, k)"


def _parts(db: ml.Database, table: str) -> Any:
    handle = db.table(table).handle
    return handle, list(handle.log.state.parts())


def _check(oracle: Any, db: ml.Database, projections: list[str], engine: str) -> None:
    """Attach all parts of table `t` of `db` in the oracle; compare what is in them and what it answers."""
    oracle.query("DROP TABLE IF EXISTS theirs SYNC")
    mode = "" if engine == "MergeTree" else ", deduplicate_merge_projection_mode='rebuild'"
    order = _order(projections)
    create = f"CREATE TABLE {{}} ({body(projections)}) ENGINE = {engine} ORDER BY {order}"
    oracle.query(f"{create.format('theirs')} SETTINGS max_parts_to_merge_at_once = 1{mode}")
    oracle.query("SYSTEM STOP MERGES theirs")
    handle, parts = _parts(db, "t")
    for part in parts:
        attach(oracle, "theirs", part.name, handle.store, handle.directory, part.manifest)
    listed = lines(
        oracle, "SELECT DISTINCT name FROM system.projection_parts WHERE table='theirs' AND active ORDER BY 1"
    )
    assert listed == [f"p{at}" for at in range(len(projections))]
    broken = "SELECT name, exception FROM system.projection_parts WHERE table='theirs' AND active AND is_broken"
    assert lines(oracle, broken) == []
    assert lines(oracle, "CHECK TABLE theirs SETTINGS check_query_single_value_result=1") == ["1"]
    # What ClickHouse itself makes of the rows of each part.
    oracle.query("DROP TABLE IF EXISTS own SYNC")
    oracle.query(f"{create.format('own')}{mode and ' SETTINGS ' + mode[2:]}")
    oracle.query("SYSTEM STOP MERGES own")
    for name in sorted(part_paths(oracle, "theirs")):
        oracle.query(f"INSERT INTO own SELECT * FROM theirs WHERE _part = '{name}'")
    columns = "SELECT DISTINCT name, column, type FROM system.projection_parts_columns WHERE active AND table='{}'"
    columns += " ORDER BY ALL"
    assert lines(oracle, columns.format("theirs")) == lines(oracle, columns.format("own"))
    rows = "SELECT name, sum(rows) FROM system.projection_parts WHERE table='{}' AND active GROUP BY 1 ORDER BY 1"
    assert lines(oracle, rows.format("theirs")) == lines(oracle, rows.format("own"))
    for at, text in enumerate(projections):
        asked = question(text, "theirs")
        wanted = f"force_optimize_projection_name='p{at}', preferred_optimize_projection_name='p{at}'"
        used = f"{asked} SETTINGS {wanted}, optimize_use_implicit_projections=0"
        try:
            actual = lines(oracle, used)
        except Exception as refused:  # which projection is used depends on the others, and on what they cost
            if "PROJECTION_NOT_USED" not in str(refused) and "INCORRECT_DATA" not in str(refused):
                raise
            continue
        assert actual == lines(oracle, f"{asked} SETTINGS {_UNUSED}"), text


@pytest.mark.parametrize("seed", range(FIRST, END))
def test_projections_of_inserts_and_merges_are_used_by_clickhouse(
    oracle: Any, tmp_path: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "REWRITTEN_WHOLE_BYTES", 0)
    draw = random.Random(seed)
    engine = draw.choice(["MergeTree", "MergeTree", "ReplacingMergeTree"])
    projections = [draw_projection(draw) for _ in range(3)]
    wide = draw.choice([0, 1 << 30])
    settings = [f"min_bytes_for_wide_part={wide}", "merge_max_chunk_bytes=200000"]
    settings.append("lightweight_mutation_projection_mode='rebuild'")
    if draw.random() < 0.5:
        settings.append("part_profile='modern'")
    if engine != "MergeTree":
        settings.append("deduplicate_merge_projection_mode='rebuild'")
    db = ml.connect(str(tmp_path))
    order = _order(projections)
    if draw.random() < 0.3:
        settings += ["min_bytes_to_split_merge=1000", "merge_slice_bytes=20000"]
    text = f"CREATE TABLE t ({body(projections)}) ENGINE = {engine} ORDER BY {order} SETTINGS {', '.join(settings)}"
    print(text)
    db.sql(text)
    for number in range(3):
        db.sql(f"INSERT INTO t {draw_rows(draw, draw.choice([1, 100, 9000]), number * draw.choice([50, 10000]))}")
        if number == 1:
            _check(oracle, db, projections, engine)
    for statement in draw.sample(_CHANGES, 2):
        db.sql(statement)
    db.table("t").apply_mutations()
    assert all(db.table("t").check()["is_passed"].to_pylist())
    _check(oracle, db, projections, engine)
    db.sql("OPTIMIZE TABLE t FINAL")
    _check(oracle, db, projections, engine)


def test_files_of_projections_are_those_that_clickhouse_writes(oracle: Any, tmp_path: Any) -> None:
    projections = [
        "SELECT v % 7, sum(k), count(), max(s), avg(n), min(ns) GROUP BY v % 7",
        "SELECT * ORDER BY s, k",
        "SELECT d, lc, count(), any(k) GROUP BY d, lc",
        f"SELECT v % 3, {', '.join(_IFS)} GROUP BY v % 3",
        f"SELECT v % 5, lc, {', '.join((*FOREIGN, *UNCERTAIN))} GROUP BY v % 5, lc",
    ]
    rows = draw_rows(random.Random(5), 20_000)
    create = f"CREATE TABLE {{}} ({body(projections)}) ENGINE = MergeTree ORDER BY k SETTINGS "
    oracle.query("DROP TABLE IF EXISTS theirs SYNC")
    oracle.query(create.format("theirs") + CLASSIC)
    oracle.query(f"INSERT INTO theirs {rows} SETTINGS max_threads = 1")
    (path,) = part_paths(oracle, "theirs").values()
    db = ml.connect(str(tmp_path))
    db.sql(create.format("t") + "min_bytes_for_full_part_storage = 0")
    db.sql(f"INSERT INTO t {rows}")
    handle, (part,) = _parts(db, "t")
    written = plain_files(handle.store, handle.directory, part.manifest)
    ours = {name: b"".join(map(bytes, chunks)) for name, chunks in written}
    theirs = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    own = {name for name in ours if ".proj/" in name and not name.endswith("checksums.txt")}
    assert own == {
        name
        for name in theirs
        if ".proj/" in name and name.rpartition("/")[2] not in ("metadata_version.txt", "checksums.txt", *_NEWER)
    }
    assert [name for name in sorted(own) if ours[name] != theirs[name]] == []
    # The entry of a projection in `checksums.txt` is made of what its own lists.
    listed = decode_checksums(theirs["checksums.txt"])
    for at in range(len(projections)):
        facts = ProjectionPart("", 0, 0)
        inner = WrittenProjection(facts, decode_checksums(theirs[f"p{at}.proj/checksums.txt"]))
        assert projection_entries({f"p{at}": inner}) == {f"p{at}.proj": listed[f"p{at}.proj"]}


def test_a_projection_has_the_place_of_each_row_in_its_part(
    oracle: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "REWRITTEN_WHOLE_BYTES", 0)
    db = ml.connect(str(tmp_path))
    create = "CREATE TABLE {} (k UInt32, v UInt32, s String, PROJECTION p (SELECT v, _part_offset ORDER BY v))"
    create += " ENGINE = MergeTree ORDER BY k SETTINGS "
    settings = "min_bytes_for_wide_part=0, min_bytes_for_full_part_storage=0, merge_max_chunk_bytes=3000"
    db.sql(create.format("t") + settings + ", lightweight_mutation_projection_mode='rebuild'")

    def check(*rows: int) -> None:
        oracle.query("DROP TABLE IF EXISTS theirs SYNC")
        oracle.query(create.format("theirs") + "max_parts_to_merge_at_once = 1")
        handle, parts = _parts(db, "t")
        assert [part.manifest.projections["p"].rows if part.manifest.projections else 0 for part in parts] == list(rows)
        for part in parts:
            attach(oracle, "theirs", part.name, handle.store, handle.directory, part.manifest)
        assert lines(oracle, "CHECK TABLE theirs SETTINGS check_query_single_value_result=1") == ["1"]
        held = "SELECT v, _parent_part_offset, _part FROM mergeTreeProjection(currentDatabase(), 'theirs', 'p')"
        real = "SELECT v, _part_offset, _part FROM theirs"
        assert not any(rows) or lines(oracle, f"{held} ORDER BY ALL") == lines(
            oracle, f"{real} ORDER BY ALL SETTINGS {_UNUSED}"
        )
        asked = "SELECT k, v, s FROM {} WHERE v = 77 ORDER BY ALL"
        assert lines(oracle, asked.format("theirs")) == lines(oracle, f"{asked.format('theirs')} SETTINGS {_UNUSED}")

    for number in range(2):
        db.sql(f"INSERT INTO t SELECT number * {number + 1}, cityHash64(number, {number}) % 400, '' FROM numbers(500)")
    db.sql("ALTER TABLE t UPDATE s = 'x' WHERE k < 50")  # it has no part in the projection
    db.table("t").apply_mutations()
    check(500, 500)
    db.sql("ALTER TABLE t UPDATE v = 77 WHERE k % 30 = 0")
    db.table("t").apply_mutations()
    check(500, 500)
    db.sql("OPTIMIZE TABLE t FINAL")
    check(1000)
    db.sql("DELETE FROM t WHERE k = 14")
    db.table("t").apply_mutations()
    check(0)  # the mask hides rows that have places
    db.sql("ALTER TABLE t DELETE WHERE k = 16")
    db.table("t").apply_mutations()
    check(996)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT p, k ORDER BY s",
        "SELECT k, s ORDER BY p",
        "SELECT s, any(p) GROUP BY s",
        "SELECT p, count() GROUP BY p",
        "SELECT p, any(p) GROUP BY p",
        "SELECT k, count() GROUP BY k",
    ],
)
def test_the_error_of_a_projection_comes_before_that_of_a_key(query: str, oracle: Any) -> None:
    db = ml.connect("memory://keyed")
    columns = f"p Int8, k Int32, s String, PROJECTION q ({query})"
    create = f"CREATE OR REPLACE TABLE keyed ({columns}) ENGINE = MergeTree PARTITION BY p ORDER BY k"
    oracle.query(create)
    db.sql(create)
    for kind in ("Int16", "UUID", "Array(Int8)", "String"):
        alter = f"ALTER TABLE keyed MODIFY COLUMN p {kind}"
        with pytest.raises(RuntimeError) as theirs:
            oracle.query(alter)
        with pytest.raises(MergelakeError) as ours:
            db.sql(alter)
        assert str(theirs.value).startswith(f"Code: {ours.value.code}."), (str(theirs.value), str(ours.value))
    oracle.query("DROP TABLE keyed")


def test_columns_and_keys_are_called_as_clickhouse_calls_them(oracle: Any) -> None:
    db = ml.connect("memory://names")
    types = "k UInt32, a UInt8, b Int16, s String, d Date, t DateTime, n Nullable(UInt8), arr Array(UInt8)"
    forms = {"plus": "a + b", "minus": "a - 1", "multiply": "a * 2", "negate": "-a", "modulo": "a % 3"}
    forms |= {"equals": "a = 3", "notEquals": "b != 2", "less": "a < 2", "lessOrEquals": "a <= 2", "greater": "a > 2"}
    forms |= {
        "greaterOrEquals": "a >= 2",
        "isNull": "n IS NULL",
        "isNotNull": "n IS NOT NULL",
        "intDiv": "intDiv(a, 2)",
        "and": "a > 2 AND b < 3 AND a < 9",
        "or": "a > 2 OR b",
        "not": "NOT a",
        "tuple": "(a, s)",
    }
    of_times = ("toHour", "toMinute", "toStartOfDay", "toStartOfHour", "toStartOfMinute")
    of_texts = ("lower", "upper", "length", "cityHash64", "empty", "notEmpty")

    def called(function: str) -> str:
        if function in forms:
            return forms[function]
        dates = function.startswith("to") and ("Of" in function or function in _OF_DATES)
        column = "t" if function in of_times else "s" if function in of_texts else "d" if dates else "b"
        return f"{function}({column})"

    keys = [called(function) for function in sorted(NAMED_FUNCTIONS)]
    queries = [f"SELECT {', '.join(keys)}, count() GROUP BY {', '.join(keys)}"]
    queries += [f"SELECT sum({key}), max({key}) GROUP BY a" for key in ("a + b", "-a", "b % 3", "length(s)", "a = 3")]
    queries += [
        "SELECT b, a, count() GROUP BY a, b",
        "SELECT count(), sum(k), b % 3, a GROUP BY a, b % 3",
        "SELECT a, sum(k) + count() AS z, max(b) GROUP BY a",
        "WITH 3 AS m SELECT a % m, count(*) GROUP BY a % m",
        "SELECT toDate(k) AS x, countIf(a > 2) GROUP BY x, a",
        "SELECT s = 'abc', count(1) GROUP BY s = 'abc'",
        f"SELECT a, {', '.join(_CALLS)} GROUP BY a",
    ]
    for query in queries:
        create = f"CREATE TABLE {{}} ({types}, PROJECTION p ({query})) ENGINE = MergeTree ORDER BY k"
        oracle.query("DROP TABLE IF EXISTS theirs SYNC")
        oracle.query(create.format("theirs"))
        oracle.query("INSERT INTO theirs (k) VALUES (1)")
        listed = "SELECT column, type FROM system.projection_parts_columns WHERE active AND table = 'theirs'"
        theirs = str(oracle.query(f"{listed} ORDER BY column_position", "TSVRaw")).splitlines()
        db.sql("DROP TABLE IF EXISTS t")
        db.sql(create.format("t"))
        (own,) = table_projections(db.table("t").schema)
        assert [f"{column.name}\t{column.type}" for column in own.schema.columns] == theirs, query
        sorted_by = "SELECT arrayStringConcat(sorting_key, '|') FROM ({})"
        keyed = "SELECT sorting_key FROM system.projections WHERE table = '{}'"
        wanted = str(oracle.query(sorted_by.format(keyed.format("theirs")), "TSVRaw")).strip()
        assert db.sql(sorted_by.format(keyed.format("t"))).scalar() == wanted, query
