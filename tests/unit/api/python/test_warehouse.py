"""Databases and tables by name."""

from __future__ import annotations

import threading

import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.errors import InvalidInputError, MergelakeError, NotFoundError, UnsupportedError
from mergelake.log.model.operations import CreateTable
from mergelake.store import open_store
from mergelake.store.interface.protocol import Stored
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.testing.faulty_store import Fault, FaultyStore, SimulatedCrash

SCHEMA = define({"k": "UInt64", "v": "String"}, order_by="k")


@pytest.fixture
def warehouse():
    return Warehouse(MemoryStore())


def test_a_new_warehouse_has_an_empty_default_database(warehouse):
    assert warehouse.databases() == ["default"]
    assert warehouse.tables() == []


def test_a_table_is_found_again_by_another_process(tmp_path):  # M-063
    first = Warehouse(str(tmp_path))
    first.create_database("web")
    made = first.create_table("web.hits", SCHEMA)
    second = Warehouse(str(tmp_path))
    assert second.tables() == ["web.hits"]
    assert second.tables("web") == ["hits"]
    found = second.table("web.hits")
    assert found.schema == SCHEMA
    assert found.location == made.location == f"{tmp_path}/{made.handle.directory}"
    assert second.has_table("web.hits")
    assert not second.has_table("hits")


def test_names_that_are_taken_or_missing_have_clickhouses_codes(warehouse):
    warehouse.create_table("events", SCHEMA)
    for call, code, says in (
        (lambda: warehouse.create_table("events", SCHEMA), 57, "already exists"),
        (lambda: warehouse.create_table("nowhere.t", SCHEMA), 81, "nowhere"),
        (lambda: warehouse.create_database("default"), 82, "default"),
        (lambda: warehouse.drop_database("nowhere"), 81, "nowhere"),
        (lambda: warehouse.table("evnets"), 60, "Maybe you meant events"),
        (lambda: warehouse.table("defualt.events"), 81, "Maybe you meant default"),
        (lambda: warehouse.drop_table("nobody"), 60, "nobody"),
        (lambda: warehouse.rename_table("nobody", "t"), 60, "nobody"),
        (lambda: warehouse.rename_table("events", "events"), 57, "events"),
        (lambda: warehouse.exchange_tables("events", "nobody"), 60, "nobody"),
        (lambda: warehouse.create_table("x" * 207, SCHEMA), 36, "206"),
        (lambda: warehouse.create_table("", SCHEMA), 36, "name"),
    ):
        with pytest.raises(MergelakeError, match=says) as caught:
            call()
        assert caught.value.code == code
    assert warehouse.tables() == ["default.events"]


def test_what_may_be_there_or_missing_is_no_error(warehouse):
    made = warehouse.create_table("t", SCHEMA)
    assert warehouse.create_table("t", SCHEMA, if_not_exists=True).location == made.location
    warehouse.create_database("default", if_not_exists=True)
    warehouse.drop_table("nobody", if_exists=True)
    warehouse.drop_database("nobody", if_exists=True)


def test_a_rename_moves_no_byte(warehouse):
    warehouse.create_database("archive")
    made = warehouse.create_table("t", SCHEMA)
    made.append({"k": [1], "v": ["x"]})
    before = warehouse.store.counters
    warehouse.rename_table("t", "archive.t2")
    assert warehouse.store.counters.put - before.put == 1
    assert warehouse.tables() == ["archive.t2"]
    assert warehouse.table("archive.t2").location == made.location
    made.append({"k": [2], "v": ["y"]})
    assert warehouse.table("archive.t2").snapshot().rows == 2


def test_an_exchange_swaps_two_tables_at_once(warehouse):
    one, two = warehouse.create_table("one", SCHEMA), warehouse.create_table("two", SCHEMA)
    warehouse.exchange_tables("one", "two")
    assert warehouse.table("one").location == two.location
    assert warehouse.table("two").location == one.location


def test_a_dropped_table_takes_no_more_rows(warehouse):
    table = warehouse.create_table("t", SCHEMA)
    other = warehouse.table("t")
    warehouse.drop_table("t")
    assert warehouse.tables() == []
    with pytest.raises(NotFoundError, match="dropped"):
        table.append({"k": [1], "v": ["x"]})
    with pytest.raises(NotFoundError):
        other.append({"k": [1], "v": ["x"]})
    assert warehouse.create_table("t", SCHEMA).location != table.location


