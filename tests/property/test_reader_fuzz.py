"""Whatever the bytes of a part are: a coded error, or the right rows. Never a crash, a hang, or memory without bound.

Plain damage must be found by the checksums; *sealed* damage comes with right checksums, as from a faulty or hostile
writer, and then rows may differ, but nothing worse may happen. Every case runs in a process of its own with a time
limit, a memory limit, and buffers that end at a guard page (`tests/helpers/part_fuzz.py`).

    MERGELAKE_CONFORMANCE=long pytest tests/property/test_reader_fuzz.py   # every byte; `make conformance` does it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mergelake.api.sql.parser import parse_one
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.schema import TableSchema
from mergelake.core.types.types import parse_type
from mergelake.parts.read.listing import plain_files
from mergelake.parts.read.reader import PartReader
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import check_schema
from mergelake.table.write.insert import insert_target, write_blocks
from tests.helpers.blocks import insert
from tests.helpers.clickhouse_tables import part_paths
from tests.helpers.part_fuzz import COLUMNS, INDEXES, KINDS, Files, Worker, damage, read_everything, sealed
from tests.helpers.random_arrays import random_array
from tests.helpers.rounds import LONG

ROWS = 12 if LONG else 50
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
INDEXED = "".join(f", INDEX {i.name} {i.expression} TYPE {i.type} GRANULARITY {i.granularity}" for i in INDEXES)
NEW = "min_bytes_for_full_part_storage=0, index_granularity=8"
PROFILES = {
    "wide": f"min_bytes_for_wide_part=0, ratio_of_defaults_for_sparse_serialization=0.01, {NEW}",
    "compact": f"min_bytes_for_wide_part=100000000, min_rows_for_wide_part=100000000, {NEW}",
    "fixed granules": f"index_granularity_bytes=0, min_bytes_for_wide_part=0, {NEW}",
    "indexes apart": f"min_bytes_for_wide_part=0, packed_skip_index_max_bytes=0, {NEW}",
}


@dataclass(frozen=True, repr=False)
class Specimen:
    """An intact part and another part of the same table."""

    files: Files
    other: Files
    answers: dict[str, Any] = field(default_factory=dict)
    """What reading it gives, by the file that matters."""

    def __repr__(self) -> str:
        return f"<a part of {len(self.files)} files>"

    def answer(self, touched: str) -> Any:
        """What reading the intact part gives."""
        if touched not in self.answers:
            self.answers[touched] = read_everything(self.files, touched)
            assert self.answers[touched][0] == "rows", self.answers[touched]
        return self.answers[touched]


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
    if "z" in arrays:  # lies sparse
        arrays["z"] = pa.array(np.where(np.arange(ROWS) % 17 == 3, 7, 0).astype(np.uint64))
    return pa.table(arrays)


def _table(kinds: dict[str, str], codecs: dict[str, str], clauses: str) -> tuple[MemoryStore, TableSchema]:
    columns = ", ".join(f"{n} {k}{f' CODEC({codecs[n]})' if n in codecs else ''}" for n, k in kinds.items())
    columns += INDEXED if kinds is COLUMNS else ""
    statement: Any = parse_one(f"CREATE TABLE t ({columns}) ENGINE = MergeTree {clauses} ORDER BY k")
    settings = {"index_granularity": "8", "min_compress_block_size": "200"}
    return MemoryStore(), check_schema(replace(statement.schema, settings=settings))


def _ours(seed: int, kinds: dict[str, str], codecs: dict[str, str], clauses: str) -> Files:
    store, schema = _table(kinds, codecs, clauses)
    manifests = write_blocks(insert_target(store, "t", schema, SeededIds(seed), ManualClock()), [_block(seed, kinds)])
    return {name: b"".join(map(bytes, chunks)) for name, chunks in plain_files(store, "t", manifests[0])}


@pytest.fixture(scope="module")
def ours() -> Specimen:
    by_month = "PARTITION BY toYYYYMM(day)"
    return Specimen(_ours(1, COLUMNS, {}, by_month), _ours(2, COLUMNS, {}, by_month))


@pytest.fixture(scope="module")
def ours_with_codecs() -> Specimen:
    kinds = {"k": "UInt32", **{name: kind for name, (kind, _) in CODECS.items()}}
    codecs = {name: codec for name, (_, codec) in CODECS.items()}
    return Specimen(_ours(3, kinds, codecs, ""), _ours(4, kinds, codecs, ""))


@pytest.fixture(scope="module")
def theirs(oracle: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Specimen]:
    found = {}
    types = {name: parse_type(kind) for name, kind in COLUMNS.items()}
    for profile, settings in PROFILES.items():
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        indexes = f"{INDEXED}, INDEX tx s TYPE text(tokenizer = 'splitByNonAlpha')"
        oracle.query("DROP TABLE IF EXISTS fuzz")
        oracle.query(
            f"CREATE TABLE fuzz ({columns}{indexes}) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY k "
            f"SETTINGS {settings}"
        )
        for seed in (1, 2):
            insert(oracle, "fuzz", _block(seed, COLUMNS), types, tmp_path_factory.mktemp("rows"))
        one, two = (
            {file.name: file.read_bytes() for file in Path(path).iterdir() if file.is_file()}
            for path in part_paths(oracle, "fuzz").values()
        )
        found[profile] = Specimen(one, two)
    return found


JSON = "JSON(max_dynamic_paths = 2, a UInt8)"
MIXED = f"k UInt32, v Variant(String, UInt64, Array(UInt8)), d Dynamic(max_types = 2), j {JSON}"
MIXED_ROWS = """number + {0},
    multiIf(number % 4 = 0, NULL, number % 4 = 1, 'text'::Variant(String, UInt64, Array(UInt8)),
        number % 4 = 2, number::UInt64::Variant(String, UInt64, Array(UInt8)),
        [1, 2]::Array(UInt8)::Variant(String, UInt64, Array(UInt8))),
    multiIf(number % 5 = 0, NULL, number % 5 = 1, 'x'::Dynamic, number % 5 = 2, number::Int64::Dynamic,
        number % 5 = 3, toDate(number)::Dynamic, [number]::Dynamic),
    toJSONString(map('a', number % 9, concat('p', toString(number % 4)), number))::"""


@pytest.fixture(scope="module")
def mixed(oracle: Any) -> dict[str, Specimen]:
    """Columns of Variant, Dynamic and JSON."""
    found = {}
    for profile in ("wide", "compact"):
        oracle.query("DROP TABLE IF EXISTS fuzz_mixed")
        oracle.query(f"CREATE TABLE fuzz_mixed ({MIXED}) ENGINE = MergeTree ORDER BY k SETTINGS {PROFILES[profile]}")
        for seed in (0, 1):
            oracle.query(f"INSERT INTO fuzz_mixed SELECT {MIXED_ROWS.format(seed)}{JSON} FROM numbers({ROWS})")
        one, two = (
            {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
            for path in part_paths(oracle, "fuzz_mixed").values()
        )
        found[profile] = Specimen(one, two)
    return found


def _judge(
    worker: Worker, part: Specimen, files: Files, name: str, what: str, *, is_sealed: bool = False, touched: str = ""
) -> str:
    """The answer's kind, after holding it against the law."""
    if worker._warm is None:
        assert worker.warm(part.files)[0] == "rows"
    answer = worker.read(files, touched)
    told = f"{name}, {what}, sealed={is_sealed}: {answer}"
    assert answer[0] in ("rows", "refused"), told
    if answer[0] == "rows" and not is_sealed and answer != part.answer(touched):
        # Nothing in the part vouches for columns.txt: whoever reads sees the other names or types and can tell.
        assert name == "columns.txt", told
        assert answer[2] != part.answer(touched)[2], told
    return str(answer[0])


