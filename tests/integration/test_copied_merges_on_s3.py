"""Merges that copy compressed blocks, in a bucket: what they read and write there."""

from __future__ import annotations

import pytest

import mergelake as ml
from mergelake.format.columns.reader import ColumnReader
from mergelake.jobs.merge.commit import commit_merge
from mergelake.jobs.merge.concatenate import plan_concatenation
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.optimize import plan_optimize
from mergelake.store import open_store

ROWS, PARTS, COLUMNS = 20_000, 4, 4


@pytest.mark.parametrize("full", [False, True])
def test_a_bucket_sends_each_byte_once(
    full: bool, s3_url: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = ml.connect(s3_url, s3_options)
    db.sql(
        "CREATE TABLE t (k UInt32, v String, s LowCardinality(String), x Array(UInt64)) ENGINE = MergeTree ORDER BY k "
        f"SETTINGS index_granularity = 1024{', min_bytes_for_full_part_storage = 0' * full}"
    )
    for part in range(PARTS):
        db.sql(
            f"INSERT INTO t SELECT {part * ROWS} + number, toString(cityHash64(number)), "
            f"toString(number % (90 + {part})), range(number % 3) FROM numbers({ROWS})"
        )
    table = db.table("t")
    query = "SELECT count(), sum(cityHash64(*)) FROM t"
    before = db.sql(query).rows()
    handle = table.handle
    (task,) = plan_optimize(handle, final=True)
    assert plan_concatenation(task) is not None
    store = open_store(s3_url, s3_options)
    with monkeypatch.context() as patched:
        patched.setattr(ColumnReader, "decode", None)
        part = execute_merge(store, task, handle.ids, handle.clock)
    read, size = store.counters.bytes_get, task.bytes_on_disk
    if full:
        assert 0.99 * size < read < size
        streams = COLUMNS + 2  # a dictionary, sizes of arrays
        assert store.counters.get == PARTS * (2 * streams + 1)
    else:
        assert (read, store.counters.get) == (size, PARTS)
    assert store.counters.bytes_put == part.bytes_on_disk
    commit_merge(handle, task, part)
    table.refresh()
    assert db.sql(query).rows() == before
    assert [row for row in table.check().to_pylist() if not row["is_passed"]] == []
