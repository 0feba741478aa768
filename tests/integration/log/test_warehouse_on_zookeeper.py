"""A whole warehouse whose commits are ordered by ZooKeeper: as a user has it."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
import time
import uuid

import pytest

import mergelake as ml
from mergelake.api.cli.main import app
from mergelake.api.python.seal import CATALOG, seal_logs
from mergelake.api.spark.locate import TablePath, TablePlace
from mergelake.core.base.clock import SystemClock
from mergelake.core.base.errors import InvalidInputError, UnavailableError
from mergelake.log.backends.keeper import Address, close_all, keeper
from mergelake.store import open_store
from tests.helpers.background import settle
from tests.helpers.manifests import SCHEMA
from tests.helpers.tcp_proxy import TcpProxy
from tests.integration.log.places import end_sessions

CREATE = "CREATE TABLE t (k Int64, v String) ENGINE = MergeTree ORDER BY k"


@pytest.fixture
def log(zookeeper):
    """Where the logs of this test are."""
    yield f"zookeeper://{zookeeper['ZOOKEEPER_HOSTS']}/test-{uuid.uuid4().hex}?timeout_s=3"
    end_sessions()


@pytest.fixture
def url(tmp_path):
    return str(tmp_path / "warehouse")


def rows(db, query="SELECT k FROM t ORDER BY k"):
    return [row[0] for row in db.sql(query).rows()]


def test_a_warehouse_remembers_where_its_logs_are(url, log):
    db = ml.connect(url, log=log)
    db.sql(CREATE)
    db.sql("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    for other in (ml.connect(url), ml.connect(url, {"log": log})):
        assert rows(other) == [1, 2]
        other.sql("INSERT INTO t VALUES (3, 'three')")
        other.sql("ALTER TABLE t DELETE WHERE k = 3") if False else other.sql("TRUNCATE TABLE t")
        other.sql("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    assert db.table("t").handle.log.refresh().sequencer.url.startswith(log.partition("?")[0])
    db.sql("CREATE TABLE u AS t")
    assert ml.connect(url).table("u").handle.log.state.sequencer.url
    bucket = ml.connect(url, log="bucket")
    bucket.sql("CREATE TABLE b AS t")
    assert bucket.table("b").handle.log.state.sequencer.url == ""


def test_a_commit_asks_nothing_of_the_bucket_while_the_user_waits(url, log):
    db = ml.connect(url, log=log)
    db.sql(CREATE)
    table = db.table("t")
    time.sleep(0.3)
    before = db.warehouse.store.counters
    table.append({"k": [1], "v": ["one"]})
    time.sleep(0.5)
    used = db.warehouse.store.counters - before
    assert (used.put, used.get, used.list) == (2, 0, 0)  # the part; its entry on the way to the bucket
    before = db.warehouse.store.counters
    table.refresh()
    assert (db.warehouse.store.counters - before).requests == 0


def test_opening_costs_what_it_costs_in_a_bucket(url, log):
    db = ml.connect(url, log=log)
    db.sql(CREATE)
    table = db.table("t")
    for number in range(63):  # version 64 has a checkpoint
        table.append({"k": [number], "v": [""]})
    settle()
    store = open_store(url)
    before = store.counters
    place = TablePlace(store.spec, table.handle.directory)
    handle = place.open()
    assert handle.log.state == table.handle.log.refresh()
    used = handle.store.counters - before
    assert used.get <= 3
    assert used.list == 0


def test_a_table_that_was_dropped_and_collected_leaves_nothing_in_zookeeper(url, log):
    warehouse = ml.Warehouse(url, log=log)
    warehouse.create_table("t", SCHEMA.with_settings({"gc_grace_seconds": "0", "history_retention_seconds": "0"}))
    (tree,) = {warehouse.table("t").handle.log.state.sequencer.url}
    warehouse.drop_table("t")
    for _ in range(4):
        warehouse.gc()
    address = Address.parse(tree)
    found = keeper(Address.parse(log), SystemClock()).children(address.root.rpartition("/")[0])
    assert address.root.rpartition("/")[2] not in found
    assert len(found) == 1  # the catalog's


@pytest.mark.slow
def test_several_processes_write_one_table(url, log):
    ml.connect(url, log=log).sql(CREATE)
    code = (
        "import sys, mergelake as ml\n"
        "t = ml.connect(sys.argv[1]).table('t')\n"
        "for n in range(10): t.append({'k': [int(sys.argv[2]) * 10 + n], 'v': ['']})\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, url, str(number)]) for number in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert rows(ml.connect(url)) == list(range(30))
    # Each process waited for its own copies, so the bucket alone has everything.
    assert rows(ml.connect(url, log="sealed")) == list(range(30))


def test_followers_see_an_insert_of_another_connection_at_once(url, log):
    db = ml.connect(url, log=log)
    db.sql(CREATE)
    handle = ml.connect(url, log=log + "1").table("t").handle
    threading.Timer(0.3, lambda: db.sql("INSERT INTO t VALUES (1, '')")).start()
    assert handle.wait_for(handle.log.state.version + 1, 60)
    assert not handle.wait_for(handle.log.state.version + 1, 0.1)


def test_a_node_is_woken_by_commits(url, log):
    db = ml.connect(url, log=log)
    db.sql(CREATE)
    node = ml.connect(url, log=log + "1").warehouse.node(poll_s=30)
    stop = threading.Event()
    thread = threading.Thread(target=node.run, args=(stop,))
    thread.start()
    try:
        time.sleep(0.5)
        ticks = node.status.ticks
        db.sql("INSERT INTO t VALUES (1, '')")
        for _ in range(40):
            time.sleep(0.05)
            if node.status.ticks > ticks:
                break
        assert node.status.ticks > ticks
    finally:
        stop.set()
        thread.join(10)


def test_spark_tasks_and_streams_find_the_log_again(url, log):
    db = ml.connect(url, log=log)
    db.sql(CREATE)
    db.sql("INSERT INTO t VALUES (1, '')")
    place = pickle.loads(pickle.dumps(TablePlace.of(db.table("t").handle)))
    assert place.open().log.state.row_count == 1
    path = pickle.loads(pickle.dumps(TablePath.parse(f"{url}/t", {"log": log})))
    assert path.open().log.state.row_count == 1


def test_without_zookeeper_the_bucket_is_read_and_taken_over(url, log, capsys):
    hosts = log.removeprefix("zookeeper://").partition("/")[0]
    with TcpProxy(hosts) as proxy:
        through = log.replace(hosts, proxy.address).replace("timeout_s=3", "timeout_s=1")
        db = ml.connect(url, log=through)
        db.sql(CREATE)
        db.sql("INSERT INTO t VALUES (1, 'one')")
        time.sleep(0.5)
        proxy.refuse = True
        proxy.cut()
        close_all()
        with pytest.raises(UnavailableError, match='log="sealed"'):
            ml.connect(url, log=through)
        sealed = ml.connect(url, log="sealed")
        assert rows(sealed) == [1]
        with pytest.raises(InvalidInputError, match="READONLY"):
            sealed.sql("INSERT INTO t VALUES (2, 'two')")
        with pytest.raises(InvalidInputError, match="READONLY"):
            sealed.sql("CREATE TABLE u AS t")
        with pytest.raises(UnavailableError):
            seal_logs(url, log=through)
        with pytest.raises(SystemExit) as ended:
            app(["log", "seal", url, "--force", "-o", f"log={through}", "--format", "json"])
    assert not ended.value.code
    told = {row["table"]: row["result"] for row in json.loads(capsys.readouterr().out)}
    assert set(told) == {CATALOG, "default.t"}
    assert all("is lost" in text for text in told.values())
    after = ml.connect(url)
    after.sql("INSERT INTO t VALUES (2, 'two')")
    assert rows(after) == [1, 2]
    after.sql("CREATE TABLE u AS t")
    assert after.table("u").handle.log.state.sequencer.url == ""


def test_a_warehouse_is_sealed_while_it_is_in_use(url, log, capsys):
    db = ml.connect(url, log=log)
    db.sql(CREATE)
    db.sql("INSERT INTO t VALUES (1, 'one')")
    with pytest.raises(SystemExit):
        app(["log", "seal", url, "t"])
    assert "all versions up to 2 were copied" in capsys.readouterr().out
    db.sql("INSERT INTO t VALUES (2, 'two')")
    with pytest.raises(SystemExit):
        app(["log", "seal", url])
    told = capsys.readouterr().out
    assert "was in the bucket already" in told
    db.sql("CREATE TABLE u AS t")
    db.sql("INSERT INTO t VALUES (3, 'three')")
    assert rows(ml.connect(url, log="sealed")) == [1, 2, 3]
    assert rows(db) == [1, 2, 3]


def test_an_address_that_is_none_is_refused_before_anything_is_written(url):
    for wrong in ("etcd://host/x", "zookeeper://", "zookeeper://h:1/x?timeout=3", "zookeeper://h:1/x?timeout_s=soon"):
        with pytest.raises(InvalidInputError, match="BAD_ARGUMENTS"):
            ml.connect(url, log=wrong)
    assert not list(open_store(url).list(""))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["bucket", "zookeeper"])
def test_history_follows_until_it_is_told_to_stop(url, log, place):
    db = ml.connect(url, log="bucket" if place == "bucket" else log)
    db.sql(CREATE)
    command = [sys.executable, "-m", "mergelake.api.cli", "history", url, "t", "--follow", "--format", "json"]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert [line for line in iter(following.stdout.readline, "]\n") if "version" in line] == ['    "version": 1,\n']
        for number in (2, 3):
            db.sql(f"INSERT INTO t VALUES ({number}, '')")
            assert json.loads(following.stdout.readline())["version"] == number
    finally:
        following.terminate()
        assert following.wait(20) == 0
        following.stdout.close()


def test_a_warehouse_is_moved_into_zookeeper_while_it_is_in_use(url, log, capsys):
    db = ml.connect(url)
    db.sql(CREATE)
    db.sql("CREATE TABLE u AS t")
    db.sql("INSERT INTO t VALUES (1, 'one')")
    handle = db.table("t").handle
    with pytest.raises(SystemExit) as ended:
        app(["log", "move", url, "t", "-o", f"log={log}", "--format", "json"])
    assert not ended.value.code
    (moved,) = json.loads(capsys.readouterr().out)
    assert moved["is_in"].startswith(log.partition("?")[0])
    handle.refresh()
    assert handle.log.state.sequencer.url == moved["is_in"]
    db.sql("INSERT INTO t VALUES (2, 'two')")
    assert ml.connect(url).table("u").handle.log.state.sequencer.url == ""
    with pytest.raises(SystemExit):
        app(["log", "move", url, "-o", f"log={log}", "--format", "json"])
    assert {row["table"] for row in json.loads(capsys.readouterr().out)} == {CATALOG, "default.t", "default.u"}
    db.sql("CREATE TABLE v AS t")
    db.sql("INSERT INTO t VALUES (3, 'three')")
    assert rows(ml.connect(url)) == [1, 2, 3]
    assert db.table("v").handle.log.state.sequencer.url
    for wrong, name in ((["-o", "log=bucket"], "BAD_ARGUMENTS"), (["nosuch", "-o", f"log={log}"], "UNKNOWN_TABLE")):
        with pytest.raises(SystemExit) as ended:
            app(["log", "move", url, *wrong])
        assert ended.value.code == 1
        assert name in capsys.readouterr().err
