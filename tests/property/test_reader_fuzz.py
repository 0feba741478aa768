"""Whatever the bytes of a part are: a coded error, or the right rows. Never a crash, a hang, or memory without bound.

Plain damage must be found by the checksums; *sealed* damage comes with right checksums, as from a faulty or hostile
writer, and then rows may differ, but nothing worse may happen. Every case runs in a process of its own with a time
limit, a memory limit, and buffers that end at a guard page (`tests/helpers/part_fuzz.py`).

    HYPOTHESIS_PROFILE=deep pytest tests/property/test_reader_fuzz.py      # every byte; half an hour
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mergelake.core.clock import ManualClock
from mergelake.core.errors import MergelakeError
from mergelake.core.ids import SeededIds
from mergelake.core.schema import TableSchema
from mergelake.core.types import parse_type
from mergelake.parts.listing import plain_files
from mergelake.parts.reader import PartReader
from mergelake.sql.parser import parse_one
from mergelake.store.memory import MemoryStore
from mergelake.table.define import check_schema
from mergelake.table.insert import write_blocks
from tests.helpers.blocks import insert
from tests.helpers.clickhouse_tables import create, part_paths
from tests.helpers.part_fuzz import KINDS, Files, Worker, damage, read_everything, sealed
from tests.helpers.random_arrays import random_array

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
ROWS = 50
COLUMNS = {
    "k": "UInt32",
    "day": "Date",
    "s": "String",
    "fs": "FixedString(3)",
    "n": "Nullable(String)",
    "lc": "LowCardinality(String)",
    "a": "Array(LowCardinality(Nullable(String)))",
    "m": "Map(String, UInt16)",
    "t": "Tuple(x UInt8, y Array(String))",
    "dec": "Decimal(38, 6)",
    "e": "Enum8('a' = -3, 'b' = 0, 'c' = 7)",
}
CODECS = {
    "delta": ("Int64", "Delta, ZSTD"),
    "double": ("DateTime('UTC')", "DoubleDelta"),
    "gorilla": ("Float64", "Gorilla, LZ4"),
    "t64": ("UInt32", "T64"),
    "t64bit": ("Int16", "T64('bit'), LZ4"),
    "fpc": ("Float64", "FPC"),
    "gcd": ("UInt64", "GCD, LZ4"),
    "none": ("String", "NONE"),
    "zstd": ("Array(String)", "ZSTD(1)"),
}
NEW = "min_bytes_for_full_part_storage=0, index_granularity=8"
PROFILES = {
    "wide": f"min_bytes_for_wide_part=0, ratio_of_defaults_for_sparse_serialization=0.01, {NEW}",
    "compact": f"min_bytes_for_wide_part=100000000, min_rows_for_wide_part=100000000, {NEW}",
    "fixed granules": f"index_granularity_bytes=0, min_bytes_for_wide_part=0, {NEW}",
}


@dataclass(frozen=True, repr=False)
class Specimen:
    """An intact part, what reading it gives, and another part of the same table."""

    files: Files
    digest: str
    types: dict[str, str]
    other: Files

    def __repr__(self) -> str:
        return f"<a part of {len(self.files)} files>"

    @staticmethod
    def of(files: Files, other: Files) -> Specimen:
        answer = read_everything(files, "UInt32")
        assert answer[0] == "rows", answer
        return Specimen(files, answer[1], answer[2], other)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    running = Worker()
    yield running
    running.stop()


def _block(seed: int, kinds: dict[str, str]) -> pa.Table:
    rng = np.random.default_rng(seed)
    arrays = {name: random_array(rng, parse_type(kind), ROWS) for name, kind in kinds.items()}
    arrays["k"] = pa.array(np.arange(ROWS, dtype=np.uint32) + seed)
    if "day" in arrays:
        arrays["day"] = pa.array(np.full(ROWS, 19000 + seed % 20, np.uint16))
    return pa.table(arrays)


def _table(kinds: dict[str, str], codecs: dict[str, str], clauses: str) -> tuple[MemoryStore, TableSchema]:
    columns = ", ".join(f"{n} {k}{f' CODEC({codecs[n]})' if n in codecs else ''}" for n, k in kinds.items())
    statement: Any = parse_one(f"CREATE TABLE t ({columns}) ENGINE = MergeTree {clauses} ORDER BY k")
    settings = {"index_granularity": "8", "min_compress_block_size": "200"}
    return MemoryStore(), check_schema(replace(statement.schema, settings=settings))


def _ours(seed: int, kinds: dict[str, str], codecs: dict[str, str], clauses: str) -> Files:
    store, schema = _table(kinds, codecs, clauses)
    manifests = write_blocks(store, "t", schema, [_block(seed, kinds)], ids=SeededIds(seed), clock=ManualClock())
    return {name: b"".join(map(bytes, chunks)) for name, chunks in plain_files(store, "t", manifests[0])}


@pytest.fixture(scope="module")
def ours() -> Specimen:
    by_month = "PARTITION BY toYYYYMM(day)"
    return Specimen.of(_ours(1, COLUMNS, {}, by_month), _ours(2, COLUMNS, {}, by_month))


@pytest.fixture(scope="module")
def ours_with_codecs() -> Specimen:
    kinds = {"k": "UInt32", **{name: kind for name, (kind, _) in CODECS.items()}}
    codecs = {name: codec for name, (_, codec) in CODECS.items()}
    return Specimen.of(_ours(3, kinds, codecs, ""), _ours(4, kinds, codecs, ""))


@pytest.fixture(scope="module")
def theirs(oracle: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Specimen]:
    found = {}
    types = {name: parse_type(kind) for name, kind in COLUMNS.items()}
    for profile, settings in PROFILES.items():
        create(oracle, "fuzz", types, order_by="k", partition_by=["toYYYYMM(day)"], settings=settings)
        for seed in (1, 2):
            insert(oracle, "fuzz", _block(seed, COLUMNS), types, tmp_path_factory.mktemp("rows"))
        one, two = (
            {file.name: file.read_bytes() for file in Path(path).iterdir() if file.is_file()}
            for path in part_paths(oracle, "fuzz").values()
        )
        found[profile] = Specimen.of(one, two)
    return found


def _judge(worker: Worker, part: Specimen, files: Files, name: str, what: str, *, is_sealed: bool = False) -> str:
    """The answer's kind, after holding it against the law."""
    if worker._warm is None:
        assert worker.warm(part.files, "UInt32")[0] == "rows"
    answer = worker.read(files, "UInt32")
    told = f"{name}, {what}, sealed={is_sealed}: {answer}"
    assert answer[0] in ("rows", "refused"), told
    if answer[0] == "rows" and not is_sealed and (answer[1] != part.digest or answer[2] != part.types):
        # Nothing in the part vouches for columns.txt: whoever reads sees the other names or types and can tell.
        assert name == "columns.txt", told
        assert answer[2] != part.types, told
    return str(answer[0])


