"""Mutations beside inserts, merges and readers of other threads."""

from __future__ import annotations

import threading
import time

import pytest

import mergelake as ml
from mergelake.log.model.state import State
from mergelake.log.model.volatile import lacking


def warehouse(settings: str = "", engine: str = "MergeTree") -> tuple[ml.Warehouse, ml.Table]:
    wh = ml.Warehouse(f"memory://concurrent{time.monotonic_ns()}")
    ml.Database(wh).sql(
        f"CREATE TABLE t (k UInt64, batch UInt64, v Int64) ENGINE = {engine} ORDER BY k "
        f"SETTINGS min_age_to_apply_mutations_seconds = 0{settings}"
    )
    return wh, wh.table("t")


class Inserter(threading.Thread):
    """Inserts batches of ten rows until it is stopped, each with its number."""

    def __init__(self, table: ml.Table) -> None:
        super().__init__()
        self.table = table
        self.versions: dict[int, int] = {}
        """Version of the commit of each batch."""
        self.stop = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        number = 0
        try:
            while not self.stop.is_set():
                number += 1
                rows = {"k": range(10), "batch": [number] * 10, "v": [0] * 10}
                self.versions[number] = self.table.append({name: list(column) for name, column in rows.items()}).version
        except Exception as failure:
            self.failure = failure


def test_an_insert_is_before_or_after_a_mutation_and_nothing_else():
    # M-036, M-037
    wh, table = warehouse()
    writer = Inserter(ml.Warehouse(wh.store).table("t"))
    writer.start()
    mutations = []
    for at in range(5):
        time.sleep(0.05)
        mutations.append(table.update({"v": f"v + {10**at}"}, where="k < 5"))
        if at == 2:
            table.optimize(final=True)
    time.sleep(0.05)
    writer.stop.set()
    writer.join()
    assert writer.failure is None
    for written_down in (False, True):
        if written_down:
            table.apply_mutations()
        table.refresh()
        seen: dict[int, set[int]] = {}
        untouched = 0
        for k, batch, v in table.scan():
            if k < 5:
                seen.setdefault(batch, set()).add(v)
            else:
                untouched += v
        assert untouched == 0
        for batch, version in writer.versions.items():
            assert seen[batch] == {sum(10**at for at, mutated in enumerate(mutations) if mutated > version)}


def lag(state: State) -> int:
    """How many parts lack a mutation."""
    return sum(bool(lacking(state.mutations, part.info)) for part in state.parts())


@pytest.mark.parametrize("policy", ["direct", "volatile"])
def test_under_constant_inserts_mutations_finish_and_inserts_go_on(policy, tmp_path):
    # M-039: a node of two slots always has one for mutations while one waits, so with n parts that lack it the end
    # comes after at most n pieces of work, whatever is inserted and merged meanwhile
    wh, table = warehouse(f", merge_upload_policy = '{policy}', volatile_upload_age_seconds = 1")
    writer = Inserter(ml.Warehouse(wh.store).table("t"))
    writer.start()
    stop = threading.Event()
    node = ml.Warehouse(wh.store).node("n", poll_s=0.01, local=str(tmp_path))
    thread = threading.Thread(target=node.run, args=(stop,))
    thread.start()
    try:
        for round_ in range(5):
            time.sleep(0.2)
            before = len(writer.versions)
            table.update({"v": "v + 1"}, where="k % 2 = 0")
            behind, ticks = lag(table.handle.log.state), node.status.ticks
            deadline = time.monotonic() + 60
            while any(not m.finished_ms for m in table.handle.refresh().mutations):
                assert time.monotonic() < deadline, "the mutation does not end"
                time.sleep(0.01)
            # Each piece of work is at most some ticks: those of its commit, and of the merge that it waits for.
            assert node.status.ticks - ticks <= 40 * behind + 400, round_
            while len(writer.versions) == before:  # inserts go on
                assert time.monotonic() < deadline, "no insert lands"
                time.sleep(0.01)
    finally:
        writer.stop.set()
        writer.join()
        stop.set()
        thread.join()
    assert writer.failure is None
    assert node.status.merges_done > 0
    table.refresh()
    assert all(v == 0 for k, _, v in table.scan() if k % 2)
    assert sum(1 for _ in table.scan(["k"])) == 10 * len(writer.versions)


def test_a_reader_sees_a_mutation_on_all_parts_or_on_none():
    # M-099
    wh, table = warehouse()
    for _ in range(12):
        table.append({"k": list(range(100)), "batch": [0] * 100, "v": [0] * 100})
    mixtures: list[set[int]] = []
    stop = threading.Event()

    def read() -> None:
        reader = ml.Warehouse(wh.store).table("t")
        while not stop.is_set():
            values = set(reader.scan(["v"]).arrow()["v"].to_pylist())
            if len(values) != 1:
                mixtures.append(values)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(6):
        table.update({"v": "v + 1"}, where="1")
        table.apply_mutations()
    stop.set()
    for reader in readers:
        reader.join()
    assert not mixtures


def test_a_failing_row_blocks_its_part_and_nothing_else():
    _, table = warehouse()
    table.append({"k": [1, 2], "batch": [1, 1], "v": [5, 0]})
    table.append({"k": [3], "batch": [1], "v": [2]})
    table.update({"v": "intDiv(10, v)"}, where="k > 0")
    with pytest.raises(ml.MergelakeError, match="UNFINISHED"):
        table.apply_mutations()
    (mutation,) = table.handle.refresh().mutations
    assert mutation.failure is not None
    assert (mutation.failure.part, mutation.failure.code) == ("all_1_1_0", "ILLEGAL_DIVISION")
    with pytest.raises(ml.MergelakeError, match="ILLEGAL_DIVISION"):
        table.scan(["v"]).arrow()
    assert sorted(table.scan(["k"])) == [(1,), (2,), (3,)]  # columns that it does not touch
    assert [part.name for part in table.handle.log.state.parts()] == ["all_1_1_0", "all_2_2_0_3"]