def test_dropping_a_database_drops_its_tables(warehouse):
    warehouse.create_database("d")
    table = warehouse.create_table("d.t", SCHEMA)
    warehouse.drop_database("d")
    assert warehouse.databases() == ["default"]
    with pytest.raises(NotFoundError):
        table.append({"k": [1], "v": ["x"]})


def test_a_bad_schema_is_refused_before_anything_is_written(warehouse):
    before = warehouse.store.counters
    with pytest.raises(UnsupportedError, match="NOT_IMPLEMENTED"):
        warehouse.create_table("t", define({"k": "UInt64"}, order_by="k", engine="Log"))
    assert warehouse.store.counters.put == before.put


def test_a_store_without_create_if_absent_is_refused():  # M-066
    class Liar(MemoryStore):
        def create(self, key, data):
            self.put(key, data)
            return Stored()

    with pytest.raises(MergelakeError, match="create-if-absent"):
        Warehouse(Liar()).create_table("t", SCHEMA)


def test_the_store_is_probed_once():
    store = MemoryStore()
    Warehouse(store).create_table("t", SCHEMA)
    before = store.counters
    Warehouse(store)
    assert store.counters.put == before.put


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_crash_while_creating_never_leaves_a_name_without_a_table(fault):
    counting = FaultyStore(MemoryStore())
    ready = Warehouse(counting)
    start = counting.operations
    ready.create_table("t", SCHEMA)
    for step in range(start, counting.operations):
        store = MemoryStore()
        with pytest.raises(SimulatedCrash):
            Warehouse(FaultyStore(store, script={step: fault})).create_table("t", SCHEMA)
        after = Warehouse(store)
        for name in after.tables():
            assert after.table(name).schema == SCHEMA
        after.create_table("t", SCHEMA, if_not_exists=True).append({"k": [1], "v": [""]})


def test_of_many_that_create_one_table_one_wins(tmp_path):
    store = open_store(str(tmp_path), {"sync": "false"})
    Warehouse(store).create_database("d")
    outcomes = []

    def work():
        try:
            outcomes.append(Warehouse(store).create_table("d.t", SCHEMA).location)
        except MergelakeError as failure:
            outcomes.append(failure.name)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("TABLE_ALREADY_EXISTS") == 5
    assert Warehouse(store).table("d.t").location in outcomes


def test_a_table_of_a_newer_format_is_refused(warehouse):
    table = warehouse.create_table("t", SCHEMA)
    key = f"{table.handle.directory}/_log/00000000000000000002.json"
    warehouse.store.put(key, b'{"format": 5, "version": 2}')
    with pytest.raises(InvalidInputError, match="UNKNOWN_FORMAT_VERSION"):
        warehouse.table("t")
    assert isinstance(next(table.handle.log.entries(1, 1)).ops[0], CreateTable)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"threads": 0}, "number of threads"),
        ({"threads": -1}, "number of threads"),
        ({"spark": 5}, "no Spark session"),
        ({"log": "nope"}, "does not say where a log is"),
        ({"storage_options": {"log": "bucket"}, "log": "sealed"}, "given twice"),
        ({"storage_options": {"foo": "1"}}, "has no option foo"),
        ({"storage_options": "foo=1"}, "given as a str"),
        ({"read_consistency": "weak"}, "read_consistency"),
    ],
)
def test_what_a_warehouse_does_not_know_is_refused_and_nothing_is_made(tmp_path, options, says):
    with pytest.raises(MergelakeError, match=says):
        Warehouse(str(tmp_path / "w"), **options)
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"slots": 0}, "0 slots"),
        ({"poll_s": -1.0}, "every -1.0 s"),
        ({"only": "t"}, "list of tables"),
        ({"only": ["nosuch"]}, "nosuch"),
        ({"roles": ["cook"]}, "cook"),
        ({"roles": []}, "none"),
    ],
)
def test_a_node_refuses_what_it_does_not_know(warehouse, options, says):
    with pytest.raises(MergelakeError, match=says):
        warehouse.node(**options)
