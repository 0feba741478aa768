"""Publishing a table with mutations: nothing new is shown while some are pending, and parts keep their names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.mutate.submit import kill
from mergelake.jobs.publish.plan import shown_token
from mergelake.jobs.publish.publish import follow, publish, unpublish
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define

DAY = 86400
ROWS = 30_000


class Watched(MemoryStore):
    """A store that knows in which order objects were put."""

    def __init__(self, **options):
        super().__init__(**options)
        self.puts = []

    def put(self, key, data):
        self.puts.append(key)
        super().put(key, data)


@pytest.fixture
def warehouse():
    clock = ManualClock()
    return Warehouse(Watched(clock=clock), clock=clock, ids=SeededIds(1), author="me", threads=1)


@pytest.fixture
def table(warehouse):
    """Two parts, shown: a large one, in which columns can be rewritten, and a small one."""
    schema = define({"k": "UInt64", "v": "UInt64", "s": "String"}, order_by="k")
    made = warehouse.create_table("t", schema.with_settings({"min_bytes_for_wide_part": "0"}))
    numbers = np.random.default_rng(1).integers(0, 1 << 60, ROWS, dtype=np.uint64)
    made.append(pa.table({"k": np.arange(ROWS, dtype=np.uint64), "v": numbers, "s": [f"{n:x}" for n in numbers]}))
    made.append({"k": [1_000_000], "v": [1], "s": ["x"]})
    made.publish()
    return made


def names(table):
    """Token -> published name."""
    store, prefix = table.handle.store, f"{table.handle.directory}/__meta/"
    return {meta.key[len(prefix) :].partition("/")[0]: store.get(meta.key).decode() for meta in store.list(prefix)}


def first(table):
    return next(iter(table.handle.log.state.parts()))


def test_a_version_with_pending_mutations_is_not_shown_and_the_report_says_why(table):
    before = names(table)
    table.append({"k": [7], "v": [7], "s": ["y"]})
    table.update({"v": "v + 1"}, "k = 1")
    table.delete("k = 2")
    report = publish(table.handle)
    assert (report.version, report.added, report.dropped, report.removed) == (3, (), (), ())
    assert report.pending == ("mutation_4.txt", "mutation_5.txt")
    assert names(table) == before
    table.apply_mutations()
    report = publish(table.handle)
    assert (report.added, report.pending) == (("all_1_1_0_5", "all_3_3_0_5"), ())
    assert report.version == table.version


def test_publishing_a_table_applies_its_mutations_first(table):
    table.delete("k >= 1000000")
    assert table.publish().added == ("all_2_2_0_3",)
    assert publish(table.handle).added == ()


def test_while_a_mutation_fails_the_version_before_stays_shown(table):
    before = names(table)
    table.update({"v": "v + toUInt64(s)"}, "k = 1000000")
    with pytest.raises(MergelakeError) as failure:
        table.publish()
    assert failure.value.name == "UNFINISHED"
    assert names(table) == before
    (mutation,) = table.handle.log.state.mutations
    kill(table.handle, mutation.name)
    assert table.publish().pending == ()
    assert names(table) == before


def test_a_follower_tells_once_that_it_waits_and_goes_on_when_all_parts_are_mutated(table):
    reports, looks = [], []
    table.update({"v": "v + 1"}, "k = 1")

    def stop():
        looks.append(len(reports))
        if len(looks) == 6:
            table.append({"k": [7], "v": [7], "s": ["y"]})
        if len(looks) == 12:
            table.apply_mutations()
        return len(looks) == 20

    follow(table.handle, 0.001, stop, on_report=reports.append)
    assert [(report.added, report.pending) for report in reports] == [
        ((), ("mutation_3.txt",)),
        (("all_1_1_0_3", "all_4_4_0"), ()),
    ]


def test_names_of_mutated_parts_are_put_after_all_of_their_files(table):
    store = table.handle.store
    table.update({"v": "v + 1"}, "1")
    table.apply_mutations()
    store.puts.clear()
    assert len(publish(table.handle).added) == 2
    kinds = ["__meta" in key for key in store.puts]
    assert kinds == sorted(kinds)
    assert sum(kinds) == 2


def test_a_part_with_files_in_several_directories_is_laid_out_in_one_of_its_own(table):
    store, old = table.handle.store, first(table).manifest.id
    table.delete("k % 3 = 1 AND k < 1000000")
    table.apply_mutations()
    part = first(table)
    files = part.manifest.file_table()
    assert part.manifest.masked
    assert {extent.key.partition("/")[0] for file in files.values() for extent in file.extents} == {
        part.manifest.id,
        old,
    }
    before = store.counters
    publish(table.handle)
    after = store.counters
    token = shown_token(part.manifest)
    assert token == f"plain-{part.manifest.id}"  # its own object is none of its files
    prefix = f"{table.handle.directory}/{token}/"
    assert {meta.key[len(prefix) :]: meta.size for meta in store.list(prefix)} == {
        file.name: file.size for file in files.values()
    }
    # A PUT for each file and one for the name; a few requests for what lies side by side.
    assert after.put - before.put == len(files) + 1
    assert after.get - before.get <= 6
    assert after.bytes_put - before.bytes_put < part.manifest.bytes_on_disk + 100
    assert after.bytes_get - before.bytes_get < 1.1 * part.manifest.bytes_on_disk + 20_000
    assert table.check()["is_passed"].to_pylist() == [1, 1]


def test_objects_of_old_parts_stay_while_a_mutated_one_refers_to_them(warehouse, table):
    directory, rows = table.handle.directory, list(table.scan(where="k % 3 != 1 OR k = 1000000", ordered=True))
    old = first(table).manifest.id
    table.delete("k % 3 = 1 AND k < 1000000")
    table.publish()
    mutated = first(table).manifest
    for _ in range(20):
        warehouse.gc()
        warehouse.clock.advance_s(2 * DAY)
        table.publish()
    kept = {meta.key.split("/")[1] for meta in warehouse.store.list(directory) if "_log" not in meta.key}
    assert {old, mutated.id, shown_token(mutated)} <= kept
    assert list(table.scan(ordered=True)) == rows
    table.optimize(final=True)
    for _ in range(20):
        table.publish()
        warehouse.gc()
        warehouse.clock.advance_s(2 * DAY)
    left = {meta.key.split("/")[1] for meta in warehouse.store.list(directory)} - {"__meta", "__root", "_log", "_gc"}
    assert left == {first(table).manifest.id, shown_token(first(table).manifest)}
    assert list(table.scan(ordered=True)) == rows


def test_a_part_in_which_no_row_changed_keeps_its_name_until_all_names_are_written_anew(warehouse, table):
    before = names(table)
    table.update({"v": "v + 1"}, "k = 123456789")
    table.publish()
    assert [part.name for part in table.handle.log.state.parts()] == ["all_1_1_0_3", "all_2_2_0_3"]
    assert names(table) == before
    fresh = Warehouse(warehouse.store, clock=warehouse.clock, ids=SeededIds(2)).table("t")
    report = publish(fresh.handle)
    assert (report.added, report.dropped, report.removed, report.waiting) == ((), (), (), 0)
    assert all(report.clean for _, report in warehouse.fsck("t"))
    unpublish(table.handle)
    publish(fresh.handle)
    assert set(names(table)) == set(before)
    assert sorted(names(table).values()) == ["all_1_1_0_3/", "all_2_2_0_3/"]
    assert publish(table.handle).added == ()
    assert all(report.clean for _, report in warehouse.fsck("t"))
    table.drop_part("all_2_2_0_3")
    assert publish(table.handle).dropped == ("all_2_2_1_3",)
    assert publish(fresh.handle).dropped == ()
    assert all(report.clean for _, report in warehouse.fsck("t"))


def test_wrong_names_are_mended_once_no_part_lacks_a_mutation(warehouse, table):
    store, ghost = warehouse.store, "cd" * 16
    token = shown_token(first(table).manifest)
    key = f"{table.handle.directory}/__meta/{token}/prefix.path"
    store.put(key, b"all_9_9_9/")
    store.put(f"{table.handle.directory}/__meta/{ghost}/prefix.path", b"all_77_77_0/")
    table.update({"v": "v + 1"}, "k = 123456789")
    ((_, report),) = warehouse.fsck("t", repair=True)
    assert {(f.where, f.way_out) for f in report.findings if f.kind == "name"} == {
        (where, "--repair mends it once all mutations are applied") for where in (token, ghost)
    }
    assert not report.repaired
    assert ghost in names(table)
    table.apply_mutations()
    ((_, report),) = warehouse.fsck("t", repair=True)
    assert f"took the name of {ghost} away" in report.repaired
    assert names(table)[token] == "all_1_1_0_3/"
    assert all(report.clean for _, report in warehouse.fsck("t"))
