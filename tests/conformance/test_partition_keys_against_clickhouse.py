"""Tables partitioned by any expression over any type: ClickHouse's partitions, and a stock ClickHouse attaches them.

For each (type, key) of `tests.helpers.partition_keys` the same rows go into a ClickHouse table and into ours. Equal must
be: whether the key is taken (and the code of the refusal), the ids of the partitions and their rows, `partition.dat` and
`minmax_*.idx` byte for byte; and a ClickHouse that attaches what `publish` laid out sees the rows of each partition.
"""

from __future__ import annotations

import random
import re
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mergelake.core.errors import MergelakeError
from mergelake.core.types import parse_type
from mergelake.parts.listing import plain_files
from mergelake.sql.parser import parse_one
from mergelake.sql.statements import CreateTable
from mergelake.store import open_store
from mergelake.table.attach import create_statement
from mergelake.table.define import check_schema
from mergelake.table.publish import publish
from tests.helpers.blocks import insert
from tests.helpers.clickhouse_tables import CLASSIC, part_paths
from tests.helpers.merging import SmallTable
from tests.helpers.partition_keys import CASES, key_rows
from tests.helpers.rounds import LONG

pytestmark = pytest.mark.chdb

ROWS = 60


def create_text(name: str, kind: str, key: str, settings: str = "allow_nullable_key = 1") -> str:
    """The table, for both."""
    return (
        f"CREATE TABLE {name} (x {kind}, n UInt8, i Int32) ENGINE = MergeTree "
        f"PARTITION BY {key} ORDER BY tuple() SETTINGS {settings}"
    )


def code_of(problem: BaseException) -> str:
    """The code of a refusal, ours or ClickHouse's."""
    found = re.search(r"Code: (\d+)", str(problem))
    return found.group(1) if found else repr(problem)


def theirs(oracle: Any, folder: Path, name: str, kind: str, key: str) -> Any:
    """Partition id -> (rows, small files) of the ClickHouse table, or the code of its refusal."""
    types = {"x": parse_type(kind), "n": parse_type("UInt8"), "i": parse_type("Int32")}
    oracle.query(f"DROP TABLE IF EXISTS {name}")
    try:
        oracle.query(create_text(name, kind, key, CLASSIC))
        insert(oracle, name, key_rows(kind, ROWS, zlib.crc32(f"{kind} {key}".encode())), types, folder)
    except RuntimeError as problem:
        return code_of(problem)
    counts = dict(
        line.split("\t")
        for line in str(oracle.query(f"SELECT _partition_id, count() FROM {name} GROUP BY 1", "TSV")).splitlines()
    )
    found = {}
    for part, path in part_paths(oracle, name).items():
        files = {f.name: f.read_bytes() for f in path.iterdir() if f.name.startswith(("partition.dat", "minmax_"))}
        found[part.rsplit("_", 3)[0]] = (int(counts[part.rsplit("_", 3)[0]]), files)
    oracle.query(f"DROP TABLE {name} SYNC")
    return found


def compare(oracle: Any, folder: Path, kind: str, key: str) -> str:
    """`equal`, or what differs; with `refused` and `unsupported` for keys that are not taken."""
    name = f"keys_{zlib.crc32(f'{kind} {key}'.encode()):08x}"
    expected = theirs(oracle, folder, name, kind, key)
    try:
        statement = parse_one(create_text(name, kind, key))
        assert isinstance(statement, CreateTable)
        assert statement.schema is not None
        schema = check_schema(statement.schema)
        table = SmallTable(schema, open_store(str(folder / name)))
        table.insert(key_rows(kind, ROWS, zlib.crc32(f"{kind} {key}".encode())))
    except MergelakeError as problem:
        mine = code_of(problem)
        if isinstance(expected, str):
            return "refused" if mine == expected else f"code {mine} for {expected}"
        return f"unsupported {mine}"
    if isinstance(expected, str):
        return f"taken, there {expected}"
    state = {}
    for part in table.parts:
        files = {n: b"".join(map(bytes, c)) for n, c in plain_files(table.store, "t", part.manifest)}
        small = {n: data for n, data in files.items() if n.startswith(("partition.dat", "minmax_"))}
        state[part.manifest.partition_id] = (part.manifest.rows, small)
    if sorted(state) != sorted(expected):
        return "ids differ"
    if {i: rows for i, (rows, _) in state.items()} != {i: rows for i, (rows, _) in expected.items()}:
        return "rows differ"
    for partition, (_, files) in expected.items():
        for file in sorted(files.keys() | state[partition][1].keys()):
            if files.get(file) != state[partition][1].get(file):
                return f"{file} differs"
    publish(table.handle)
    try:
        oracle.query(create_statement(table.handle, "default", name))
        text = str(oracle.query(f"SELECT _partition_id, count() FROM default.{name} GROUP BY 1", "TSV"))
        seen = {i: int(rows) for i, rows in (line.split("\t") for line in text.splitlines())}
    except RuntimeError as problem:
        return f"not attached {code_of(problem)}"
    finally:
        oracle.query(f"DROP TABLE IF EXISTS default.{name} SYNC")
    return "equal" if seen == {i: rows for i, (rows, _) in expected.items()} else f"attached {sum(seen.values())} rows"
