"""Processes that merge into one table at once: the table is what the log says, in its order."""

from __future__ import annotations

from collections import Counter
from multiprocessing import get_context

import numpy as np

from mergelake.api.python import Warehouse
from mergelake.table.definition.define import define
from tests.helpers.merges import COLUMNS, drawn, merge, replayed, tokens_in

PROCESSES, MERGES = 3, 15


def names(process):
    return [f"{process}-{number}" for number in range(MERGES)]


def draws(process):
    rng = np.random.default_rng([5, process])
    return {name: drawn(rng) for name in names(process)}


def work(url, process):
    table = Warehouse(url).table("t")
    for name, (form, source) in draws(process).items():
        merge(table, name, form, source)


def test_processes_that_merge_at_once(tmp_path):
    url = str(tmp_path / "warehouse")
    Warehouse(url).create_table("t", define(dict(COLUMNS), order_by="k"))
    context = get_context("spawn")
    started = [context.Process(target=work, args=(url, process), daemon=True) for process in range(PROCESSES)]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0] * PROCESSES
    merges = {name: merge for process in range(PROCESSES) for name, merge in draws(process).items()}
    table = Warehouse(url).table("t")
    tokens = tokens_in(table)
    # A merge that changed nothing has a token, too; each is there once.
    assert sorted(tokens) == sorted(merges)
    assert Counter(table.scan()) == replayed(table, merges)
    table.apply_mutations()
    table.optimize(final=True)
    assert Counter(table.scan()) == replayed(table, merges)
