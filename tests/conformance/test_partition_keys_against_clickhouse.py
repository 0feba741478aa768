"""Tables partitioned by any expression over any type: ClickHouse's partitions, and a stock ClickHouse attaches them.

For each (type, key) of `tests.helpers.partition_keys` the same rows go into a ClickHouse table and into ours. Equal
must be: whether the key is taken (and the code of the refusal), the ids of the partitions and their rows,
`partition.dat` and `minmax_*.idx` byte for byte; and a ClickHouse that attaches what `publish` laid out sees the rows
of each partition.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mergelake.api.sql.parser import parse_one
from mergelake.api.sql.statements import CreateTable
from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import DataType, parse_type
from mergelake.jobs.publish.definition import create_statement
from mergelake.jobs.publish.publish import publish
from mergelake.parts.read.listing import plain_files
from mergelake.store import Store, open_store
from mergelake.table.definition.define import check_schema
from tests.helpers.blocks import insert
from tests.helpers.merging import SmallTable
from tests.helpers.partition_keys import CASES, key_rows
from tests.helpers.rounds import LONG

pytestmark = pytest.mark.chdb

ROWS = 24
UNSUPPORTED = tuple(f"{word} {code}" for word in ("unsupported", "refused") for code in (36, 43, 46, 48))
"""Keys that are refused here by name: functions that are not known, hashes of Nullable values, Arrays and Tuples."""


def create_text(name: str, kind: str, key: str) -> str:
    """The table, for both."""
    return (
        f"CREATE TABLE {name} (x {kind}, n UInt8, i Int32) ENGINE = MergeTree "
        f"PARTITION BY {key} ORDER BY tuple() SETTINGS allow_nullable_key = 1"
    )


def code_of(problem: BaseException) -> str:
    """The code of a refusal, ours or ClickHouse's."""
    found = re.search(r"Code: (\d+)", str(problem))
    return found.group(1) if found else repr(problem)


def theirs(oracle: Any, folder: Path, name: str, kind: str, key: str) -> Any:
    """Partition id -> (rows, small files) of the ClickHouse table, or the code of its refusal."""
    oracle.query(f"DROP TABLE IF EXISTS {name}")
    try:
        oracle.query(create_text(name, kind, key))
        oracle.query(f"SYSTEM STOP MERGES {name}")
        insert(oracle, name, key_rows(kind, ROWS, zlib.crc32(f"{kind} {key}".encode())), types_of(kind), folder)
    except RuntimeError as problem:
        return code_of(problem)
    found = {}
    query = f"SELECT partition_id, rows, path FROM system.parts WHERE table = '{name}' AND active"
    for line in str(oracle.query(f"{query} AND database = currentDatabase()", "TSV")).splitlines():
        partition, rows, path = line.split("\t")
        if not Path(path).exists():  # of Nullable(IPv4) it names partitions '1.2.3.4', quotes and dots included
            oracle.query(f"DROP TABLE {name} SYNC")
            return "unnamed"
        files = {
            f.name: f.read_bytes() for f in Path(path).iterdir() if f.name.startswith(("partition.dat", "minmax_"))
        }
        found[partition] = (int(rows), files)
    oracle.query(f"DROP TABLE {name} SYNC")
    return found


def types_of(kind: str) -> dict[str, DataType]:
    """The columns of every table."""
    return {"x": parse_type(kind), "n": parse_type("UInt8"), "i": parse_type("Int32")}


def ours(store: Store, name: str, kind: str, key: str) -> tuple[SmallTable, Any] | str:
    """Our table and the same of it, or the code of the refusal."""
    try:
        statement = parse_one(create_text(name, kind, key))
        assert isinstance(statement, CreateTable)
        assert statement.schema is not None
        table = SmallTable(check_schema(statement.schema), store)
        table.insert(key_rows(kind, ROWS, zlib.crc32(f"{kind} {key}".encode())))
    except MergelakeError as problem:
        return code_of(problem)
    found = {}
    for part in table.parts:
        files = {n: b"".join(map(bytes, c)) for n, c in plain_files(table.store, "t", part.manifest)}
        small = {n: data for n, data in files.items() if n.startswith(("partition.dat", "minmax_"))}
        found[part.manifest.partition_id] = (part.manifest.rows, small)
    return table, found


