"""The Spark data source where only the driver's environment has the credentials."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from mergelake.api.python import Warehouse
from mergelake.api.spark.datasource import MergelakeDataSource
from mergelake.table.definition.define import define

VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "S3_ENDPOINT", "AWS_ENDPOINT_URL")
EXECUTOR = """
import pickle, sys
import pyarrow as pa
reader, writer = pickle.loads(bytes.fromhex(sys.stdin.read()))
rows = [k for part in reader.partitions() for batch in reader.read(part) for k in batch.column(0).to_pylist()]
message = writer.write(iter([pa.record_batch({"k": pa.array([9], pa.int64())})]))
print(pickle.dumps((rows, message)).hex())
"""


def test_tasks_reach_the_bucket_with_the_credentials_of_the_drivers_environment(
    s3_server, s3_url, s3_options, monkeypatch
):
    for name in VARIABLES:
        if name in s3_server:
            monkeypatch.setenv(name, s3_server[name])
    warehouse = Warehouse(s3_url, threads=1)
    table = warehouse.create_table("t", define({"k": "Int64"}, order_by="k"))
    table.append({"k": [1, 2]})
    source = MergelakeDataSource({"path": table.path})
    reader, writer = source.reader(source.schema()), source.writer(source.schema(), overwrite=False)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    sent = pickle.dumps((reader, writer)).hex()
    done = subprocess.run([sys.executable, "-c", EXECUTOR], input=sent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows, message = pickle.loads(bytes.fromhex(done.stdout.strip()))
    writer.commit([message])
    table.refresh()
    assert sorted(rows) == [1, 2]
    assert sorted(table.scan().arrow()["k"].to_pylist()) == [1, 2, 9]
    assert pa.types.is_int64(table.scan().arrow()["k"].type)


COUNTED = """
import pickle, sys
reader = pickle.loads(bytes.fromhex(sys.stdin.read()))
rows = [k for part in reader.partitions() for batch in reader.read(part) for k in batch.column(0).to_pylist()]
from mergelake.store.open import _opened
(store,) = _opened.values()
print(sorted(rows), store.counters.details.get("get data", 0), store.counters.cached > 0)
"""


def test_tasks_keep_what_they_read_in_a_directory_of_their_machine(s3_url, s3_options, tmp_path):
    warehouse = Warehouse(s3_url, s3_options, threads=1)
    table = warehouse.create_table("t", define({"k": "Int64"}, order_by="k"))
    table.append({"k": [1, 2]})
    options = {f"store.{name}": value for name, value in s3_options.items()}
    cache = tmp_path / "cache"
    source = MergelakeDataSource({"path": table.path, **options, "store.cache_dir": str(cache)})
    reader = source.reader(source.schema())
    sent = pickle.dumps(reader).hex()
    said = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", COUNTED], input=sent, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip())
    assert said == ["[1, 2] 1 False", "[1, 2] 0 True"]
    assert any(path.is_file() for path in cache.glob("mergelake-1/*/*"))
    with pytest.raises(Exception, match="not an absolute path"):
        MergelakeDataSource({"path": table.path, **options, "store.cache_dir": "cache"}).schema()
