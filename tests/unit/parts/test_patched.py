"""Rows of patch parts are joined to those of a part by block number and offset; the newest value counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.names import PartInfo, patched_partition
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.adopt import open_directory
from mergelake.parts.tools.patched import Change, PatchedPart, PatchRows, latest, scattered
from mergelake.parts.tools.patches import PatchPart, active, find_patches, naming
from mergelake.store.objects.directory import DirectoryStore

HASH = "0123456789abcdef" * 2
Row = tuple[int, int, int, int]  # block, place, version, value
NUMBERS = st.sampled_from([1, 2, 7, (1 << 63) + 5, (1 << 64) - 1])
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(1, 9), st.integers(0, 255)), max_size=30)


def _u64(values: list[int]) -> Any:
    return np.array(values, np.uint64)


def _change(parts: list[list[Row]]) -> Change:
    patches = []
    for rows in parts:
        blocks, places, versions, values = ([row[at] for row in rows] for at in range(4))
        column = pa.array(values, pa.uint8())
        patches.append(PatchRows(_u64(blocks), _u64(places), _u64(versions), {"v": column}))
    return latest(patches, ["v"])


@given(st.lists(ROWS, min_size=1, max_size=3), st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30, unique=True))
def test_each_row_gets_the_value_of_the_greatest_version(
    parts: list[list[Row]], identities: list[tuple[int, int]]
) -> None:
    newest: dict[tuple[int, int], tuple[int, int]] = {}
    kept = [[row for at, row in enumerate(rows) if row[:3] not in {r[:3] for r in rows[:at]}] for rows in parts]
    seen: set[tuple[int, int, int]] = set()
    for rows in kept:  # no two values of one version
        rows[:] = [row for row in rows if row[:3] not in seen]
        seen |= {row[:3] for row in rows}
        for block, place, version, value in rows:
            newest[block, place] = max(newest.get((block, place), (0, 0)), (version, value))
    old = [n % 200 for n in range(len(identities))]
    applied = _change(kept).applied(
        {"v": pa.array(old, pa.uint8())}, _u64([i for i, _ in identities]), _u64([j for _, j in identities])
    )
    want = [newest[pair][1] if pair in newest else old[at] for at, pair in enumerate(identities)]
    assert applied.get("v", pa.array(old, pa.uint8())).to_pylist() == want


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.array([1, None, 3]), pa.array([None, 9])),
        (pa.array([b"a", b"", None], pa.binary()), pa.array([b"long", None], pa.binary())),
        (pa.array(["a", None, "b"]).dictionary_encode(), pa.array(["c", "b"]).dictionary_encode()),
        (pa.array([[1], [], [2, 3]]), pa.array([[], [4]])),
        (pa.array([{"x": 1}, {"x": 2}, {"x": None}]), pa.array([{"x": 7}, {"x": None}])),
    ],
)
def test_values_of_every_form_are_replaced(old: pa.Array, new: pa.Array) -> None:
    want = [new.to_pylist()[1], old.to_pylist()[1], new.to_pylist()[0]]
    assert scattered(old, new, np.array([2, 0])).to_pylist() == want


def test_parts_that_others_cover_are_not_active() -> None:
    names = ["a_1_1_0", "a_2_2_0_5", "a_1_2_1_7", "a_3_3_0", "b_1_1_0", "a_1_1_0_3", "a_4_9_2", "a_5_6_1"]
    found = [str(info) for info in active([PartInfo.parse(name) for name in names])]
    assert found == ["a_1_2_1_7", "a_3_3_0", "a_4_9_2", "b_1_1_0"]


@pytest.mark.parametrize(
    ("partition_id", "patched"),
    [
        (f"patch-{HASH}-all", "all"),
        (f"patch-{HASH}--7-3", "-7-3"),
        (f"patch-{HASH}-", None),
        ("patch-1", None),
        ("all", None),
    ],
)
def test_the_partition_of_a_patch_part_is_in_its_name(partition_id: str, patched: str | None) -> None:
    assert patched_partition(partition_id) == patched


def test_errors_get_the_name_of_the_patch_part() -> None:
    with pytest.raises(MergelakeError, match="The patch part p1 cannot be applied: no space"), naming("p1"):
        raise MergelakeError("no space")
    with pytest.raises(MergelakeError, match=r"^p1/data\.bin is cut$"), naming("p1"):
        raise MergelakeError("p1/data.bin is cut")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A part of ten rows, and a patch part with versions 3 and 8 of three of them."""
    ddl = "CREATE TABLE t (k UInt32, v String) ENGINE = MergeTree ORDER BY k"
    (part,) = ml.write_part({"k": list(range(10)), "v": ["old"] * 10}, str(tmp_path), ddl, part_name="all_1_1_0")
    assert part.name == "all_1_1_0"
    patch = (
        "CREATE TABLE t (k UInt32, v String, _part String, _part_data_version UInt64, _block_number UInt64, "
        "_block_offset UInt64) ENGINE = MergeTree ORDER BY _block_offset"
    )
    rows = {
        "k": [2, 5, 5, 0],
        "v": ["two", "five", "newer", "of another"],
        "_part": ["all_1_1_0"] * 3 + ["all_4_4_0"],
        "_part_data_version": [3, 3, 8, 8],
        "_block_number": [1, 1, 1, 4],
        "_block_offset": [2, 5, 5, 0],
    }
    name = f"patch-{HASH}-all_5_5_0_8"
    (written,) = ml.write_part(rows, str(tmp_path / "apart"), patch)
    Path(written.path).rename(tmp_path / name)
    sources = b"\1\3(k)" + (1).to_bytes(8, "little") + b"\x09all_1_1_0" + bytes([3, *[0] * 7, 8, *[0] * 7])
    (tmp_path / name / "source_parts.dat").write_bytes(sources)
    return tmp_path