def compare(oracle: Any, folder: Path, kind: str, key: str, *, attach: bool) -> str:
    """`equal`, or what differs; `refused` by both with one code, `unsupported` what is refused here by name."""
    name = f"keys_{zlib.crc32(f'{kind} {key}'.encode()):08x}"
    store = open_store(str(folder / name) if attach else f"memory://{name}")
    expected, mine = theirs(oracle, folder, name, kind, key), ours(store, name, kind, key)
    if isinstance(mine, str):
        if isinstance(expected, str):
            return "refused" if mine == expected else f"refused {mine} for {expected}"
        return f"unsupported {mine}"
    if isinstance(expected, str):
        return f"taken, there {expected}"
    table, state = mine
    if sorted(state) != sorted(expected):
        return f"ids differ {sorted(state.keys() - expected.keys())[:2]} {sorted(expected.keys() - state.keys())[:2]}"
    for partition, (rows, files) in expected.items():
        if state[partition][0] != rows:
            return "rows differ"
        for file in sorted(files.keys() | state[partition][1].keys()):
            if files.get(file) != state[partition][1].get(file):
                return f"{file} differs"
    return attached(oracle, table, name, {i: rows for i, (rows, _) in expected.items()}) if attach else "equal"


def attached(oracle: Any, table: SmallTable, name: str, rows: dict[str, int]) -> str:
    """`equal` if a ClickHouse that attaches the published table sees the rows of each partition."""
    publish(table.handle)
    try:
        oracle.query(create_statement(table.handle, "default", name))
        text = str(oracle.query(f"SELECT _partition_id, count() FROM default.{name} GROUP BY 1", "TSV"))
        counted = str(oracle.query(f"SELECT count() FROM default.{name} WHERE NOT ignore(*)", "TSV"))
    except RuntimeError as problem:
        return f"not attached {code_of(problem)}"
    finally:
        oracle.query(f"DROP TABLE IF EXISTS default.{name} SYNC")
    seen = {i: int(count) for i, count in (line.split("\t") for line in text.splitlines())}
    return "equal" if seen == rows and int(counted) == sum(rows.values()) else f"attached {counted} rows"


def drawn(seed: str, count: int) -> list[tuple[str, str]]:
    """Some of the cases, the same in every run; all in a long one."""
    return CASES if LONG else random.Random(seed).sample(CASES, count)


@pytest.fixture(scope="module")
def session(oracle: Any) -> Iterator[Any]:
    oracle.query("SET allow_suspicious_low_cardinality_types = 1")
    yield oracle
    oracle.query("SET allow_suspicious_low_cardinality_types = 0")


SIGNED_RESTS = [
    (kind, f"x % {divisor}")
    for kind in ("Int8", "Int32", "Int64", "UInt32", "UInt64", "Int128", "Nullable(Int32)")
    for divisor in ("8", "200", "-7", "100000", "toUInt64(9)")
]


@pytest.mark.parametrize(("kind", "key"), [*SIGNED_RESTS[::3], *drawn("partition keys", 60)])
def test_a_partition_key_makes_clickhouses_partitions(session: Any, tmp_path: Path, kind: str, key: str) -> None:
    verdict = compare(session, tmp_path, kind, key, attach=False)
    assert verdict in ("equal", "refused") or verdict.startswith(UNSUPPORTED)


@pytest.mark.parametrize(("kind", "key"), [*SIGNED_RESTS[1::9], *random.Random("attached").sample(CASES, 12)])
def test_a_stock_clickhouse_attaches_all_partitions(session: Any, tmp_path: Path, kind: str, key: str) -> None:
    verdict = compare(session, tmp_path, kind, key, attach=True)
    assert verdict in ("equal", "refused") or verdict.startswith(UNSUPPORTED)
