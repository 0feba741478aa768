"""Merges of several writers at once: the table is as if they had come one after another, in the order of the log.

Each commit has a token, and the log has the tokens in its order; a model of the table on one list of rows executes the
same merges in that order. And a merge that fails anywhere, and is repeated with its token, counts once.
"""

from __future__ import annotations

import threading
from collections import Counter

import numpy as np
import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.errors import ConflictError, MergelakeError
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.testing.faulty_store import Fault, FaultyStore, SimulatedCrash
from tests.helpers.merges import COLUMNS, drawn, merge, merged, replayed, tokens_in


@pytest.mark.parametrize("shared", [False, True], ids=["processes of their own", "threads of one process"])
@pytest.mark.parametrize("seed", range(3))
def test_merges_at_once_are_merges_one_after_another(seed, shared):
    store = MemoryStore()
    first = Warehouse(store).create_table("t", define(dict(COLUMNS), order_by="k"))
    merges, failures = {}, []

    def work(writer):
        rng = np.random.default_rng([seed, writer])
        table = first if shared else Warehouse(store).table("t")
        try:
            for number in range(12):
                name = f"{writer}-{number}"
                merges[name] = drawn(rng)
                merge(table, name, *merges[name])
                if writer == 0 and number % 4 == 3:
                    table.apply_mutations()
                if writer == 1 and number % 4 == 3:
                    table.optimize(final=True)
        except ConflictError as conflict:
            if "merge" not in str(conflict):  # a merge of parts or a rewrite that lost a race
                failures.append(conflict)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    table = Warehouse(store).table("t")
    assert len(tokens_in(table)) == len(set(tokens_in(table))) > 30
    assert Counter(table.scan()) == replayed(table, merges)
    table.apply_mutations()
    table.optimize(final=True)
    assert Counter(table.scan()) == replayed(table, merges)


FORM_OF = {"blind": 0, "reading": 2}


def prepared(store):
    table = Warehouse(store).create_table("t", define(dict(COLUMNS), order_by="k"))
    table.append({"k": [1, 2, 2], "n": [10, 20, 21]})
    return table


@pytest.mark.parametrize("kind", FORM_OF)
def test_a_merge_that_fails_anywhere_counts_once_when_it_is_repeated(kind):
    form, source = FORM_OF[kind], {2: 5, 7: 70}
    counted = FaultyStore(MemoryStore())
    prepared(counted)
    table = Warehouse(counted).table("t")
    begun = counted.operations
    merge(table, "m", form, source)
    outcomes = Counter()
    for number in range(counted.operations - begun):
        for fault in (Fault.FAIL_BEFORE, Fault.LOSE_REPLY, Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
            inner = MemoryStore()
            before = Counter(prepared(inner).scan())
            opening = FaultyStore(inner)
            Warehouse(opening).table("t")
            faulty = FaultyStore(inner, script={opening.operations + number: fault})
            expected = Counter(merged(list(before.elements()), form, source))
            table = Warehouse(faulty).table("t")
            try:
                merge(table, "m", form, source)
                outcomes["done"] += 1
            except (MergelakeError, SimulatedCrash) as failure:
                outcomes[type(failure).__name__] += 1
            after = Counter(Warehouse(inner).table("t").scan())
            assert after in (before, expected), faulty.trace
            again = merge(Warehouse(inner).table("t"), "m", form, source)
            assert again.duplicate == (after == expected), faulty.trace
            assert Counter(Warehouse(inner).table("t").scan()) == expected, faulty.trace
    assert outcomes["done"]
    assert outcomes["SimulatedCrash"]


def test_a_lost_reply_to_the_commit_is_looked_up():
    inner = MemoryStore()
    prepared(inner)
    log_writes = []
    faulty = FaultyStore(
        inner,
        rates={Fault.LOSE_REPLY: 1.0},
        only=lambda kind, key: "_log/0" in key and kind == "create" and not log_writes.append(key),
    )
    commit = merge(Warehouse(faulty).table("t"), "m", 0, {2: 5})
    assert (commit.duplicate, commit.rows) == (False, 1)
    assert len(log_writes) == 1
    assert Counter(Warehouse(inner).table("t").scan()) == Counter([(1, 10), (2, 5)])
