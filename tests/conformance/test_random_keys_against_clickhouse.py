"""Random tables with random keys: ClickHouse's codes, parts, order of rows, and bytes of what is made of keys.

Both sides get the same statement and the same blocks. Equal must be: whether the table is taken (or the code of the
refusal), and then, before and after OPTIMIZE … FINAL, the names of the parts, their rows in stored order, and the
primary index, `partition.dat`, `minmax_*.idx` and skip indexes byte for byte. Some are published, and a ClickHouse
that attaches what was laid out gives the same rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.api.sql.parser import parse_one
from mergelake.api.sql.statements import CreateTable
from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import DataType
from mergelake.jobs.publish.definition import create_statement
from mergelake.jobs.publish.publish import publish
from mergelake.parts.read.listing import plain_files
from mergelake.store import open_store
from mergelake.table.definition.define import check_schema
from tests.conformance.test_partition_keys_against_clickhouse import code_of
from tests.helpers.blocks import insert, select
from tests.helpers.clickhouse_tables import CLASSIC
from tests.helpers.merging import SmallTable, plain
from tests.helpers.random_keys import SETTINGS, KeyedTable, keyed_table
from tests.helpers.rounds import rounds

pytestmark = pytest.mark.chdb

OURS = ", ".join(f"{name} = {value}" for name, value in SETTINGS.items())
THEIRS = f"{OURS}, {CLASSIC}, allow_experimental_reverse_key = 1, add_minmax_index_for_numeric_columns = 0"
FILES = ("primary.idx", "partition.dat", "minmax_", "skp_idx_")
UNSUPPORTED = ("46", "48")
"""What is refused by name: functions, indexes and subcolumns that are not known."""

Part = tuple[list[tuple[object, ...]], dict[str, bytes]]


def compare(oracle: Any, folder: Path, seed: int) -> str:
    """`equal`, `refused` by both with one code, `unsupported CODE` here, or what differs."""
    rng = np.random.default_rng([1811, seed])
    table = keyed_table(rng)
    nullable = f", allow_nullable_key = {int(rng.random() < 0.8)}"
    name = f"random_keys_{seed}"
    oracle.query(f"DROP TABLE IF EXISTS {name} SYNC")
    try:
        oracle.query(table.create(name, THEIRS + nullable))
        expected = "taken"
    except RuntimeError as problem:
        expected = code_of(problem)
    try:
        statement = parse_one(table.create(name, OURS + nullable))
        assert isinstance(statement, CreateTable)
        assert statement.schema is not None
        mine = SmallTable(check_schema(statement.schema), open_store(str(folder / name)))
    except MergelakeError as problem:
        code = code_of(problem)
        oracle.query(f"DROP TABLE IF EXISTS {name} SYNC")
        if code == expected:
            return "refused"
        return f"unsupported {code}" if code in UNSUPPORTED else f"refused {code}, there {expected}: {problem}"
    if expected != "taken":
        return f"taken, there {expected}"
    try:
        return _compare_rows(oracle, folder, name, table, mine)
    finally:
        oracle.query(f"DROP TABLE IF EXISTS {name} SYNC")


def _compare_rows(oracle: Any, folder: Path, name: str, table: KeyedTable, mine: SmallTable) -> str:
    oracle.query(f"SYSTEM STOP MERGES {name}")
    for block in table.blocks:
        insert(oracle, name, block, table.types, folder)
        mine.insert(block)
    found = _difference(_theirs(oracle, name, table.types), _ours(mine))
    if found:
        return f"inserted: {found}"
    oracle.query(f"SYSTEM START MERGES {name}")
    oracle.query(f"OPTIMIZE TABLE {name} FINAL SETTINGS optimize_throw_if_noop = 0")
    mine.optimize()
    merged = _theirs(oracle, name, table.types)
    found = _difference(merged, _ours(mine))
    if found:
        return f"merged: {found}"
    publish(mine.handle)
    try:
        oracle.query(create_statement(mine.handle, "default", f"{name}_attached"))
        rows = select(oracle, f"SELECT * FROM default.{name}_attached ORDER BY _part, _part_offset", table.types)
    except RuntimeError as problem:
        return f"not attached: {problem}"
    finally:
        oracle.query(f"DROP TABLE IF EXISTS default.{name}_attached SYNC")
    held = sorted(repr(row) for part, _ in merged.values() for row in part)
    return "equal" if sorted(map(repr, plain(rows))) == held else "attached: the rows differ"


def _theirs(oracle: Any, name: str, types: dict[str, DataType]) -> dict[str, Part]:
    query = f"SELECT name, path FROM system.parts WHERE table = '{name}' AND active AND database = currentDatabase()"
    found: dict[str, Part] = {}
    for line in str(oracle.query(query, "TSV")).splitlines():
        part, path = line.split("\t")
        rows = select(oracle, f"SELECT * FROM {name} WHERE _part = '{part}' ORDER BY _part_offset", types)
        files = {file.name: file.read_bytes() for file in Path(path).iterdir() if file.name.startswith(FILES)}
        found[part] = plain(rows), {n: d for n, d in files.items() if not n.startswith("skp_") or ".idx" in n}
    return found


def _ours(mine: SmallTable) -> dict[str, Part]:
    found: dict[str, Part] = {}
    for part in mine.parts:
        files = {n: b"".join(map(bytes, c)) for n, c in plain_files(mine.store, "t", part.manifest)}
        kept = {n: d for n, d in files.items() if n.startswith(FILES) and (not n.startswith("skp_") or ".idx" in n)}
        found[part.name] = plain(mine.rows([part])), kept
    return found


def _difference(expected: dict[str, Part], found: dict[str, Part]) -> str:
    if sorted(expected) != sorted(found):
        return f"parts {sorted(expected)[:3]}, here {sorted(found)[:3]}"
    for part, (rows, files) in expected.items():
        own_rows, own_files = found[part]
        if repr(rows) != repr(own_rows):
            return f"the rows of {part} differ"
        for name in sorted(files.keys() | own_files.keys()):
            if files.get(name) != own_files.get(name):
                return f"{name} of {part} differs"
    return ""


@pytest.fixture(scope="module")
def session(oracle: Any) -> Any:
    oracle.query("SET allow_suspicious_low_cardinality_types = 1")
    yield oracle
    oracle.query("SET allow_suspicious_low_cardinality_types = 0")


@pytest.mark.parametrize("seed", range(rounds(12, 300)))
def test_random_keys_order_rows_as_clickhouse_does(session: Any, tmp_path: Path, seed: int) -> None:
    verdict = compare(session, tmp_path, seed)
    assert verdict in ("equal", "refused") or verdict.startswith("unsupported"), keyed_table(
        np.random.default_rng([1811, seed])
    )


def test_the_drawn_tables_are_mostly_taken() -> None:
    drawn = [keyed_table(np.random.default_rng([1811, seed])) for seed in range(40)]
    assert sum(".size" in table.clauses or ".null" in table.clauses for table in drawn) > 3
    assert all(pa.table(block).num_rows for table in drawn for block in table.blocks if block.num_columns)
