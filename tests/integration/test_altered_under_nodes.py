"""Indexes, keys and constraints change while nodes with disks merge: no row is lost, none is found by a wrong index."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.errors import ConflictError, MergelakeError
from mergelake.core.model.schema import Constraint, SkipIndex
from mergelake.table.definition.columns import AddColumn, ColumnDefinition
from mergelake.table.definition.constraints import AddConstraint
from mergelake.table.definition.define import define
from mergelake.table.definition.indexes import AddIndex, DropIndex
from mergelake.table.definition.keys import ModifyOrderBy

ROWS = 200


def rows(number: int, *, more: bool) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    columns = {"k": [n % 50 for n in ids], "n": list(ids), "b": [-n for n in ids]}
    return pa.table({**columns, **({"x": [n % 3 for n in ids]} if more else {})})


@pytest.mark.parametrize("policy", ["volatile", "direct"])
def test_definitions_change_under_two_nodes(tmp_path: Path, policy: str) -> None:
    columns = {"k": "Int32", "n": "Int64", "b": "Int64"}
    settings = {"merge_upload_policy": policy, "index_granularity": 64, "min_bytes_for_wide_part": 0}
    writer = Warehouse(str(tmp_path / "w"))
    table = writer.create_table("t", define(columns, order_by="k", settings=settings))
    disk = str(tmp_path / "disk") if policy == "volatile" else None
    nodes = [Warehouse(str(tmp_path / "w")).node(f"n{i}", poll_s=0.02, local=disk) for i in range(2)]
    stop = threading.Event()
    threads = [threading.Thread(target=node.run, args=(stop, 30.0)) for node in nodes]
    for thread in threads:
        thread.start()
    try:
        for number in range(24):
            match number:
                case 4:
                    table.add_index("i", "n")
                case 8:
                    table.alter([DropIndex("i"), AddIndex(SkipIndex("i", "b", "minmax"))])
                    table.materialize_index("i")
                case 12:
                    column = AddColumn(ColumnDefinition("x", table.schema.types["k"]))
                    table.alter([column, ModifyOrderBy(("k", "x")), AddConstraint(Constraint("c", "CHECK", "n >= 0"))])
                case 16:
                    table.update({"b": "b - 1"}, "n < 100")
                    table.clear_index("i")
                case 20:
                    table.add_constraint("d", "b < 1 AND x < 3")
            try:
                table.append(rows(number, more=number > 12))
            except ConflictError:  # the table was altered while it was written
                table.append(rows(number, more=number > 12))
            with pytest.raises(MergelakeError):
                table.append({"k": [1], "n": [-1], "nobody": [1]})
            if number % 5 == 0:
                found = table.scan(["n"], f"n = {number * ROWS + 7}").arrow().num_rows
                assert found == 1
                changed = 1 if number >= 16 and number * ROWS + 7 < 100 else 0
                assert table.scan(["n"], f"b = {-(number * ROWS + 7) - changed}").arrow().num_rows == 1
            time.sleep(0.02)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    table.refresh()
    assert sorted(table.scan(["n"]).arrow()["n"].to_pylist()) == list(range(24 * ROWS))
    assert all(node.status.results_different == 0 for node in nodes)
    table.apply_mutations()
    table.optimize(final=True)
    assert sorted(table.scan(["n"]).arrow()["n"].to_pylist()) == list(range(24 * ROWS))
    got = table.scan(["k", "x", "n", "b"], ordered=True).arrow()
    pairs = list(zip(got["k"].to_pylist(), got["x"].to_pylist(), strict=True))
    assert pairs == sorted(pairs)
    assert all(table.check()["is_passed"].to_pylist())
    with pytest.raises(MergelakeError) as caught:
        table.append({"k": [1], "n": [-1], "b": [0], "x": [0]})
    assert caught.value.name == "VIOLATED_CONSTRAINT"
