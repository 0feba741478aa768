"""The names of tables as a state machine."""

from __future__ import annotations

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import CorruptDataError, InvalidInputError, NotFoundError
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.log.commit.commit import Log
from mergelake.log.model.operations import (
    CreateDatabase,
    DropDatabase,
    DropTable,
    Entry,
    Exchange,
    PutTable,
    PutVirtual,
    RemoveTable,
    RemoveVirtual,
    RenameDatabase,
    RenameTable,
)
from mergelake.log.storage.catalog import CatalogMachine, CatalogState, check
from mergelake.store.objects.memory import MemoryStore

MACHINE = CatalogMachine()
VIEW = TableSchema((Column(0, "k", parse_type("UInt64")),), engine="View")


def view(name, *reads, database="default", number="1"):
    return PutVirtual(database, name, number, VIEW, f"SELECT k FROM {', '.join(reads)}", reads)


def state_of(*ops):
    return MACHINE.fold(CatalogState(), [Entry(1, "x", 1, "a", ops)])


def test_the_default_database_is_there_from_the_start():
    assert dict(CatalogState().databases) == {"default": {}}


def test_names_move_and_tables_stay():
    state = state_of(
        CreateDatabase("d"),
        PutTable("default", "a", "1"),
        PutTable("default", "b", "2"),
        RenameTable("default", "a", "d", "c"),
        Exchange("default", "b", "d", "c"),
    )
    assert list(state.tables()) == [("d", "c", "2"), ("default", "b", "1")]


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (CreateDatabase("default"), "DATABASE_ALREADY_EXISTS"),
        (DropDatabase("nowhere"), "UNKNOWN_DATABASE"),
        (PutTable("default", "events", "9"), "TABLE_ALREADY_EXISTS"),
        (PutTable("nowhere", "t", "9"), "UNKNOWN_DATABASE"),
        (RemoveTable("default", "event", "1"), "UNKNOWN_TABLE"),
        (RemoveTable("default", "events", "other"), ""),
        (RenameTable("default", "nobody", "default", "t"), "UNKNOWN_TABLE"),
        (RenameTable("default", "events", "default", "events"), "TABLE_ALREADY_EXISTS"),
        (Exchange("default", "events", "default", "nobody"), "UNKNOWN_TABLE"),
        (DropTable(), "LOGICAL_ERROR"),
    ],
)
def test_what_makes_no_sense_is_rejected_by_name(op, name):
    state = state_of(PutTable("default", "events", "1"))
    reject = check(state, op)
    assert reject is not None
    assert reject.name == name
    assert MACHINE.step(state, Entry(2, "x", 1, "a", (op,))) == reject


def test_an_unknown_table_comes_with_the_nearest_name():
    state = state_of(PutTable("default", "events", "1"))
    with pytest.raises(NotFoundError, match="Maybe you meant events"):
        raise check(state, RemoveTable("default", "evnets", "1")).as_error()


def test_a_database_with_tables_does_not_go():
    assert check(state_of(PutTable("default", "t", "1")), DropDatabase("default")) is not None
    assert check(CatalogState(), DropDatabase("default")) is None


def test_operations_of_an_entry_see_each_other():
    entry = Entry(2, "x", 7, "a", (CreateDatabase("d"), PutTable("d", "t", "1"), RenameTable("d", "t", "d", "u")))
    after = MACHINE.step(state_of(), entry)
    assert after.version == 2
    assert after == MACHINE.fold(state_of(), [entry])


def test_a_checkpoint_is_the_same_catalog():
    state = state_of(CreateDatabase("ä"), PutTable("ä", "t", "1"))
    assert MACHINE.decode(MACHINE.encode(state), "key") == state
    with pytest.raises(CorruptDataError, match="key"):
        MACHINE.decode(b"nonsense", "key")
    with pytest.raises(InvalidInputError, match="UNKNOWN_FORMAT_VERSION"):
        MACHINE.decode(b'{"format": 9}', "key")


def test_the_catalog_lives_in_a_log_like_any_other():
    store = MemoryStore()
    options = {"clock": ManualClock(), "ids": SeededIds(1)}
    log = Log.open(store, "_catalog/log", MACHINE, **options)
    for number in range(70):
        log.commit(lambda _, n=number: [PutTable("default", f"t{n}", str(n))])
    assert Log.open(store, "_catalog/log", MACHINE, **options).state == log.state
    assert [item.key for item in store.list("_catalog/log/checkpoints")]


def test_views_and_tables_share_one_space_of_names():
    state = state_of(CreateDatabase("d"), PutTable("default", "t", "1"), view("v", "default.t"))
    assert state.names("default") == ["t", "v"]
    assert list(state.tables()) == [("default", "t", "1")]
    assert check(state, PutTable("default", "v", "2")).name == "TABLE_ALREADY_EXISTS"
    assert check(state, view("t")).name == "TABLE_ALREADY_EXISTS"
    assert check(state, view("w", database="nowhere")).name == "UNKNOWN_DATABASE"
    assert check(state, RemoveTable("default", "v", "1")) is not None
    assert check(state, RemoveVirtual("default", "t", "1")) is not None
    assert check(state, RemoveVirtual("default", "v", "another")) is not None
    assert check(state, RemoveVirtual("default", "v", "1")) is None
    assert check(state, DropDatabase("default")) is not None

    moved = MACHINE.fold(state, [Entry(2, "x", 1, "a", (Exchange("default", "t", "default", "v"),))])
    assert (moved.databases["default"], moved.virtual_table("default", "t").id) == ({"v": "1"}, "1")
    moved = MACHINE.fold(moved, [Entry(3, "x", 1, "a", (RenameTable("default", "t", "d", "w"),))])
    assert (moved.names("default"), moved.names("d")) == (["v"], ["w"])
    moved = MACHINE.fold(moved, [Entry(4, "x", 1, "a", (RenameDatabase("d", "e"), RemoveVirtual("e", "w", "1")))])
    assert (moved.names("e"), moved.virtual) == ([], {})


@pytest.mark.parametrize(
    "op",
    [
        view("a", "default.a"),
        view("a", "default.b"),
        RenameTable("default", "c", "default", "t"),
        Exchange("default", "c", "default", "u"),
        RenameDatabase("d", "e"),
    ],
)
def test_no_view_comes_to_read_itself(op):
    state = state_of(
        CreateDatabase("d"),
        PutTable("default", "u", "1"),
        view("b", "default.a"),
        view("c", "default.t", "default.u"),
        view("x", "e.x", database="d"),
    )
    reject = check(state, op)
    assert reject is not None
    assert reject.name == "INFINITE_LOOP"


def test_checkpoints_with_views_have_a_format_of_their_own():
    state = state_of(CreateDatabase("d"), PutTable("d", "t", "1"), view("v", "d.t"), view("w", "default.v", "d.t"))
    encoded = MACHINE.encode(state)
    assert MACHINE.decode(encoded, "key") == state
    assert b'"format":3' in encoded
    assert b'"format":2' in MACHINE.encode(state_of(PutTable("default", "t", "1")))
