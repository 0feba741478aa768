"""The data source without a session: what its values carry from the driver to the tasks and back."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from mergelake.api.python import Warehouse
from mergelake.api.spark.datasource import MergelakeDataSource
from mergelake.core.base.errors import MergelakeError
from mergelake.table.definition.define import define

SCHEMA = define({"k": "Int64"}, order_by="k")
BATCH = pa.record_batch({"k": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def warehouse(tmp_path):
    made = Warehouse(str(tmp_path), threads=1)
    for name in ("a", "b"):
        made.create_table(name, SCHEMA)
    return made


def source(warehouse, name="a", **options):
    return MergelakeDataSource({"path": warehouse.table(name).path, **options})


def keys(table):
    return sorted(table.scan().arrow()["k"].to_pylist())


def sent(value):
    return pickle.loads(pickle.dumps(value))


def test_a_write_lands_in_the_table_that_it_began_with_whatever_is_exchanged_meanwhile(warehouse):
    table = warehouse.table("a")
    writer = source(warehouse).writer(source(warehouse).schema(), overwrite=False)
    message = sent(writer).write(iter([BATCH]))
    warehouse.exchange_tables("a", "b")
    late = sent(writer).write(iter([BATCH]))
    sent(writer).commit([message, late, None])
    table.refresh()
    assert keys(table) == [1, 1, 2, 2, 3, 3]
    assert keys(warehouse.table("a")) == []  # that is b's directory now


def test_a_read_stays_with_the_table_and_the_version_that_it_began_with(warehouse):
    warehouse.table("a").append({"k": [1, 2]})
    reader = source(warehouse).reader(source(warehouse).schema())
    warehouse.table("a").append({"k": [3]})
    warehouse.exchange_tables("a", "b")
    found = [batch for part in sent(reader).partitions() for batch in sent(reader).read(sent(part))]
    assert sorted(k for batch in found for k in batch.column(0).to_pylist()) == [1, 2]


def test_a_crowded_table_refuses_the_data_source_as_it_refuses_inserts(tmp_path):
    warehouse = Warehouse(str(tmp_path), threads=1)
    table = warehouse.create_table("t", define({"k": "Int64"}, order_by="k", settings={"parts_to_throw_insert": 2}))
    for k in (1, 2):
        table.append({"k": [k]})
    with pytest.raises(MergelakeError, match="TOO_MANY_PARTS"):
        source(warehouse, "t").writer(source(warehouse, "t").schema(), overwrite=False)
