"""Skip indexes against ClickHouse: the same files for the same rows, the same granules for the same predicate.

ClickHouse uses what we write, we use what it writes (packed files and compressed marks too), and no row is lost.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import Column, SkipIndex
from mergelake.core.types.types import parse_type
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.plan import plan_merge
from mergelake.jobs.publish.definition import attach_text
from mergelake.parts.read.index_reader import find_index
from mergelake.parts.read.listing import plain_files
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.adopt import open_directory
from mergelake.parts.write.indexing import table_indexes
from mergelake.scan.prune.predicate import bound_conjuncts, conjunction
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.prune.skip import skip_in_part, skip_plan
from mergelake.scan.read.explain import explain_text
from mergelake.store.objects.directory import DirectoryStore
from tests.helpers.blocks import insert
from tests.helpers.clickhouse_tables import CLASSIC, attach, part_paths
from tests.helpers.random_arrays import random_array
from tests.helpers.rounds import rounds
from tests.helpers.scans import ScanTable, create_statement, insert_statement, make_schema
from tests.helpers.skip_tables import INDEXES, skip_predicate, skip_rows, skip_schema

pytestmark = pytest.mark.chdb

EXPLAINED = ("Min-Max", "Partition", "PrimaryKey", "Skip", "Name:", "Description:", "Parts:", "Granules:", "Ranges:")
"""Lines to compare. Conditions are left out: ClickHouse flattens nested ANDs before it prints them."""
PLAIN = "SETTINGS optimize_redundant_comparisons = 0, optimize_and_compare_chain = 0"


def is_unsafe_there(where: str) -> bool:
    """Whether ClickHouse drops granules by a float's extremes that may hold NaN, for which NOT and != are true."""
    return "NOT (" in where and "f " in where


def is_coarser_there(where: str) -> bool:
    """Whether ClickHouse keeps granules for a NULL in a function of which we know that it stays NULL."""
    return any(part in where for part in ("n + 1", "n - 3", "-n ", "intDiv(n", "n % 3"))


def safe_predicates(rng: random.Random) -> Iterator[str]:
    """Predicates of which ClickHouse's indexes say what can be said, and lose no row."""
    drawn = iter(lambda: skip_predicate(rng), None)
    return (where for where in drawn if not is_unsafe_there(where) and not is_coarser_there(where))


def explained(text: str) -> list[str]:
    lines = [line.strip(" │└─") for line in text.splitlines()]
    return [line for line in lines[lines.index("Indexes:") :] if line.startswith(EXPLAINED)]


@pytest.mark.parametrize("name", list(INDEXES))
def test_the_same_granules_are_dropped_and_no_row_is_lost(name: str, oracle: Any) -> None:
    # M-056
    rng = random.Random(f"skip {name}")
    schema = skip_schema(name)
    ours, theirs = ScanTable(schema), f"skips.{name}"
    oracle.query("CREATE DATABASE IF NOT EXISTS skips")
    oracle.query(f"DROP TABLE IF EXISTS {theirs} SYNC")
    oracle.query(create_statement(theirs, schema))
    oracle.query(f"SYSTEM STOP MERGES {theirs}")
    for count in (90, 9, 40):
        rows = skip_rows(rng, count)
        ours.insert(rows)
        oracle.query(insert_statement(theirs, rows))
    compared = 0
    for where in safe_predicates(rng):
        expected = str(oracle.query(f"EXPLAIN indexes = 1 SELECT * FROM {theirs} WHERE {where} {PLAIN}", "TSVRaw"))
        if "Indexes:" in expected:  # else it saw a contradiction, as in `c IN (1) AND c IN (2)`, before any index
            found = explain_text(ours.plan(ScanRequest(where=where)))
            assert explained(found) == explained(expected), f"{where}\n{found}\n{expected}"
            compared += 1
        count = str(oracle.query(f"SELECT count() FROM {theirs} WHERE {where} SETTINGS use_skip_indexes = 0", "CSV"))
        assert len(ours.scan(ScanRequest(where=where))) == int(count), where
        if compared == rounds(40, 500):
            break


TYPES = {
    "k": "UInt32",
    "i8": "Int8",
    "u64": "UInt64",
    "f32": "Float32",
    "f64": "Float64",
    "s": "String",
    "fs": "FixedString(5)",
    "d": "Date",
    "d32": "Date32",
    "ts": "DateTime('UTC')",
    "ts64": "DateTime64(3, 'UTC')",
    "e": "Enum8('a' = 1, 'b' = 2, 'c' = -3)",
    "u": "UUID",
    "ip4": "IPv4",
    "ip6": "IPv6",
    "i128": "Int128",
    "u256": "UInt256",
    "dec": "Decimal(18, 4)",
    "dec2": "Decimal(38, 4)",
    "b": "Bool",
    "n": "Nullable(Int16)",
    "ns": "Nullable(String)",
    "l": "LowCardinality(String)",
    "ln": "LowCardinality(Nullable(String))",
    "a": "Array(Int64)",
    "ws": "Array(String)",
}
UNHASHED = {"d32", "dec", "dec2"}
TEXTS = {"s", "fs", "l", "ws"}


