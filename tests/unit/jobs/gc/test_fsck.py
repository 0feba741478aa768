"""Deliberately damaged tables: what `fsck` finds, what it mends, and what it leaves alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mergelake.api.cli.main import app
from mergelake.api.python.warehouse import Warehouse
from mergelake.api.sql.database import Database, connect
from mergelake.core.model.names import PartInfo
from mergelake.jobs.gc.fsck import part_set, parts_at_rest
from mergelake.jobs.publish.plan import shown_token
from mergelake.log.model.operations import MergeRecipe
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import State, VolatilePart
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.manifests import manifest

CREATE = """CREATE TABLE t (k UInt64, s String) ENGINE = MergeTree ORDER BY k PARTITION BY k % 2
    SETTINGS checkpoint_interval = 4, min_bytes_for_full_part_storage = {}"""


@pytest.fixture(params=["packed", "full"])
def db(request):
    db = Database(Warehouse(MemoryStore(), threads=1))
    db.sql(CREATE.format(1_000_000 if request.param == "packed" else 0))
    for first in range(0, 40, 8):
        db.sql(f"INSERT INTO t SELECT number + {first}, toString(number) FROM numbers(8)")
    db.table("t").optimize(partition_id="0")
    return db


def run(db, **options):
    ((name, report),) = db.warehouse.fsck("t", **options)
    assert name == "default.t"
    return report


def found(report):
    return [(finding.kind, finding.harmless) for finding in report.findings]


def key_of(db, number=0):
    handle = db.table("t").handle
    part = list(handle.log.state.parts())[number]
    key = next(iter(part.manifest.file_table().values())).extents[0].key
    return part, f"{handle.directory}/{key}"


def test_a_whole_table_is_clean(db):
    report = run(db)
    assert found(report) == []
    assert report.clean
    assert (report.version, report.parts, report.entries) == (7, 6, 7)
    assert report.objects >= 6


def test_a_missing_object_is_named_with_its_part(db):
    part, key = key_of(db)
    db.warehouse.store.delete([key])
    report = run(db, repair=True)
    assert {(f.kind, f.where) for f in report.findings} == {("object", part.name)}
    assert not report.clean
    assert "missing" in report.findings[0].what
    assert report.repaired == []


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: b""])
def test_an_object_that_was_cut_is_named(db, change):
    part, key = key_of(db, -1)
    store = db.warehouse.store
    store.put(key, change(store.get(key)))
    report = run(db)
    assert [(f.kind, f.where) for f in report.findings] == [("object", part.name)]
    assert "bytes instead of" in report.findings[0].what


def test_what_nobody_refers_to_is_told_and_left_alone(db):
    handle = db.table("t").handle
    key = f"{handle.directory}/{'ab' * 16}/files.packed"
    db.warehouse.store.put(key, b"left behind")
    report = run(db, repair=True)
    assert found(report) == [("orphan", True)]
    assert report.clean
    assert "11 bytes" in report.findings[0].what
    assert db.warehouse.store.get(key)


def test_parts_of_old_versions_and_detached_ones_are_no_orphans(db):
    db.table("t").truncate()
    report = run(db)
    assert found(report) == []
    assert report.parts == 0


def test_a_bad_checkpoint_is_written_anew(db):
    handle, store = db.table("t").handle, db.warehouse.store
    key = f"{handle.directory}/_log/checkpoints/{4:020d}.arrow"
    store.put(key, store.get(key)[:-3])
    assert ("log", False) in found(run(db))
    report = run(db, repair=True)
    assert "emptied the checkpoint of version 4" in report.repaired
    again = run(db)
    assert again.clean
    assert found(again) == []


def test_a_table_that_cannot_be_opened_is_reported(db):
    handle, store = db.table("t").handle, db.warehouse.store
    store.delete([f"{handle.directory}/_log/{6:020d}.json"])
    key = f"{handle.directory}/_log/{5:020d}.json"
    store.put(key, store.get(key).replace(b'"rows":4', b'"rows":5'))
    (names, report) = (report for _, report in Warehouse(store, threads=1).fsck())
    assert names.clean
    assert {(f.kind, f.where) for f in report.findings} >= {("log", "entry 5"), ("log", "entry 6")}
    assert not report.clean


def test_a_name_without_a_table_is_reported(db):
    handle, store = db.table("t").handle, db.warehouse.store
    store.delete([item.key for item in store.list(handle.directory)])
    ((_, names), (name, report)) = Warehouse(store, threads=1).fsck()
    assert names.clean
    assert name == "default.t"
    assert "There is no table" in report.findings[0].what
    assert not report.clean


def test_published_names_are_compared_and_mended(db):
    table, store = db.table("t"), db.warehouse.store
    table.publish()
    assert found(run(db)) == []
    handle = table.handle
    parts = list(handle.log.state.parts())
    tokens = [shown_token(part.manifest) for part in parts]
    names = [f"{handle.directory}/__meta/{token}/prefix.path" for token in tokens]
    store.put(names[0], b"all_9_9_9/")
    store.delete([names[1]])
    ghost = "cd" * 16
    store.put(f"{handle.directory}/__meta/{ghost}/prefix.path", b"1_77_77_0/")
    report = run(db)
    assert sorted((f.kind, f.where, f.harmless) for f in report.findings) == sorted(
        [
            ("name", tokens[0], False),
            ("name", parts[1].manifest.id, True),
            ("name", ghost, False),
        ]
    )
    report = run(db, repair=True)
    assert f"took the name of {ghost} away" in report.repaired
    assert found(run(db)) == []
    assert store.get(names[0]).decode() == f"{parts[0].name}/"


def test_a_name_whose_files_were_laid_out_while_the_table_was_listed_is_right(db, monkeypatch):
    table, store = db.table("t"), db.warehouse.store
    table.publish()
    handle = table.handle
    late = shown_token(next(handle.log.state.parts()).manifest)
    listing = store.list

    def without(prefix, after=""):
        """The page with this directory was sent before its files were there; the names came later."""
        hidden = f"{handle.directory}/{late}/" if prefix == handle.directory else " "
        return (meta for meta in listing(prefix, after) if not meta.key.startswith(hidden))

    monkeypatch.setattr(store, "list", without)
    assert [f for f in run(db, repair=True).findings if f.kind == "name"] == []
    assert store.get(f"{handle.directory}/__meta/{late}/prefix.path")


def test_repair_never_deletes_an_object_of_a_part(db):
    table, store = db.table("t"), db.warehouse.store
    table.publish()
    _, key = key_of(db)
    directory = table.handle.directory
    store.put(f"{directory}/{'ab' * 16}/x.bin", b"x")
    store.put(f"{directory}/_log/checkpoints/{4:020d}.arrow", b"?")
    store.put(key, store.get(key)[:-1])
    store.put(f"{directory}/__meta/{'cd' * 16}/prefix.path", b"1_77_77_0/")
    data = {m.key: m.size for m in store.list(directory) if "/_log/" not in m.key and "__meta" not in m.key}
    entries = [m.key for m in store.list(f"{directory}/_log") if m.key.endswith(".json")]
    run(db, repair=True)
    assert {m.key: m.size for m in store.list(directory) if m.key in data} == data
    assert [m.key for m in store.list(f"{directory}/_log") if m.key.endswith(".json")] == entries


def test_what_a_clone_refers_to_is_looked_for_where_it_lies(db):
    db.sql("CREATE TABLE c CLONE AS t")
    ((_, report),) = db.warehouse.fsck("c")
    assert found(report) == []
    _, key = key_of(db)
    db.warehouse.store.delete([key])
    ((_, report),) = db.warehouse.fsck("c")
    assert ("object", False) in found(report)
    assert f"/{key} is missing" in report.findings[0].what


def active(low, high, part_id):
    return ActivePart(PartInfo("all", low, high, 0), manifest(part_id), 1, 1)


def volatile(low, high, *sources):
    infos = tuple((f"{number:032x}", PartInfo("all", number, number, 0)) for number in sources)
    return VolatilePart("v" * 32, PartInfo("all", low, high, 1), infos, MergeRecipe(1, 0), "node", 2, 2)


def test_a_volatile_part_without_its_sources_is_found():  # M-011
    parts = (active(1, 1, 1), active(2, 2, 2), active(3, 3, 3))
    state = State(version=3, partitions={"all": parts}, volatile={"all": (volatile(1, 2, 1, 2),)})
    assert not list(part_set(state))
    gone = replace(state, partitions={"all": (active(1, 1, 1), active(3, 3, 3))})
    assert [f.what.partition(" ")[0] for f in part_set(gone)] == ["the", "its"]
    published = replace(state, partitions={"all": (active(1, 1, 1), active(2, 2, 77), active(3, 3, 3))})
    assert not list(part_set(published))


def test_broken_rules_of_the_part_set_are_found():
    state = State(version=3, partitions={"all": (active(1, 3, 1), active(3, 4, 2), active(5, 5, 2))})
    assert [(f.where, f.what.partition(" ")[0]) for f in part_set(state)] == [("all_5_5_0", "the"), ("all_3_4_0", "it")]
    assert next(f.what for f in part_set(replace(state, floor=1))) == "blocks up to 1 have been dropped"
    assert not list(parts_at_rest(State(), {}))


def test_the_command_says_what_is_wrong_and_ends_with_1(tmp_path, capsys):
    url = str(tmp_path / "w")
    db = connect(url)
    db.sql(CREATE.format(1_000_000))
    db.sql("INSERT INTO t VALUES (1, 'a'); INSERT INTO t VALUES (2, 'b')")
    assert command("fsck", url) == 0
    assert "nothing wrong" in capsys.readouterr().out
    assert command("log", "verify", url, "t") == 0
    assert "3 entries, versions 1 to 3, 0 checkpoints: nothing wrong" in capsys.readouterr().out
    _, key = key_of(db)
    db.warehouse.store.delete([key])
    assert command("fsck", url, "t", "--format", "json") == 1
    ((told),) = json.loads(capsys.readouterr().out)
    assert (told["table"], told["clean"], told["findings"][0]["kind"]) == ("default.t", False, "object")
    directory = db.table("t").handle.directory
    db.warehouse.store.delete([f"{directory}/_log/{2:020d}.json"])
    assert command("log", "verify", url, "t", "--format", "json") == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["place"], problem["problem"]) == ("entry 2", "it is missing")
    assert command("log", "verify", url, "nosuch") == 1
    assert "UNKNOWN_TABLE" in capsys.readouterr().err


def command(*arguments):
    try:
        app(list(arguments))
    except SystemExit as left:
        return left.code or 0
    return 0
