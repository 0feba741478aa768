"""Bad input as tests see it: refused with ClickHouse's code and name, with a way out, and nothing written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.base.errors import CLICKHOUSE_CODES


@contextmanager
def refused(
    db: ml.Database, name: str, *says: str, kind: type[ml.MergelakeError] = ml.MergelakeError
) -> Iterator[pytest.ExceptionInfo[ml.MergelakeError]]:
    """The block raises ClickHouse's error `name`, says all of `says`, and changes no object of the store."""
    store = db.warehouse.store
    objects, before = held(db), store.counters
    with pytest.raises(ml.MergelakeError) as caught:
        yield caught
    failure = caught.value
    assert failure.name == name, str(failure)
    assert failure.code == CLICKHOUSE_CODES[name]
    assert isinstance(failure, kind)
    text = str(failure)
    assert text.startswith(f"Code: {failure.code}. ")
    assert text.rstrip().endswith(f"({name})")
    for part in says:
        assert part in text, text
    used = store.counters - before
    assert (used.put, used.delete) == (0, 0), f"{text}: {used}"
    assert held(db) == objects


def held(db: ml.Database) -> list[tuple[str, int]]:
    """Every object of the warehouse and its size."""
    return [(item.key, item.size) for item in db.warehouse.store.list("")]


def clickhouse_error(oracle: Any, statement: str) -> str:
    """The name of ClickHouse's error for a statement; empty if there is none."""
    try:
        oracle.query(statement)
    except Exception as failure:  # chdb has no one class for it
        return str(failure).strip().rstrip(".").rpartition("(")[2].rstrip(")")
    return ""