def _positions(size: int, name: str) -> range:
    """Every byte of small files in the deep profile; else a few hundred a part."""
    return range(0, size, 1 if LONG else max(1, size // (3 if name.endswith(".bin") else 6)))


def _every_file(worker: Worker, part: Specimen, of: int = 1) -> dict[str, int]:
    """Each file with damage at positions all over it, one of so many; at length all, also with checksums made right."""
    seen = {"rows": 0, "refused": 0, "sealed": 0}
    for number, (name, data) in enumerate(sorted(part.files.items())):
        other = part.other.get(name, b"")
        cases = [
            ("swap", 0),
            *((kind, at) for kind in ("flip", "zero", "truncate") for at in _positions(len(data), name)),
        ]
        for kind, at in cases if LONG else cases[number % of :: of]:
            if name.endswith(".bin") and kind == "swap" and len(other) == len(data):
                continue  # right blocks of the right size: only check_part, which hashes whole files, can tell
            changed = damage(data, kind, at, 1 << at % 8 if kind == "flip" else at, other)
            if changed == data:
                continue
            seen[_judge(worker, part, {**part.files, name: changed}, name, f"{kind} at {at}", touched=name)] += 1
            if LONG:
                files = sealed(part.files, name, changed)
                _judge(worker, part, files, name, f"{kind} at {at}", is_sealed=True, touched=name)
                seen["sealed"] += 1
        missing = {file: body for file, body in part.files.items() if file != name}
        seen[_judge(worker, part, missing, name, "missing")] += 1
    print(seen)
    return seen


def test_damage_anywhere_in_our_parts_is_refused_or_harmless(worker: Worker, ours: Specimen) -> None:
    seen = _every_file(worker, ours)
    assert seen["refused"] > 5 * seen["rows"]


@pytest.mark.parametrize("profile", PROFILES)
def test_damage_anywhere_in_clickhouses_parts_is_refused_or_harmless(
    worker: Worker, theirs: dict[str, Specimen], profile: str
) -> None:
    _every_file(worker, theirs[profile])


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["wide", "compact"])
def test_damage_anywhere_in_columns_of_mixed_types_is_refused_or_harmless(
    worker: Worker, mixed: dict[str, Specimen], profile: str
) -> None:
    _every_file(worker, mixed[profile], of=3)  # it has very many files


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


@given(case=_CASES, profile=st.sampled_from(["wide", "compact"]))
def test_random_damage_in_columns_of_mixed_types(
    worker: Worker, mixed: dict[str, Specimen], case: Any, profile: str
) -> None:
    _one(worker, mixed[profile], case)


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
    "a mark past the end": ("k.mrk2", np.array([1 << 40, 0, ROWS, 1 << 40, 0, 0], np.int64).tobytes()),
    "a mark with a huge skip": ("s.mrk2", np.array([0, 1 << 29, ROWS, 0, 1 << 29, 0], np.int64).tobytes()),
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


def test_a_list_of_substreams_that_is_not_utf8_is_refused(worker: Worker, mixed: dict[str, Specimen]) -> None:
    part = mixed["wide"]
    data = part.files["columns_substreams.txt"]
    at = data.rindex(b"\tj") + 2
    files = {**part.files, "columns_substreams.txt": data[:at] + b"\xae" + data[at + 1 :]}
    assert _judge(worker, part, files, "columns_substreams.txt", "not UTF-8") == "refused"


def test_an_array_in_a_tuple_is_called_sparse_and_is_not(theirs: dict[str, Specimen]) -> None:
    """ClickHouse counts its empty arrays and writes `"kind":"Sparse"` for an element that cannot lie so."""
    assert b'"kind":"Sparse","num_defaults"' in theirs["wide"].files["serialization.json"]
    assert "t%2Ey.sparse.idx.bin" not in theirs["wide"].files


def test_a_flip_anywhere_in_a_packed_object_is_refused_or_harmless() -> None:
    """In a table of ours the manifest vouches for every file, `columns.txt` included."""
    store, schema = _table(COLUMNS, {}, "PARTITION BY toYYYYMM(day)")
    (manifest,) = write_blocks(insert_target(store, "t", schema, SeededIds(1), ManualClock()), [_block(1, COLUMNS)])
    key = f"t/{manifest.id}/files.packed"
    intact = store.get(key)
    columns = {column.name: column for column in schema.columns}

    def read() -> str:
        reader = PartReader(store, "t", manifest, columns)
        rows = [repr(batch.to_pylist()) for batch in reader.read(list(columns))]
        index = reader.primary_index([schema.types["k"]])
        return "".join([*rows, repr([array.to_pylist() for array in index])])

    expected = read()
    refused = 0
    for at in range(0, len(intact), 1 if LONG else 37):
        store.put(key, damage(intact, "flip", at, 1 << at % 8))
        try:
            assert read() == expected, at
        except MergelakeError:
            refused += 1
    assert refused > 0.8 * len(range(0, len(intact), 1 if LONG else 37))
