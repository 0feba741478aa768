"""Streams into a table by `foreachBatch`: the example of docs/spark.md as it stands, and batches that come twice."""

from __future__ import annotations

import json

import pytest

import mergelake as ml
from tests.helpers.pages import Reader, snippets

(EXAMPLE,) = [each for each in snippets("docs/spark.md") if each.section == "Streams"]


def put_file(folder, name, rows):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def forget_last_batch(checkpoint):
    """What a process leaves behind that ends after the last batch was committed and before Spark has recorded it."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def test_the_example_of_the_page_adds_each_batch_once(tmp_path, spark):
    reader = Reader(tmp_path, {"/data": str(tmp_path)})
    put_file(tmp_path / "incoming", "a.json", [{"id": 1, "name": "ada"}, {"id": 2, "name": "bob"}])
    reader.follow(EXAMPLE)
    put_file(tmp_path / "incoming", "b.json", [{"id": 3, "name": "cyd"}])
    reader.follow(EXAMPLE)
    rows = [(1, "ada"), (2, "bob"), (3, "cyd")]
    table = ml.connect(str(tmp_path / "warehouse")).table("events")
    assert sorted(table.scan()) == rows
    version = table.version

    forget_last_batch(tmp_path / "checkpoints" / "events-from-files")
    reader.follow(EXAMPLE)  # Spark gives batch 1 again
    assert sorted(table.scan()) == rows
    assert table.version == version

    put_file(tmp_path / "incoming", "c.json", [{"id": 4, "name": "dot"}])
    reader.follow(EXAMPLE)
    assert sorted(table.scan()) == [*rows, (4, "dot")]


def test_a_batch_that_failed_comes_again_with_its_number(tmp_path, spark):
    db = ml.connect(str(tmp_path / "w"), spark=spark)
    table = db.create_table("t", {"id": "UInt64"}, order_by="id")
    put_file(tmp_path / "incoming", "a.json", [{"id": 1}, {"id": -1}])
    calls = []

    def add_batch(frame, number):
        attempt = len(calls)
        if attempt > 0:
            frame = frame.where("id > 0")
        commit = table.append(frame, dedup_token=f"failing {number}")
        calls.append((number, commit.rows, commit.duplicate))
        if attempt == 1:
            raise RuntimeError("after the commit")

    def run():
        stream = spark.readStream.schema("id BIGINT").json(str(tmp_path / "incoming"))
        writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        writer.foreachBatch(add_batch).start().awaitTermination(120)

    with pytest.raises(Exception, match="-1"):
        run()
    assert (calls, table.scan().arrow().num_rows) == ([], 0)
    calls.append("the first attempt")
    with pytest.raises(Exception, match="after the commit"):
        run()
    assert list(table.scan()) == [(1,)]
    run()
    assert calls[1:] == [(0, 1, False), (0, 0, True)]
    assert list(table.scan()) == [(1,)]
