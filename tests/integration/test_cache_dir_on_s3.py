"""A cache directory under everything that reads a bucket: what was read costs no request, in another process too."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.query import in_place, table_source
from mergelake.query.attach import attached
from mergelake.query.attach.attached import AttachedSets
from mergelake.query.attach.part_files import PartFiles
from mergelake.query.embedded import engine
from mergelake.query.select import run_select
from mergelake.store import Store
from mergelake.store.cache.cached import CachedStore, beneath

ROWS = 30_000
QUERIES = (
    "SELECT s, count(), sum(k), avg(f) FROM t GROUP BY s ORDER BY s",
    "SELECT k, s, m, f FROM t WHERE m LIKE '%77%' ORDER BY k, m LIMIT 50",
    "SELECT * FROM t WHERE k = 12346 ORDER BY s, m",
    "SELECT count(), max(m) FROM t FINAL WHERE f > 100",
    "SELECT k, m FROM t ORDER BY k DESC, m LIMIT 10",
)
CREATE = (
    "CREATE TABLE t (k UInt64, s LowCardinality(String), m String, f Float64) ENGINE = ReplacingMergeTree "
    "ORDER BY k SETTINGS min_bytes_for_full_part_storage = 300000"
)
SCRIPT = """
import json, sys
import mergelake as ml
from mergelake.query.attach import attached
from mergelake.query import table_source
url, options, queries = json.loads(sys.argv[1])
attached.ROWS_MIN, table_source.FINAL_ROWS_MIN = 1000, 0
db = ml.connect(url, options)
store = db.warehouse.store
for query in queries:
    for _ in range(3):
        before = store.counters
        rows = db.sql(query).rows()
        used = store.counters - before
        print(json.dumps([query, repr(rows), used.details.get("get data", 0), used.cached, used.bytes_get]))