def test_a_part_is_read_with_its_patch_parts(folder: Path) -> None:
    part = ml.read_part(str(folder / "all_1_1_0"))
    values = ["old"] * 10
    values[2], values[5] = "two", "newer"
    assert part.arrow().column("v").to_pylist() == values
    assert part.rows == 10
    assert ml.read_part(str(folder / "all_1_1_0"), patches=False).arrow().column("v").to_pylist() == ["old"] * 10


@pytest.mark.parametrize(
    ("data_version", "changed"), [(1, {2: "two", 5: "newer"}), (3, {5: "newer"}), (7, {5: "newer"}), (8, {})]
)
def test_only_newer_values_are_applied(folder: Path, data_version: int, changed: dict[int, str]) -> None:
    store = DirectoryStore(str(folder))
    info = PartInfo("all", 1, 1, 0, data_version)
    patches = find_patches(store, "", info)
    assert len(patches) == bool(changed)
    opened = open_directory(store, "all_1_1_0")
    reader = PartReader(store, "", opened.manifest, opened.columns)
    batches = list(PatchedPart(reader, info, opened.row_ids, patches).read(["v"], batch_rows=4))
    found = [value for batch in batches for value in batch.column("v").to_pylist()]
    assert {at: value.decode() for at, value in enumerate(found) if value != b"old"} == changed


def test_a_part_without_its_name_has_no_patch_parts(folder: Path) -> None:
    (folder / "all_1_1_0").rename(folder / "copy")
    assert set(ml.read_part(str(folder / "copy")).arrow().column("v").to_pylist()) == {"old"}


def test_what_lies_beside_a_part_is_not_looked_into(folder: Path) -> None:
    (folder / "zzz").mkdir(mode=0)
    (folder / "patch-notes").mkdir()
    (folder / "patch-notes" / "file.txt").touch()
    (folder / f"patch-{HASH}-all_6_6_0_9").touch()
    assert ml.read_part(str(folder / "all_1_1_0")).rows == 10


def test_keys_of_patch_parts_are_no_changes(folder: Path) -> None:
    (patch,) = find_patches(DirectoryStore(str(folder)), "", PartInfo.parse("all_1_1_0"))
    assert isinstance(patch, PatchPart)
    assert list(patch.updated) == ["v"]
