"""The same over Spark Connect: a server on this machine, and a client that has no SparkContext."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.helpers.pages import snippets

pytest.importorskip("grpc", reason="the extra `connect` of pyspark is not installed")

SCRIPT = textwrap.dedent(
    """
    import pathlib
    import sys
    import mergelake as ml
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[2]")
    for name, value in {"spark.driver.memory": "1g", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
                        "spark.sql.session.timeZone": "UTC"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert type(spark).__module__.startswith("pyspark.sql.connect")
    db = ml.connect(sys.argv[1], spark=spark)
    db.sql("CREATE TABLE t (k Int64, `n.a` Array(Int32), s String) ENGINE = MergeTree ORDER BY k")
    table = db.table("t")
    frame = spark.range(0, 1000, 1, 4).selectExpr("id AS k", "array(1, 2) AS `n.a`", "CAST(id AS string) AS s")
    assert [table.append(frame, dedup_token="x").rows for _ in range(2)] == [1000, 0]
    assert table.scan(["k", "n.a"], "k < 10").spark(spark).count() == 10
    pinned = spark.read.format("mergelake").option("versionAsOf", table.version).load(table.path)
    for _ in range(2):
        frame.write.format("mergelake").mode("append").option("dedup_token", "y").save(table.path)
    assert pinned.columns == ["k", "n.a", "s"]
    assert [row[0] for row in pinned.where("k >= 995").select("k").orderBy("k").collect()] == list(range(995, 1000))
    split = db.sql("SELECT count(), sum(k) FROM t", settings={"executor": "spark"})
    assert split.rows() == [(2000, 999000)] and split.stats.executor == "spark", split.stats
    for query in (
        "SELECT m, max(n) FROM (SELECT k % 7 AS m, count() OVER (PARTITION BY m ORDER BY k) AS n FROM t) GROUP BY m "
        "ORDER BY m",
        "SELECT k, count() FROM t JOIN (SELECT k * 2 AS k FROM t WHERE k < 5) AS d USING k GROUP BY k ORDER BY k",
    ):
        there, here = (db.sql(query, settings={"executor": each}) for each in ("spark", "local"))
        assert there.rows() == here.rows() and there.stats.executor == "spark", there.stats
    assert table.optimize(final=True) == 1
    for call, word in (
        (lambda: spark.read.format("mergelake").option("vresion", "1").load(table.path).count(), "meant version"),
        (lambda: table.append(spark.range(3).selectExpr("id AS k", "CAST(NULL AS string) AS s")), "CANNOT_INSERT_NULL"),
    ):
        try:
            call()
        except Exception as problem:
            assert word in str(problem), problem
        else:
            raise AssertionError(word)
    QUERY, events = "from-files", db.create_table("e", {"id": "Int64"}, order_by="id")
    exec(sys.argv[2])  # add_batch of docs/spark.md
    for attempt in range(2):  # with a new checkpoint batch 0 comes again
        folder = pathlib.Path(sys.argv[1]).parent / f"checkpoint{attempt}"
        stream = spark.readStream.schema("id BIGINT").json(sys.argv[3]).writeStream.foreachBatch(add_batch)
        stream.option("checkpointLocation", str(folder)).trigger(availableNow=True).start().awaitTermination(60)
        assert list(events.scan()) == [(7,)]
    print("RESULT", table.refresh() and table.snapshot().rows)
    spark.stop()
    """
)


@pytest.mark.spark
@pytest.mark.slow
def test_ingest_scan_merge_and_select_over_connect(tmp_path):
    pytest.importorskip("pyspark.sql", reason="the extra `spark` (pyspark) is not installed")
    script = tmp_path / "client.py"
    script.write_text(SCRIPT)
    (add_batch,) = (each.text for each in snippets("docs/spark.md") if each.section == "Streams over Spark Connect")
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "a.json").write_text('{"id": 7}\n')
    ours = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, script, tmp_path / "warehouse", add_batch, tmp_path / "incoming"],
        env={**os.environ, **ours, "SPARK_TESTING": "1"},  # the server's port is then any that is free
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "RESULT 2000" in done.stdout, done.stdout + done.stderr[-3000:]
