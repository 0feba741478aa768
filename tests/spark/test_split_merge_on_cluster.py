"""A merge in slices on a real cluster, an executor of which is killed in the middle: its tasks alone are repeated."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

SCRIPT = textwrap.dedent(
    """
    import os, signal, sys, threading, time
    from pathlib import Path
    import mergelake as ml
    from mergelake.jobs.merge.optimize import plan_optimize
    from mergelake.jobs.merge.slices import with_split
    from mergelake.api.spark.session import session
    from mergelake.api.spark.tasks import run_tasks

    def executor(_):
        daemon = os.getppid()  # the parent of Python's workers; its parent is the JVM of the executor
        time.sleep(0.3)
        return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])

    spark = session(sys.argv[1], config={"spark.executor.memory": "700m", "spark.executor.cores": "1"})
    db = ml.connect(sys.argv[2], spark=spark)
    db.sql("CREATE TABLE t (k UInt32, v UInt32, s LowCardinality(String), x String) ENGINE = ReplacingMergeTree(v) "
           "ORDER BY k SETTINGS min_bytes_to_split_merge = 1, merge_slice_bytes = 250000")
    for part in range(3):
        db.sql(f"INSERT INTO t SELECT cityHash64(number, {part}) % 80000, {part}, toString(number % 90), "
               "hex(cityHash64(number)) FROM numbers(40000)")
    table = db.table("t")
    query = "SELECT count(), sum(cityHash64(*)) FROM t"
    before = db.sql(query + " FINAL", settings={"executor": "local"}).rows()
    handle = table.handle
    (task,) = plan_optimize(handle, final=True)
    split = with_split(handle.store, task, handle.log.state.fence).split
    records = Path(sys.argv[2]) / handle.directory / split.id
    jvms = sorted(set(run_tasks(spark, executor, list(range(4)))))

    def kill():
        while not records.exists() or len(list(records.iterdir())) < 2:
            time.sleep(0.01)
        os.kill(jvms[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    table.optimize(final=True)
    killer.join(1)
    written = [name.name.partition("-")[0] for name in records.iterdir()]
    print("KILLED", not killer.is_alive(), len(jvms), split.slices)
    print("WRITTEN", sorted(map(int, set(written))) == list(range(split.slices)))
    print("REPEATED", len(written) - split.slices <= len(jvms))
    print("SAME", db.sql(query, settings={"executor": "local"}).rows() == before, table.parts().num_rows)
    print("SOUND", table.check().column("is_passed").to_pylist())
    spark.stop()
    """
)


def test_a_killed_executor_repeats_its_own_slices(spark_cluster, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, spark_cluster["SPARK_MASTER_URL"], tmp_path / "warehouse"],
        env={**os.environ, **spark_cluster},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout + done.stderr[-3000:]
    assert "KILLED True 2" in done.stdout, said
    assert "WRITTEN True" in done.stdout, said
    assert "REPEATED True" in done.stdout, said
    assert "SAME True 1" in done.stdout, said
    assert "SOUND [1]" in done.stdout, said
