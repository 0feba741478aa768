"""What is appended is what the parts hold: sorted, split, with defaults; on every kind of store."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.api.python import Warehouse
from mergelake.core.convert.storage import to_public
from mergelake.parts.read.reader import PartReader
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define

SCHEMA = define(
    {"ts": "DateTime", "service": "LowCardinality(String)", "host": "String", "n": "Nullable(Int32)", "x": "Float64"},
    order_by=["service", "ts"],
    partition_by="toYYYYMMDD(ts)",
    settings={"max_insert_block_size": 4_000, "index_granularity": 512},
)


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": pa.array(rng.integers(1_767_225_600, 1_767_225_600 + 3 * 86_400, count), pa.timestamp("s", "UTC")),
            "service": pa.array([f"s{i}" for i in rng.integers(0, 9, count)]).dictionary_encode(),
            "host": [f"host-{i:05}" for i in rng.integers(0, 99_999, count)],
            "n": pa.array([None if i % 7 == 0 else int(i) for i in rng.integers(-1000, 1000, count)], pa.int32()),
            "x": rng.random(count),
        }
    )


def contents(table):
    """Rows of each active part, in the public form."""
    schema = table.schema
    for part in table.snapshot().parts:
        columns = {column.name: column for column in schema.stored}
        reader = PartReader(table.handle.store, table.handle.directory, part.manifest, columns)
        marks = [(0, len(reader.granule_rows))]
        block = pa.Table.from_batches(list(reader.read(list(columns), marks)))
        yield (
            part,
            pa.table({name: to_public(block[name].combine_chunks(), schema.column(name).type) for name in columns}),
        )


def check_table(table, sent):
    held = []
    for part, data in contents(table):
        values = data.to_pylist()
        keys = [(row["service"], row["ts"]) for row in values]
        assert keys == sorted(keys)
        assert {row["ts"].strftime("%Y%m%d") for row in values} == {part.info.partition_id}
        assert len(values) == part.manifest.rows
        held += [tuple(row.values()) for row in values]
    wanted = [tuple(row.values()) for row in sent.to_pylist()]
    assert sorted(held, key=repr) == sorted(wanted, key=repr)


def test_parts_hold_what_was_appended():
    table = Warehouse(MemoryStore()).create_table("t", SCHEMA)
    sent = rows(10_000)
    commit = table.append(sent)
    assert commit.rows == 10_000
    assert len(commit.parts) == 9  # three blocks, three days
    check_table(table, sent)


@pytest.mark.parametrize("shape", ["one", "many"])
def test_a_stream_of_batches_becomes_the_same_rows(tmp_path, shape):
    table = Warehouse(str(tmp_path)).create_table("t", SCHEMA)
    sent = rows(9_000, seed=1)
    batches = sent.unify_dictionaries().to_batches(max_chunksize=100 if shape == "many" else None)
    table.append(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    check_table(table, sent)


def test_a_small_insert_is_two_puts_on_s3(s3_url, s3_options):  # M-068
    warehouse = Warehouse(s3_url, s3_options)
    table = warehouse.create_table("t", SCHEMA)
    sent = rows(50, seed=2).slice(0, 1)
    table.append(sent)
    before = table.handle.store.counters
    table.append(sent)
    now = table.handle.store.counters
    assert (now.put - before.put, now.get - before.get, now.list - before.list) == (2, 0, 0)
    again = Warehouse(s3_url, s3_options).table("default.t")
    check_table(again, pa.concat_tables([sent, sent]))
    assert again.location == table.location
    assert again.location.startswith(s3_url)
