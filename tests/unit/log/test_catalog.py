"""The names of tables as a state machine."""

from __future__ import annotations

import pytest

from mergelake.core.clock import ManualClock
from mergelake.core.errors import CorruptDataError, InvalidInputError, NotFoundError
from mergelake.core.ids import SeededIds
from mergelake.log.catalog import CatalogMachine, CatalogState, check
from mergelake.log.commit import Log
from mergelake.log.operations import (
    CreateDatabase,
    DropDatabase,
    DropTable,
    Entry,
    Exchange,
    PutTable,
    RemoveTable,
    RenameTable,
)
from mergelake.store.memory import MemoryStore

MACHINE = CatalogMachine()


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