def all_indexes() -> list[SkipIndex]:
    """Every type of index over every type of column that it takes, and over several."""
    out = []
    for name in TYPES:
        if name not in ("a", "ws"):
            out += [SkipIndex(f"m_{name}", name, "minmax", 1 + len(out) % 3)]
            out += [SkipIndex(f"s_{name}", name, f"set({(0, 3, 100)[len(out) % 3]})", 1 + len(out) % 4)]
        if name not in UNHASHED:
            out.append(SkipIndex(f"b_{name}", name, "bloom_filter(0.01)", 1 + len(out) % 3))
        if name in TEXTS:
            out.append(SkipIndex(f"t_{name}", name, "tokenbf_v1(70, 3, 5)", 1 + len(out) % 2))
            out.append(SkipIndex(f"g_{name}", name, "ngrambf_v1(2, 70, 2, 9)", 2))
    return [
        *out,
        SkipIndex("m_many", "(i8, s, n)", "minmax", 2),
        SkipIndex("s_many", "(l, f64, ns)", "set(0)", 1),
        SkipIndex("b_many", "(s, u64, a)", "bloom_filter", 2),
        SkipIndex("t_many", "(lower(s), fs)", "tokenbf_v1(64, 2, 0)", 1),
        SkipIndex("expression", "u64 % 7", "set(4)", 1),
        SkipIndex("odd name-é", "i8", "minmax", 1),
    ]


def our_files(table: ScanTable, manifest: PartManifest) -> dict[str, bytes]:
    return {file: b"".join(map(bytes, chunks)) for file, chunks in plain_files(table.store, "t", manifest)}


def test_index_files_are_clickhouses_byte_for_byte(oracle: Any, tmp_path: Path) -> None:
    schema = make_schema(TYPES, order_by=("k",), indices=tuple(all_indexes()), settings={"index_granularity": "37"})
    rng = np.random.default_rng(11)
    arrays = {name: random_array(rng, kind, 1000) for name, kind in schema.types.items()}
    arrays["k"] = pa.array(np.arange(1000, dtype=np.uint32))
    block = pa.table(arrays)
    ours = ScanTable(schema)
    ours.insert_block(block)
    columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    declared = ", ".join(
        f"INDEX `{i.name}` {i.expression} TYPE {i.type} GRANULARITY {i.granularity}" for i in schema.indices
    )
    oracle.query("DROP TABLE IF EXISTS skip_files")
    oracle.query(
        f"CREATE TABLE skip_files ({columns}, {declared}) ENGINE = MergeTree ORDER BY k "
        f"SETTINGS {CLASSIC}, index_granularity = 37"
    )
    insert(oracle, "skip_files", block, schema.types, tmp_path)
    (path,) = part_paths(oracle, "skip_files").values()
    theirs = {f.name: f.read_bytes() for f in path.iterdir() if f.name.startswith("skp_idx")}
    found = {n: d for n, d in our_files(ours, ours.handle.snapshot().parts[0].manifest).items() if n in theirs}
    assert len(theirs) == 2 * len(schema.indices)
    assert set(found) == set(theirs)
    differ = [name for name in sorted(theirs) if found[name] != theirs[name]]
    assert not differ, {
        n: (decode_compressed_blocks(found[n])[:80], decode_compressed_blocks(theirs[n])[:80])
        for n in differ
        if "idx" in n
    }


def merged(table: ScanTable) -> PartManifest:
    """All parts of the table, merged."""
    snapshot = table.handle.snapshot()
    task = plan_merge("t", snapshot.schema, snapshot.parts)
    return execute_merge(table.store, task, SeededIds(77), ManualClock())


