"""mergelake from an installed wheel, away from any checkout: commands, pickles between processes, Spark's workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import previous

ROOT = Path(__file__).parents[2]
SPARK = """
import json, sys
import mergelake as ml
import pyarrow as pa
from mergelake.spark import merge_into
from mergelake.spark.session import session

def place(batches):
    import mergelake
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"place": [mergelake.__file__]})

url = sys.argv[1]
spark = session("local[2]", config={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"})
db = ml.connect(url, spark=spark)
db.sql("CREATE TABLE t (k UInt64, v String) ENGINE = ReplacingMergeTree ORDER BY k")
frame = spark.range(1000).selectExpr("id AS k", "CAST(id AS STRING) AS v")
frame.write.format("mergelake").mode("append").save(f"{url}/default.t")
merge_into(frame.limit(10), f"{url}/default.t", "k")
table = db.table("t")
table.optimize(final=True)
read = spark.read.format("mergelake").load(f"{url}/default.t").count()
workers = spark.range(0, 2, 1, 2).mapInArrow(place, "place string").distinct().collect()
db.sql("SET executor = 'spark'")
total = db.sql("SELECT sum(k), count() FROM t WHERE v LIKE '%7%'").rows()
print(json.dumps({"read": read, "scanned": table.scan().spark(spark).count(), "total": total[0],
                  "workers": [row.place for row in workers]}))
spark.stop()
"""
PICKLE = """
import pickle, sys
import mergelake as ml
from mergelake.store import StoreSpec, open_store

url, path = sys.argv[1:]
db = ml.connect(url)
db.sql("CREATE TABLE t (k UInt64, v String) ENGINE = MergeTree ORDER BY k")
db.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
table = db.table("t")
try:
    db.sql("SELECT nosuch FROM t")
except ml.MergelakeError as failure:
    error = failure
with open(path, "wb") as file:
    pickle.dump([StoreSpec(url), table.schema, table.snapshot(), table.state(), error], file)
"""
UNPICKLE = """
import pickle, sys

with open(sys.argv[1], "rb") as file:
    spec, schema, snapshot, state, error = pickle.load(file)
print(spec.open().url == spec.url, [column.name for column in schema.columns], snapshot.rows, state.version, error.name)
"""


@pytest.fixture(scope="module")
def wheel_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of an environment in which a wheel of this checkout is installed."""
    try:
        return previous.installed(ROOT, tmp_path_factory.mktemp("wheel") / "environment")
    except previous.Failed as reason:
        pytest.skip(f"no wheel can be built here: {reason}")


def run(python: Path, folder: Path, *arguments: str) -> str:
    """The output of a program that sees no checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    done = subprocess.run(
        [str(python), *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_wheel_has_every_package_and_nothing_else(wheel_python: Path, tmp_path: Path) -> None:
    listed = run(
        wheel_python, tmp_path, "-c",
        "import mergelake, pathlib; r = pathlib.Path(mergelake.__file__).parent;"
        " print(*sorted(str(p.relative_to(r)) for p in r.rglob('*.py')))",
    ).split()  # fmt: skip
    source = ROOT / "src" / "mergelake"
    assert listed == sorted(str(path.relative_to(source)) for path in source.rglob("*.py"))


def test_commands_and_modules_start(wheel_python: Path, tmp_path: Path) -> None:
    for module in ("mergelake.cli", "mergelake.api.cli"):
        assert "Usage" in run(wheel_python, tmp_path, "-m", module, "--help")
    command = wheel_python.parent / "mergelake"
    assert command.read_text().startswith(f"#!{wheel_python}")
    given = [command, "sql", "-d", str(tmp_path / "w"), "-q", "SHOW DATABASES"]
    done = subprocess.run(given, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "default" in done.stdout


def test_values_are_pickled_in_a_checkout_and_read_by_the_wheel_and_the_other_way_round(
    wheel_python: Path, tmp_path: Path
) -> None:
    pytest.importorskip("chdb", reason="the extra `sql` (chdb) is not installed")
    for writer, reader in ((Path(sys.executable), wheel_python), (wheel_python, Path(sys.executable))):
        folder = tmp_path / writer.parts[-3]
        folder.mkdir()
        path = str(folder / "values")
        run(writer, tmp_path, "-c", PICKLE, str(folder / "warehouse"), path)
        assert run(reader, tmp_path, "-c", UNPICKLE, path).split() == [
            "True",
            "['k',",
            "'v']",
            "2",
            "2",
            "UNKNOWN_IDENTIFIER",
        ]


@pytest.mark.slow
@pytest.mark.spark
def test_a_spark_session_and_its_workers_find_the_wheel_alone(wheel_python: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql", reason="the extra `spark` (pyspark) is not installed")
    said = json.loads(run(wheel_python, tmp_path, "-c", SPARK, str(tmp_path / "warehouse")).splitlines()[-1])
    assert said["read"] == said["scanned"] == 1000
    assert said["total"] == [sum(k for k in range(1000) if "7" in str(k)), sum("7" in str(k) for k in range(1000))]
    home = wheel_python.parents[1].resolve()
    assert all(Path(place).resolve().is_relative_to(home) for place in said["workers"]), said["workers"]