def _positions(size: int, name: str) -> range:
    """Every byte of small files in the deep profile; else a few hundred a part."""
    return range(0, size, 1 if DEEP else max(1, size // (3 if name.endswith(".bin") else 12)))


def _every_file(worker: Worker, part: Specimen) -> dict[str, int]:
    """Each file with each damage at positions all over it."""
    seen = {"rows": 0, "refused": 0}
    for name, data in sorted(part.files.items()):
        cases = [
            ("swap", 0),
            *((kind, at) for kind in ("flip", "zero", "truncate") for at in _positions(len(data), name)),
        ]
        for kind, at in cases:
            other = part.other.get(name, b"")
            if name.endswith(".bin") and kind == "swap" and len(other) == len(data):
                continue  # right frames of the right size: only check_part, which hashes whole files, can tell
            changed = damage(data, kind, at, 1 << at % 8 if kind == "flip" else at, other)
            if changed != data:
                seen[_judge(worker, part, {**part.files, name: changed}, name, f"{kind} at {at}")] += 1
        missing = {file: body for file, body in part.files.items() if file != name}
        seen[_judge(worker, part, missing, name, "missing")] += 1
    return seen


def test_damage_anywhere_in_our_parts_is_refused_or_harmless(worker: Worker, ours: Specimen) -> None:
    seen = _every_file(worker, ours)
    assert seen["refused"] > 5 * seen["rows"]


@pytest.mark.parametrize("profile", PROFILES)
def test_damage_anywhere_in_clickhouses_parts_is_refused_or_harmless(
    worker: Worker, theirs: dict[str, Specimen], profile: str
) -> None:
    _every_file(worker, theirs[profile])


_CASES = st.tuples(
    st.integers(0, 400), st.sampled_from(KINDS), st.integers(0, 1 << 20), st.integers(1, 255), st.booleans()
)


def _one(worker: Worker, part: Specimen, case: tuple[int, str, int, int, bool]) -> None:
    number, kind, at, mask, is_sealed = case
    names = sorted(part.files)
    name = names[number % len(names)]
    changed = damage(part.files[name], kind, at, mask, part.other.get(name, b""))
    files = sealed(part.files, name, changed) if is_sealed else {**part.files, name: changed}
    if name.endswith(".bin") and kind == "swap":
        is_sealed = True
    _judge(worker, part, files, name, f"{kind} at {at} mask {mask}", is_sealed=is_sealed)


@given(case=_CASES)
def test_random_damage_in_our_parts(worker: Worker, ours: Specimen, case: Any) -> None:
    _one(worker, ours, case)


@given(case=_CASES)
def test_random_damage_in_parts_with_every_codec(worker: Worker, ours_with_codecs: Specimen, case: Any) -> None:
    _one(worker, ours_with_codecs, case)


@given(case=_CASES, profile=st.sampled_from(sorted(PROFILES)))
def test_random_damage_in_clickhouses_parts(
    worker: Worker, theirs: dict[str, Specimen], case: Any, profile: str
) -> None:
    _one(worker, theirs[profile], case)


# -- found by hand or by the above: kept by name ---------------------------------------------

_ONE = b"columns format version: 1\n1 columns:\n`k` %s\n"
CRAFTED = {
    "a row count of 5000 digits": ("count.txt", b"9" * 5000),
    "a row count beyond 64 bits": ("count.txt", b"1" + b"0" * 30),
    "a negative row count": ("count.txt", b"-5"),
    "a type nested 20000 deep": ("columns.txt", _ONE % (b"Array(" * 20000 + b"UInt8" + b")" * 20000)),
    "a width of 5000 digits": ("columns.txt", _ONE % (b"FixedString(" + b"9" * 5000 + b")")),
    "a count that is a digit but no number": ("columns.txt", "columns format version: 1\n² columns:\n".encode()),
    "no columns": ("columns.txt", b"columns format version: 1\n0 columns:\n"),
    "a column twice": ("columns.txt", b"columns format version: 1\n2 columns:\n`k` UInt32\n`k` UInt32\n"),
    "a name that is not UTF-8": ("columns.txt", b"columns format version: 1\n1 columns:\n`\xff\xfe` UInt32\n"),
    "JSON nested 200000 deep": ("serialization.json", b"[" * 200_000),
    "a version that is infinite": ("serialization.json", b'{"version": 1e400}'),
    "a version of 5000 digits": ("serialization.json", b'{"version": ' + b"9" * 5000 + b"}"),
    "JSON of another kind": ("serialization.json", b"[]"),
    "a sparse column without offsets": ("serialization.json", b'{"columns":[{"name":"k","kind":"Sparse"}]}'),
    "a mark past the end": ("k.mrk2", np.array([1 << 40, 0, 50, 1 << 40, 0, 0], np.int64).tobytes()),
    "a mark with a huge skip": ("s.mrk2", np.array([0, 1 << 29, 50, 0, 1 << 29, 0], np.int64).tobytes()),
    "granules of 2^39 rows": ("k.mrk2", np.array([0, 0, 1 << 39, 0, 0, 0], np.int64).tobytes()),
    "no marks": ("lc.dict.mrk2", b""),
}  # fmt: skip


@pytest.mark.parametrize("what", CRAFTED)
def test_crafted_small_files_are_refused(worker: Worker, ours: Specimen, what: str) -> None:
    name, data = CRAFTED[what]
    assert _judge(worker, ours, sealed(ours.files, name, data), name, what, is_sealed=True) == "refused"


def test_all_marks_may_promise_rows_without_end(worker: Worker, ours: Specimen) -> None:
    files: Files = sealed(ours.files, "count.txt", str(1 << 39).encode())
    for name in ours.files:
        if name.endswith(".mrk2"):
            files = sealed(files, name, np.array([0, 0, 1 << 39, 0, 0, 0], np.int64).tobytes())
    assert _judge(worker, ours, files, "*.mrk2", "2^39 rows", is_sealed=True) == "refused"


def test_a_list_of_substreams_may_promise_lines_without_end(worker: Worker, theirs: dict[str, Specimen]) -> None:
    part = theirs["compact"]
    data = b"columns substreams version: 1\n1 columns:\n999999999999 substreams for column `k`:\n\tk\n"
    files = {**part.files, "columns_substreams.txt": data}
    assert _judge(worker, part, files, "columns_substreams.txt", "10^12 lines") == "refused"


def test_an_array_in_a_tuple_is_called_sparse_and_is_not(theirs: dict[str, Specimen]) -> None:
    """ClickHouse counts its empty arrays and writes `"kind":"Sparse"` for an element that cannot lie so."""
    assert b'"kind":"Sparse","num_defaults"' in theirs["wide"].files["serialization.json"]
    assert "t%2Ey.sparse.idx.bin" not in theirs["wide"].files


def test_a_flip_anywhere_in_a_packed_object_is_refused_or_harmless() -> None:
    """In a table of ours the manifest vouches for every file, `columns.txt` included."""
    store, schema = _table(COLUMNS, {}, "PARTITION BY toYYYYMM(day)")
    (manifest,) = write_blocks(store, "t", schema, [_block(1, COLUMNS)], ids=SeededIds(1), clock=ManualClock())
    key = f"t/{manifest.id}/data.packed"
    intact = store.get(key)
    columns = {column.name: column for column in schema.columns}

    def read() -> str:
        reader = PartReader(store, "t", manifest, columns)
        rows = [repr(batch.to_pylist()) for batch in reader.read(list(columns))]
        return "".join([*rows, repr(reader.primary_index([schema.types["k"]]))])

    expected = read()
    refused = 0
    for at in range(0, len(intact), 1 if DEEP else 37):
        store.put(key, damage(intact, "flip", at, 1 << at % 8))
        try:
            assert read() == expected, at
        except MergelakeError:
            refused += 1
    assert refused > 0.8 * len(range(0, len(intact), 1 if DEEP else 37))