@pytest.mark.parametrize("name", ["mixed", "set_some", "bloom_more", "expressions", "ngram", "minmax_pair"])
def test_clickhouse_checks_and_uses_the_indexes_of_our_merged_parts(name: str, oracle: Any) -> None:
    rng = random.Random(f"merged {name}")
    schema = skip_schema(name)
    ours = ScanTable(schema)
    for _ in range(4):
        ours.insert(skip_rows(rng, 70))
    manifest = merged(ours)
    oracle.query("DROP TABLE IF EXISTS skip_merged SYNC")
    oracle.query(create_statement("skip_merged", schema))
    oracle.query("SYSTEM STOP MERGES skip_merged")
    attach(oracle, "skip_merged", "all_1_4_1", ours.store, "t", manifest)
    answer = str(oracle.query("CHECK TABLE skip_merged SETTINGS check_query_single_value_result = 0", "TSV"))
    assert [line.split("\t")[1] for line in answer.splitlines()] == ["1"], answer
    reader = PartReader(ours.store, "t", manifest, {c.name: c for c in schema.columns})
    dropped = 0
    for _ in range(25):
        where = skip_predicate(rng)
        plan = skip_plan(schema, conjunction(bound_conjuncts(ScanRequest(where=where), schema)[1]))
        if plan is None or is_unsafe_there(where):
            continue
        marks = ((0, manifest.marks),)
        left = skip_in_part(reader, plan, marks, plan.order(reader)).final
        # The primary key is left out of the question here.
        text = str(
            oracle.query(
                f"EXPLAIN indexes = 1 SELECT * FROM skip_merged WHERE {where} {PLAIN}, use_primary_key = 0", "TSVRaw"
            )
        )
        granules = [line.split()[-1] for line in text.splitlines() if "Granules:" in line]
        kept = sum(end - begin for begin, end in left)
        assert int(granules[-1].split("/")[0]) == kept, f"{where}\n{text}"
        dropped += manifest.marks - kept
    assert dropped


@pytest.mark.parametrize("form", ["packed, compact", "packed, wide", "compressed marks", "fixed granules"])
def test_indexes_that_clickhouse_wrote_are_used(form: str, oracle: Any, tmp_path: Path) -> None:
    settings = {
        "packed, compact": "min_bytes_for_wide_part = 100000000",
        "packed, wide": "min_bytes_for_wide_part = 0",
        "compressed marks": "min_bytes_for_wide_part = 0, packed_skip_index_max_bytes = 0",
        "fixed granules": "min_bytes_for_wide_part = 0, index_granularity_bytes = 0, packed_skip_index_max_bytes = 0",
    }[form]
    rng = random.Random(form)
    schema = skip_schema("mixed")
    oracle.query("DROP TABLE IF EXISTS skip_theirs SYNC")
    statement = create_statement("skip_theirs", schema).split(" SETTINGS ")[0]
    settings += ", index_granularity = 4, min_bytes_for_full_part_storage = 0, add_minmax_index_for_numeric_columns = 0"
    oracle.query(f"{statement} SETTINGS {settings}")
    rows = skip_rows(rng, 300)
    oracle.query(insert_statement("skip_theirs", rows))
    (path,) = part_paths(oracle, "skip_theirs").values()
    opened = open_directory(DirectoryStore(str(path.parent)), path.name, granularity=4)
    columns = {name: Column(i, name, parse_type(str(kind))) for i, (name, kind) in enumerate(schema.types.items())}
    reader = PartReader(DirectoryStore(str(path.parent)), opened.directory, opened.manifest, columns, granularity=4)
    assert all(find_index(reader, index.name, index.kind) is not None for index in table_indexes(schema))
    same = ScanTable(schema)
    same.insert(rows)
    ours = PartReader(same.store, "t", same.handle.snapshot().parts[0].manifest, columns)
    if form == "packed, compact":  # the last granule may be larger there
        assert opened.manifest.part_type == "Compact"
    for _ in range(40):
        where = skip_predicate(rng)
        plan = skip_plan(schema, conjunction(bound_conjuncts(ScanRequest(where=where), schema)[1]))
        if plan is None:
            continue
        ranges = ((0, reader.manifest.marks),)
        found = skip_in_part(reader, plan, ranges, range(len(plan.indexes))).final
        if reader.manifest.marks == ours.manifest.marks:
            assert found == skip_in_part(ours, plan, ranges, range(len(plan.indexes))).final, where


def test_the_statement_that_attaches_a_table_declares_its_indexes(oracle: Any) -> None:
    schema = skip_schema("mixed")
    text = attach_text(schema, "`d`.`t`", "disk()", 1)
    assert "INDEX `bs` s TYPE bloom_filter(0.05) GRANULARITY 1" in text
    oracle.query("DROP TABLE IF EXISTS skip_text")
    body = text.split("\nENGINE")[0].replace("`d`.`t`", "skip_text")
    oracle.query(f"{body} ENGINE = MergeTree ORDER BY k")
    names = str(oracle.query("SELECT name FROM system.data_skipping_indices WHERE table = 'skip_text'", "TSV"))
    assert sorted(names.split()) == sorted(index.name for index in schema.indices)