"""


@pytest.fixture(autouse=True)
def _attach_small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached, "ROWS_MIN", 1000)
    monkeypatch.setattr(table_source, "FINAL_ROWS_MIN", 0)
    monkeypatch.setattr(attached, "SETS", AttachedSets())


@pytest.fixture
def cached(s3_options: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return {**s3_options, "cache_dir": str(tmp_path / "cache")}


@pytest.fixture
def db(s3_url: str, s3_options: dict[str, str]) -> ml.Database:
    """Without a cache."""
    db = ml.connect(s3_url, s3_options)
    db.sql(CREATE)
    for number in range(3):
        db.sql(
            f"INSERT INTO t SELECT number * 2 + {number}, toString(number % 7), hex(sipHash64(number)), number / 8 "
            f"FROM numbers({ROWS})"
        )
    for number in range(12):  # small ones
        db.sql(f"INSERT INTO t (k, s, m) SELECT number, 'small', '{number}' FROM numbers(20)")
    return db


def _in_another_process(url: str, options: dict[str, str]) -> list[list[Any]]:
    given = json.dumps([url, options, QUERIES])
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, given], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_a_second_process_asks_for_nothing_of_the_parts(
    db: ml.Database, s3_url: str, s3_options: dict[str, str], cached: dict[str, str]
) -> None:
    without = _in_another_process(s3_url, s3_options)
    first, second = (_in_another_process(s3_url, cached) for _ in range(2))
    assert [line[:2] for line in first] == [line[:2] for line in without] == [line[:2] for line in second]
    assert sum(line[2] for line in first) <= sum(line[2] for line in without)
    assert sum(line[4] for line in first) <= sum(line[4] for line in without)
    assert sum(line[2] for line in first) > 0
    assert [line[2] for line in second] == [0] * len(second)
    assert sum(line[3] for line in second) > 0
    secrets = (s3_options["secret_access_key"].encode(), s3_options["access_key_id"].encode())
    for path in Path(cached["cache_dir"]).rglob("*"):
        assert path.is_dir() or not any(secret in path.read_bytes() for secret in secrets)


def test_scans_merges_and_new_commits_see_the_bucket_as_it_is(
    db: ml.Database, s3_url: str, cached: dict[str, str]
) -> None:
    other = ml.connect(s3_url, cached)
    for query in QUERIES:
        assert other.sql(query).rows() == db.sql(query).rows()
    db.sql("INSERT INTO t (k, s, m) VALUES (12346, 'news', 'n')")
    assert ("news",) in [row[1:2] for row in other.sql(QUERIES[2]).rows()]
    other.sql("OPTIMIZE TABLE t FINAL")
    for query in QUERIES:
        assert other.sql(query).rows() == db.sql(query).rows()
    assert other.table("t").scan().arrow().sort_by("k") == db.table("t").scan().arrow().sort_by("k")


def _damage(store: Store, damage: str) -> None:
    """Harm an object with data of the column `m`."""
    meta = next(meta for meta in store.list("") if meta.key.endswith("/m.bin"))
    body = bytearray(store.get(meta.key))
    if damage == "flipped":
        body[len(body) // 2] ^= 0xFF
    if damage == "lost":
        store.delete([meta.key])
    else:
        store.put(meta.key, bytes(body[:-7] if damage == "cut" else body))


@pytest.mark.parametrize("damage", ["flipped", "cut", "lost"])
def test_damage_in_the_bucket_is_seen_behind_a_warm_cache(
    db: ml.Database, s3_url: str, cached: dict[str, str], damage: str
) -> None:
    warm = ml.connect(s3_url, cached)
    whole = warm.table("t").scan().arrow()
    _damage(beneath(db.warehouse.store), damage)
    again = ml.connect(s3_url, cached)
    before = again.warehouse.store.counters
    assert again.table("t").scan().arrow() == whole
    assert (again.warehouse.store.counters - before).details.get("get data", 0) == 0
    found = [finding for _, report in again.warehouse.fsck("t") for finding in report.findings]
    assert [finding.kind for finding in found] == ([] if damage == "flipped" else ["object"])
    checked = again.sql("CHECK TABLE t SETTINGS check_query_single_value_result = 0").rows()
    assert [row[1] for row in checked].count(0) == 1
    kept = again.table("t").scan().arrow()
    assert kept == whole  # nothing is wrong with what this machine has


def test_bytes_that_were_damaged_on_their_way_are_fetched_again(
    db: ml.Database, s3_url: str, cached: dict[str, str]
) -> None:
    store = db.warehouse.store
    whole = db.table("t").scan().arrow()
    meta = next(meta for meta in store.list("") if meta.key.endswith("/m.bin"))
    right = store.get(meta.key)
    store.put(meta.key, right[:1000] + bytes([right[1000] ^ 0xFF]) + right[1001:])
    with pytest.raises(MergelakeError, match=r"m\.bin"):
        ml.connect(s3_url, cached).table("t").scan().arrow()
    store.put(meta.key, right)
    assert ml.connect(s3_url, cached).table("t").scan().arrow() == whole


def test_a_version_whose_parts_were_collected(db: ml.Database, s3_url: str, cached: dict[str, str]) -> None:
    """All of its rows while everything is at hand, the error of a store without a cache otherwise; never a part."""
    warm = ml.connect(s3_url, cached)
    version = warm.table("t").version
    old = "SELECT count(), sum(k), max(m) FROM t AS OF VERSION {}"
    right = warm.sql(old.format(version)).rows()
    keys = {meta.key for meta in db.warehouse.store.list("")}
    db.sql("ALTER TABLE t MODIFY SETTING history_retention_seconds = 0, gc_grace_seconds = 0, checkpoint_interval = 4")
    db.sql("TRUNCATE TABLE t")
    for number in range(10):
        db.sql(f"INSERT INTO t (k) VALUES ({number})")
    for _ in range(4):
        db.warehouse.gc()
    gone = keys - {meta.key for meta in db.warehouse.store.list("")}
    assert any(key.endswith("/m.bin") for key in gone)

    def said(database: ml.Database) -> str:
        try:
            return str(database.sql(old.format(version)).rows())
        except MergelakeError as problem:
            return problem.name

    bare = said(ml.connect(s3_url, dict(cached, cache_dir="")))
    assert isinstance(ml.connect(s3_url, cached).warehouse.store, CachedStore)
    assert said(ml.connect(s3_url, cached)) in (bare, str(right))
    assert said(warm) in (bare, str(right))
    print(bare, said(ml.connect(s3_url, cached)), said(warm))


def test_clickhouse_reads_the_parts_by_itself(db: ml.Database, s3_url: str, cached: dict[str, str]) -> None:
    other = ml.connect(s3_url, cached)
    reasons = [run_select(QUERIES[0], other.resolver(), other.context()).stats.reason for _ in range(3)]
    assert reasons[-1] == in_place.READS_ITSELF
    folder = engine.folder()
    assert folder is not None
    files = [path for path in (folder / "cache" / "mergelake").rglob("*") if path.is_file()]
    assert files
    assert stat.S_IMODE((folder / "cache").stat().st_mode) == 0o700


def test_a_new_version_finds_what_clickhouse_kept_of_the_parts_that_stayed(
    db: ml.Database, s3_url: str, cached: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other, asked = ml.connect(s3_url, cached), []
    real = PartFiles.pieces
    monkeypatch.setattr(PartFiles, "pieces", lambda *given: asked.append(given[1]) or real(*given))
    query = "SELECT count(), sum(k), max(m) FROM t FINAL"
    for _ in range(3):
        other.sql(query)
    before = {path for path in asked if path.endswith(".bin")}
    assert before
    other.sql("INSERT INTO t SELECT number, 'more', '', 1 FROM numbers(30000)")
    asked.clear()
    for _ in range(3):
        other.sql(query)
    assert asked  # it was attached anew
    assert not before & set(asked)


def test_the_command_line_takes_it(db: ml.Database, s3_url: str, cached: dict[str, str]) -> None:
    given = [word for name, value in cached.items() for word in ("-o", f"{name}={value}")]
    command = [sys.executable, "-m", "mergelake.api.cli.main", "sql", "-d", s3_url, "-q", "SELECT sum(k) FROM t"]
    ran = subprocess.run([*command, *given], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert str(db.sql("SELECT sum(k) FROM t").rows()[0][0]) in ran.stdout
    assert any(path.is_file() for path in Path(cached["cache_dir"]).glob("mergelake-1/*/*"))
    refused = subprocess.run(
        [*command, *given, "-o", "cache_bytes=much"], capture_output=True, text=True, timeout=120, check=False
    )
    assert refused.returncode != 0
    assert "not a whole number" in refused.stderr
