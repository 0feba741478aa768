"""Small parts that are read together give the rows that they give one by one: random tables, near and far."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mergelake import connect
from mergelake.core.base.errors import CorruptDataError
from mergelake.parts.read.joined import JoinedReader
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read import ahead, read as scan_read, together
from mergelake.store.interface.protocol import Store
from mergelake.store.objects.directory import DirectoryStore
from tests.helpers.far_store import FarStore
from tests.helpers.random_tables import RandomTable, random_table
from tests.helpers.scans import ScanTable, make_schema

TABLES = 16


def _table(made: RandomTable, store: Store, folder: Path, rng: np.random.Generator) -> ScanTable:
    db = connect(str(folder))
    db.sql(made.create("t", f"{made.our_settings}, optimize_on_insert = 0"))
    table = ScanTable(db.table("t").schema, store)
    cuts = np.sort(rng.integers(0, made.block.num_rows + 1, 12))
    for begin, end in zip([0, *cuts], [*cuts, made.block.num_rows], strict=True):
        if end > begin:
            table.insert_block(made.block.slice(begin, end - begin))
    return table


def _request(table: ScanTable, rng: np.random.Generator) -> ScanRequest:
    names = list(table.schema.names)
    some = tuple(str(name) for name in rng.permutation(names)[: int(rng.integers(1, len(names) + 1))])
    numbers = [name for name, kind in table.schema.types.items() if str(kind).startswith(("Int", "UInt"))]
    where = f"toUInt8(`{rng.choice(numbers)}`) % 3 != 0" if numbers and rng.random() < 0.5 else None
    return ScanRequest(some, where=where)


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
@pytest.mark.parametrize("seed", range(TABLES))
def test_rows_and_their_order_are_those_of_parts_read_one_by_one(tmp_path: Path, far: bool, seed: int) -> None:
    rng = np.random.default_rng([20, seed])
    store = FarStore() if far else DirectoryStore(str(tmp_path / "store"))
    table = _table(random_table(rng), store, tmp_path / "schema", rng)
    joined = 0
    for _ in range(5):
        request = _request(table, rng)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(together, "can_join", lambda plan: False)
            patch.setattr(ahead, "can_join", lambda plan: False)
            apart = list(map(repr, table.scan(request, ordered=True)))
        with pytest.MonkeyPatch.context() as patch:
            made: list[int] = []
            for module in (scan_read, ahead):
                patch.setattr(module, "suppress", lambda *_: nullcontext())  # nothing is read one by one after all
            patch.setattr(JoinedReader, "__init__", _counted(JoinedReader.__init__, made))
            assert list(map(repr, table.scan(request, ordered=True))) == apart
            joined += len(made)
    packed = table.schema.settings.get("min_bytes_for_full_part_storage") != "0"
    wide = "min_rows_for_wide_part" not in table.schema.settings
    if packed and wide and len(table.handle.snapshot().parts) > 1:
        assert joined


def test_small_parts_are_read_by_one_request_each(tmp_path: Path) -> None:
    table = _numbers(DirectoryStore(str(tmp_path)))
    table.scan(ScanRequest(("k", "s")))
    before = table.store.counters.get
    assert len(table.scan(ScanRequest(("k", "s"), where="k % 2 = 0"))) == 100
    assert table.store.counters.get - before == 20
    names = {row["_part"] for row in table.scan(ScanRequest(("_part",)))}
    assert names == {b"all_%d_%d_0" % (number, number) for number in range(1, 21)}


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
def test_damage_in_one_of_many_parts_is_told_with_its_object(tmp_path: Path, far: bool) -> None:
    table = _numbers(FarStore() if far else DirectoryStore(str(tmp_path)))
    part = table.handle.snapshot().parts[7]
    (extent,) = part.manifest.file_table()["s.bin"].extents
    body = bytearray(table.store.get(f"t/{extent.key}"))
    body[extent.offset + extent.length - 3] ^= 1
    table.store.put(f"t/{extent.key}", bytes(body))
    assert len(table.scan(ScanRequest(("k",)))) == 200
    with pytest.raises(CorruptDataError, match=r"Checksum.*all_8_8_0") as caught:
        table.scan(ScanRequest(("k", "s")))
    assert caught.value.object_key == f"t/{extent.key}"


def _numbers(store: Store) -> ScanTable:
    table = ScanTable(make_schema({"k": "UInt32", "s": "String"}, order_by=("k",)), store)
    for part in range(20):
        table.insert([{"k": 20 * i + part, "s": b"%d" % i} for i in range(10)])
    return table


def _counted(init: Any, made: list[int]) -> Any:
    def counted(self: JoinedReader, parts: Any) -> None:
        made.append(len(parts))
        init(self, parts)

    return counted
