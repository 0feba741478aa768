"""Versions in flight: statements by what is attached while inserts, merges, drops and collection go on."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.query import select
from mergelake.query.attach import attached, attaching
from mergelake.query.attach.attached import AttachedSets
from mergelake.query.source import AsOf, ReadRequest

QUERY = "SELECT count(), sum(k), sum(cityHash64(v)), uniqExact(_part), max(w) FROM t"
THREADS, ROUNDS = 3, 15


def _scanned(db: Database, version: int) -> list[tuple[object, ...]]:
    """The answer by a scan."""
    context = db.context()
    source = db.resolver()("default", "t")
    assert source is not None
    found = source.at(AsOf(version))
    parts = found._part_set(ReadRequest(("k",)))  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AttachedSets, "why_not", lambda *_, **__: "asked for")
        rows = select.run_select(f"{QUERY} AS OF VERSION {version}", db.resolver(), context).table.to_pylist()
    assert rows[0]["count()"] == parts.rows
    return [tuple(row.values()) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("directory", 1), ("directory", 2), ("memory", 3), ("served", 4)])
def test_each_statement_sees_its_version_wholly(tmp_path: Path, monkeypatch, kind: str, seed: int) -> None:
    monkeypatch.setattr(attached, "ROWS_MIN", 0)
    monkeypatch.setattr(attached, "SETS", AttachedSets(sets_max=4))
    if kind == "served":
        monkeypatch.setattr(attaching, "COPIED_MAX", -1)
    url = "memory://versions" if kind == "memory" else str(tmp_path / "warehouse")
    db, draw = connect(url), random.Random(seed)
    plain = "SETTINGS min_bytes_for_full_part_storage = 0" if kind == "directory" else ""
    db.sql(
        "CREATE TABLE t (p Int8, k UInt64, v String, w LowCardinality(Nullable(String))) ENGINE = MergeTree "
        f"PARTITION BY p % 3 ORDER BY k {plain}"
    )
    answers: dict[int, list[tuple[object, ...]]] = {}
    failures: list[BaseException] = []
    versions: list[int] = []
    over = threading.Event()

    def ask(number: int) -> None:
        mine, pick = connect(url), random.Random(seed * 100 + number)
        try:
            while not over.is_set():
                if not versions:
                    continue
                version = pick.choice(versions[-12:])
                found = [tuple(row) for row in mine.sql(f"{QUERY} AS OF VERSION {version}").rows()]
                before = answers.setdefault(version, found)
                assert found == before, version
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    table = db.table("t")
    try:
        for _ in range(ROUNDS):
            what = draw.random()
            if what < 0.65:
                low = draw.randrange(1000)
                rows = f"SELECT number % 7 - 3, number + {low}, toString(number), if(number % 5, 'x', NULL)"
                db.sql(f"INSERT INTO t {rows} FROM numbers({draw.randrange(1, 300)})")
            elif what < 0.9:
                db.sql("OPTIMIZE TABLE t")
            elif what < 0.95:
                db.sql(f"ALTER TABLE t DROP PARTITION {draw.randrange(-2, 3)}")
            else:
                table.gc()
            versions.append(table.refresh())
    finally:
        over.set()
        for thread in threads:
            thread.join()
    attached.SETS.settle()
    assert not failures
    for version in sorted(set(versions)):  # those too that no thread happened to ask for
        found = [tuple(row) for row in db.sql(f"{QUERY} AS OF VERSION {version}").rows()]
        assert answers.get(version, found) == found == _scanned(db, version), version
