"""The same on a real cluster: a master and two workers, an executor on each, tables in a directory that all see."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

SPREAD = 6
"""Statements of the script that are compared."""
SCRIPT = textwrap.dedent(
    """
    import sys
    import mergelake as ml
    from mergelake.api.spark.session import session
    from mergelake.api.spark.tasks import run_tasks
    from mergelake.testing.logtable import CREATE, spark_log_frame

    def attached_sets(_):
        from mergelake.query.attach import attached

        return len(attached.SETS)

    spark = session(sys.argv[1], config={"spark.executor.memory": "700m", "spark.executor.cores": "1"})
    db = ml.connect(sys.argv[2], spark=spark)
    db.sql(CREATE.format(name="logs", partition="tuple()"))
    table = db.table("logs")
    for _ in range(2):
        table.append(spark_log_frame(spark, 0, 4, 5000))
    table.optimize(final=True)
    frame = spark.read.format("mergelake").load(f"{sys.argv[2]}/default.logs")
    hosts = set(run_tasks(spark, lambda _: __import__("os").getpid(), list(range(8))))
    query = "SELECT service, count() FROM logs GROUP BY service ORDER BY service"
    answer = db.sql(query, settings={"executor": "spark"}).rows()
    print("RESULT", frame.count(), table.parts().num_rows, len(hosts) >= 2, sum(n for _, n in answer))
    for _ in range(2):
        table.append(spark_log_frame(spark, 0, 4, 30000))
    here = db.sql(query, settings={"executor": "local"}).rows()
    there = [db.sql(query, settings={"executor": "spark"}) for _ in range(3)]
    attached = run_tasks(spark, attached_sets, [0] * 8)
    print("ATTACHED", all(t.rows() == here for t in there), {t.stats.executor for t in there}, max(attached) > 0)
    db.sql("CREATE TABLE teams (service String, team String) ENGINE = MergeTree ORDER BY service")
    db.sql("INSERT INTO teams SELECT DISTINCT service, substring(service, 1, 1) FROM logs")
    db.sql("CREATE TABLE last (k UInt64, v UInt32) ENGINE = ReplacingMergeTree(v) ORDER BY k")
    for version in range(2):
        db.sql(f"INSERT INTO last SELECT number, {version} FROM numbers(80000)")
    for query in (
        "SELECT team, count() FROM logs JOIN teams USING service GROUP BY team ORDER BY team",
        "SELECT count() FROM logs WHERE latency > (SELECT 2 * avg(latency) FROM logs) AND service IN (SELECT service "
        "FROM teams WHERE team = 'c')",
        "SELECT service, max(n) FROM (SELECT service, count() OVER (PARTITION BY host, service) AS n FROM logs) "
        "GROUP BY service ORDER BY service",
        "SELECT DISTINCT service, level FROM logs ORDER BY service, level LIMIT 7",
        "SELECT v, count(), sum(k) FROM last FINAL GROUP BY v",
        "SELECT service, host, count() FROM logs GROUP BY CUBE(service, host) ORDER BY ALL",
    ):
        there, here = (db.sql(query, settings={"executor": each}) for each in ("spark", "local"))
        print("SPREAD", there.rows() == here.rows(), there.stats.executor)
    spark.stop()
    """
)


def test_ingest_merge_scan_and_select_on_a_cluster(spark_cluster, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, spark_cluster["SPARK_MASTER_URL"], tmp_path / "warehouse"],
        env={**os.environ, **spark_cluster},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert "RESULT 40000 1 True 40000" in done.stdout, done.stdout + done.stderr[-3000:]
    assert "ATTACHED True {'spark'} True" in done.stdout, done.stdout + done.stderr[-3000:]
    assert done.stdout.count("SPREAD True spark") == SPREAD, done.stdout + done.stderr[-3000:]
