"""Tasks as documents: executed by other processes that have nothing but the file and the credentials of the bucket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.api.python.work import commit_work, plan_work, work, work_and_commit, work_on_spark
from mergelake.log.storage.encoding import sealed

ROWS = 3000
CREATE = (
    "CREATE TABLE t (k UInt32, v UInt32, s String) ENGINE = ReplacingMergeTree(v) ORDER BY k "
    "SETTINGS min_bytes_for_wide_part = 0, index_granularity = 512"
)
EXPECTED = [(k, 2, f"s{k % 7}") for k in range(ROWS)]


def filled(url: str, options: dict[str, str] | None = None) -> ml.Table:
    db = ml.connect(url, options)
    db.sql(CREATE)
    table = db.table("t")
    for version in range(3):
        table.append({"k": list(range(ROWS)), "v": [version] * ROWS, "s": [f"s{k % 7}" for k in range(ROWS)]})
    return table


def rows(table: ml.Table) -> list[tuple[Any, ...]]:
    table.refresh()
    return [tuple(row.values()) for row in table.scan().arrow().sort_by("k").to_pylist()]


def mergelake(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mergelake.api.cli", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_a_merge_and_a_mutation_run_from_the_file_alone_on_s3(
    s3_url: str, s3_options: dict[str, str], s3_server: dict[str, str], tmp_path: Path
) -> None:
    table = filled(s3_url, s3_options)
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "S3_"))}
    credentials = {**bare, **s3_server}
    planned = mergelake("plan", s3_url, "t", "--final", "--out", str(tmp_path), env=credentials)
    assert planned.returncode == 0, planned.stderr
    (path,) = planned.stdout.split()
    text = Path(path).read_text()
    assert s3_options["secret_access_key"] not in text
    assert mergelake("work", path, env=bare).returncode == 1  # without credentials
    worked = mergelake("work", path, env=credentials)
    assert worked.returncode == 0, worked.stderr
    assert len(table.parts()) == len(rows(table)) // ROWS == 3  # not committed yet
    result = tmp_path / "result.json"
    result.write_text(worked.stdout)
    for _ in range(2):  # the second time nothing happens
        done = mergelake("commit", path, str(result), env=credentials)
        assert done.returncode == 0, done.stderr
    assert rows(table) == EXPECTED
    assert table.parts().num_rows == 1
    table.update({"s": "'new'"}, where="k % 2 = 0")
    (path,) = mergelake("plan", s3_url, "t", "--mutations", "--out", str(tmp_path), env=credentials).stdout.split()
    done = mergelake("work", "--commit", path, env=credentials)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["part"]["rows"] == ROWS
    table.refresh()
    assert table.mutations().column("is_done").to_pylist() == [1]
    assert rows(table) == [(k, v, s if k % 2 else "new") for k, v, s in EXPECTED]


def test_a_spark_job_executes_the_same_files(spark: Any, tmp_path: Path) -> None:
    table = filled(str(tmp_path))
    (merge,) = plan_work(table, final=True)
    (result,) = work_on_spark(spark, [merge])
    commit_work(merge, result)
    assert rows(table) == EXPECTED
    table.update({"s": "'new'"}, where="k < 10")
    (mutation,) = plan_work(table, mutations=True)
    commit_work(mutation, *work_on_spark(spark, [mutation]))
    assert rows(table) == [(k, v, s if k >= 10 else "new") for k, v, s in EXPECTED]
    table.append({"k": [1], "v": [9], "s": ["x"]})
    (merge,) = plan_work(table, final=True)
    broken = sealed({**json.loads(merge), "directory": "0" * 32})
    before = {str(path) for path in tmp_path.rglob("*")}
    with pytest.raises(ml.NotFoundError, match="is gone"):
        work_on_spark(spark, [merge, strip(broken)])
    assert {str(path) for path in tmp_path.rglob("*") if path.is_file()} <= before  # the other's part was deleted


def strip(document: bytes) -> bytes:
    """The document without the digest of the one that it was made of."""
    raw = json.loads(document)
    del raw["digest"]
    return sealed(raw)


def test_a_mutation_that_changes_no_row_has_a_result_without_a_part(tmp_path: Path) -> None:
    table = filled(str(tmp_path))
    table.update({"s": "'new'"}, where="k > 1000000")
    tasks = plan_work(table, mutations=True)
    results = [work(task) for task in tasks]
    assert [json.loads(result)["part"] for result in results] == [None] * 3
    for task, result in [*zip(tasks, results, strict=True)] * 2:
        commit_work(task, result)
    table.refresh()
    assert table.mutations().column("is_done").to_pylist() == [1]
    assert plan_work(table, mutations=True) == []


def test_a_task_whose_sources_are_gone_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = filled(str(tmp_path))
    (task,) = plan_work(table, final=True)
    late = work(task)
    table.optimize(final=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ml.ConflictError, match="3 sources of all_1_3_2 are no longer active"):
        work_and_commit(task)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(ml.ConflictError):
        commit_work(task, late)
    assert rows(table) == EXPECTED
    (raw,) = (json.loads(task),)
    for source in raw["sources"]:
        for name in (tmp_path / raw["directory"] / source["manifest"]["id"]).iterdir():
            name.unlink()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ml.NotFoundError, match="A source of all_1_3_2 is gone"):
        work(task)
    assert sorted(tmp_path.rglob("*")) == before


def test_documents_that_are_not_known_here_or_not_whole_are_refused(tmp_path: Path) -> None:
    table = filled(str(tmp_path))
    (task,) = plan_work(table, final=True)
    result = work(task)
    raw = json.loads(task)
    del raw["digest"]
    before = sorted(tmp_path.rglob("*"))
    refused = {
        "format 2, and this version reads 1": sealed({**raw, "format": 2}),
        "does not hold what was written": task.replace(b"all_1_3_2", b"all_1_3_3"),
        "not whole": json.dumps(raw).encode(),
        "not readable JSON": task[:100],
        "lacks or garbles": sealed({**raw, "priority": 1}),
        "neighbours": sealed({**raw, "sources": raw["sources"][::-1]}),
        "no task of the kind": sealed({**raw, "kind": "other"}),
        "no directory of a table": sealed({**raw, "directory": "../x"}),
    }
    for message, document in refused.items():
        with pytest.raises(ml.MergelakeError, match=message):
            work(document)
    with pytest.raises(ml.InvalidInputError, match="not the result of the task"):
        commit_work(sealed({**raw, "base_version": 1}), result)
    with pytest.raises(ml.InvalidInputError, match="final is for merges"):
        plan_work(table, final=True, mutations=True)
    assert sorted(tmp_path.rglob("*")) == before
    assert commit_work(task, result) == table.refresh()
