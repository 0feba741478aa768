"""OPTIMIZE … DEDUPLICATE [BY …] and CLEANUP against ClickHouse, and in small pieces."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from mergelake.api.sql.database import connect
from mergelake.core.base.errors import MergelakeError

pytestmark = pytest.mark.chdb

COLUMNS = (
    "k Int8, p UInt8, f Float32, n Nullable(UInt8), s LowCardinality(String), t Tuple(a UInt8, b Array(UInt8)), "
    "sign Int8, ver UInt8, m UInt8 MATERIALIZED k % 2, z UInt8 ALIAS k"
)
KEYS = {
    "MergeTree": "k",
    "ReplacingMergeTree(ver)": "(k, s)",
    "CollapsingMergeTree(sign)": "k",
    "VersionedCollapsingMergeTree(sign, ver)": "(k, f)",
    "SummingMergeTree": "(k, s)",
}


def _rows(rng: random.Random) -> str:
    rows = []
    for _ in range(rng.choice((1, 5, 60))):
        cells = [
            str(rng.randrange(-2, 2)), str(rng.randrange(2)), rng.choice(("0", "-0.", "1.5", "nan")),
            rng.choice(("NULL", "0", "1")), rng.choice(("'a'", "''")), rng.choice(("(1, [])", "(1, [2])")),
            rng.choice(("1", "-1")), str(rng.randrange(2)),
        ]  # fmt: skip
        rows.append(f"({', '.join(cells)})")
    return ", ".join(rows)


@pytest.mark.parametrize("engine", [*KEYS, "MergeTree 2", "MergeTree 3"])
def test_equal_rows_are_removed_as_in_clickhouse(engine: str, oracle: Any, tmp_path: Path) -> None:
    rng, name = random.Random(engine), f"default.deduplicated_{re.sub(r'[^a-z0-9]', '', engine.lower())}"
    key = "tuple()" if engine.endswith("2") else KEYS.get(engine, "(k, f)")
    create = f"CREATE TABLE {{}} ({COLUMNS}) ENGINE = {engine.split(' ')[0] if engine[-1].isdigit() else engine}"
    create += f" PARTITION BY p ORDER BY {key}"
    db = connect(str(tmp_path))
    db.sql(
        f"{create.format('t')} SETTINGS merge_max_chunk_bytes = {rng.choice((300, 1 << 20))}, optimize_on_insert = 0"
    )
    oracle.query(f"DROP TABLE IF EXISTS {name}")
    oracle.query(create.format(name))
    needed = list(dict.fromkeys(["p", *re.findall(r"[a-z]\w*", key.replace("tuple", ""))]))
    if engine.startswith("Versioned"):
        needed.append("ver")
    lists = [", ".join([*needed, *more]) for more in ([], ["n"], ["t"], ["sign", "m"])]
    lists = [", ".join(dict.fromkeys(text.split(", "))) for text in lists]
    for by in ("", "BY *", "BY * EXCEPT (n, t, sign)", "BY COLUMNS('k|p|f|s|v')", *(f"BY {text}" for text in lists)):
        oracle.query(f"SYSTEM STOP MERGES {name}")
        for _ in range(2):
            values = f"(k, p, f, n, s, t, sign, ver) {{}} VALUES {_rows(rng)}"
            db.sql(f"INSERT INTO t {values.format('')}")
            oracle.query(f"INSERT INTO {name} {values.format('SETTINGS optimize_on_insert = 0')}")
        oracle.query(f"SYSTEM START MERGES {name}")
        oracle.query(f"OPTIMIZE TABLE {name} FINAL DEDUPLICATE {by}")
        db.sql(f"OPTIMIZE TABLE t FINAL DEDUPLICATE {by}")
        query = "SELECT toString(tuple(*, m)) AS row FROM {} ORDER BY row"
        assert db.sql(query.format("t")).text("TSV") == str(oracle.query(query.format(name), "TSV")), by
    oracle.query(f"DROP TABLE {name}")


@pytest.mark.parametrize(
    "clause",
    ["BY k", "BY nope", "BY k, p, k", "BY k, p, z", "BY * EXCEPT k", "BY COLUMNS('zz')", "BY *, k", "BY (k, p)",
     "BY k + 1", "BY k, p CLEANUP", "BY", "BY k, p,", "BY * REPLACE (1 AS k)"],
)  # fmt: skip
def test_wrong_lists_have_the_code_of_clickhouse(clause: str, oracle: Any) -> None:
    create = f"CREATE TABLE {{}} ({COLUMNS}) ENGINE = MergeTree PARTITION BY p ORDER BY k"
    db = connect(f"memory://{random.random()}")
    db.sql(create.format("t"))
    oracle.query("DROP TABLE IF EXISTS default.wrong_lists")
    oracle.query(create.format("default.wrong_lists"))
    for final in ("", "FINAL"):
        with pytest.raises(RuntimeError) as theirs:
            oracle.query(f"OPTIMIZE TABLE default.wrong_lists {final} DEDUPLICATE {clause}")
        with pytest.raises(MergelakeError) as ours:
            db.sql(f"OPTIMIZE TABLE t {final} DEDUPLICATE {clause}")
        assert f"Code: {ours.value.code}." in str(theirs.value)


@pytest.mark.parametrize("engine", ["ReplacingMergeTree(ver, del)", "ReplacingMergeTree(ver)", "MergeTree"])
@pytest.mark.parametrize("allowed", [0, 1])
@pytest.mark.parametrize("tail", ["FINAL CLEANUP", "PARTITION 1 FINAL CLEANUP", "CLEANUP", "FINAL DEDUPLICATE CLEANUP"])
def test_cleanup_removes_what_clickhouse_removes(engine: str, allowed: int, tail: str, oracle: Any) -> None:
    rng, name = random.Random(f"{engine} {tail}"), "default.cleaned"
    create = (
        f"CREATE TABLE {{}} (k UInt8, p UInt8, ver UInt8, del UInt8, s String) ENGINE = {engine} "
        f"PARTITION BY p ORDER BY k SETTINGS allow_experimental_replacing_merge_with_cleanup = {allowed}"
    )
    db = connect(f"memory://{random.random()}")
    db.sql(create.format("t"))
    oracle.query(f"DROP TABLE IF EXISTS {name}")
    oracle.query(create.format(name))
    oracle.query(f"SYSTEM STOP MERGES {name}")
    for _ in range(2):
        for p in (0, 1):
            rows = ", ".join(
                f"({rng.randrange(9)}, {p}, {rng.randrange(3)}, {rng.randrange(2)}, '{rng.choice('ab')}')"
                for _ in range(9)
            )
            db.sql(f"INSERT INTO t VALUES {rows}")
            oracle.query(f"INSERT INTO {name} VALUES {rows}")
    oracle.query(f"SYSTEM START MERGES {name}")
    ours = theirs = 0
    try:
        oracle.query(f"OPTIMIZE TABLE {name} {tail}")
    except RuntimeError as refused:
        theirs = int(re.findall(r"Code: (\d+)", str(refused))[0])
    try:
        db.sql(f"OPTIMIZE TABLE t {tail}")
    except MergelakeError as problem:
        ours = problem.code
    assert ours == theirs
    if tail == "CLEANUP":  # which partition is merged depends on when its parts were written
        return
    for final in ("", " FINAL") if engine != "MergeTree" else ("",):
        query = f"SELECT * FROM {{}}{final} ORDER BY ALL"
        assert db.sql(query.format("t")).text("TSV") == str(oracle.query(query.format(name), "TSV"))
