"""What a release does where it meets objects of a newer one: it stops before it writes or answers anything.

The older release is history and cannot be changed, so this is also a list of what it can bear: see
`docs/design/0031-stored-formats-and-releases.md`. Today's release is asked the same.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.log.storage.encoding import sealed
from tests.helpers.newer import (
    IN_THE_CATALOG,
    IN_THE_TABLE,
    NEW,
    TAKEN_FOR_DAMAGE,
    UNSEEN,
    a_segment_of_a_newer_format,
    an_entry_with_a_new_operation,
    append,
    collection_note,
    log_of,
    objects,
)
from tests.helpers.releases import COMMITS, TODAY, Driver, drivers, release, until

Newer = Callable[[Path], None]
STOPS, DAMAGED = "UNKNOWN_FORMAT_VERSION", "CORRUPTED_DATA"
BLIND = {"7a13fce521441b4697398b4fd734883998901264": {a_segment_of_a_newer_format}}
"""What a release takes for damage although it has a newer format."""
READ = {"do": "about", "sql": "SELECT count(), sum(v), max(s) FROM t"}
COMMANDS: dict[str, dict[str, Any]] = {
    "read": READ,
    "insert": {"do": "about", "sql": "INSERT INTO t VALUES (0, 1, 1, 'a')"},
    "update": {"do": "about", "sql": "ALTER TABLE t UPDATE s = 'new' WHERE k > 0"},
    "alter": {"do": "about", "sql": "ALTER TABLE t ADD COLUMN c UInt8"},
    "merge": {"do": "about", "sql": "OPTIMIZE TABLE t FINAL"},
    "apply": {"do": "apply_mutations", "table": "t"},
    "publish": {"do": "publish", "table": "t"},
    "move": {"do": "about", "sql": "ALTER TABLE t MOVE PARTITION 0 TO TABLE u"},
}
OVER_ALL_TABLES: dict[str, dict[str, Any]] = {
    "node": {"do": "node_round"},
    "collect": {"do": "collect"},
    "fsck": {"do": "fsck"},
    "repair": {"do": "fsck", "repair": True},
}
"""A table that cannot be opened does not keep these from the others."""
SPARK: dict[str, dict[str, Any]] = {
    "read": {"do": "spark", "sql": "SELECT count(*) FROM t"},
    "write": {"do": "spark", "write": [[0, 1, 1, "a"]]},
}


@pytest.fixture(params=COMMITS, ids=lambda commit: commit[:8], scope="module")
def commit(request: pytest.FixtureRequest) -> str:
    """An older release."""
    return str(request.param)


@pytest.fixture(scope="module")
def pair(commit: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Driver]]:
    """A process of an older release, and one of today's."""
    with drivers([release(commit), TODAY], tmp_path_factory.mktemp("drivers")) as held:
        yield held


@pytest.fixture(scope="module")
def written(pair: list[Driver], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse that the older release wrote, with an object of every kind."""
    old, url = pair[0], tmp_path_factory.mktemp("written") / "w"
    columns = "p UInt8, k UInt64, v UInt64, s String"
    settings = "checkpoint_interval = 4, history_retention_seconds = 0, gc_grace_seconds = 1"

    def run(*statements: str) -> None:
        for sql in statements:
            old.ask("about", sql=sql, url=str(url))

    run(
        f"CREATE TABLE t ({columns}) ENGINE = MergeTree PARTITION BY p ORDER BY k SETTINGS {settings}",
        "CREATE TABLE r (k UInt64, v UInt64) ENGINE = ReplacingMergeTree(v) ORDER BY k",
        "CREATE TABLE u AS t",
    )
    old.ask("write", slot=1, first=0, count=5, url=str(url))
    old.ask("publish", table="t", url=str(url))
    run(
        "OPTIMIZE TABLE t FINAL",
        "ALTER TABLE t FREEZE WITH NAME 'kept'",
        "ALTER TABLE t UPDATE s = 'x' WHERE k % 2 = 0",
        "ALTER TABLE t MOVE PARTITION 2 TO TABLE u",
    )
    ml.connect(str(url)).warehouse.catalog.log.write_checkpoint()
    return url


@pytest.fixture
def root(written: Path, tmp_path: Path) -> Path:
    """A copy of that warehouse."""
    return Path(shutil.copytree(written, tmp_path / "w"))


def tried(driver: Driver, root: Path, commands: dict[str, dict[str, Any]]) -> dict[str, str]:
    """How each command ends that knows nothing of the ones before it; the objects stay what they are."""
    before, ends = objects(root), {}
    for name, command in commands.items():
        ends[name] = driver.tried(**command, url=str(root), fresh=True)
        assert objects(root) == before, f"{driver.release.name} changes objects: {name}"
    return ends


def kinds(*given: tuple[Newer, ...]) -> Any:
    """A test for each kind of newer object."""
    every = [kind for group in given for kind in group]
    return pytest.mark.parametrize("newer", every, ids=lambda kind: kind.__name__)


def able(pair: list[Driver], commit: str, newer: Newer) -> list[Driver]:
    """Those that see that an object is of a newer release."""
    return pair[1:] if newer in BLIND.get(commit, ()) else pair


@kinds(IN_THE_TABLE)
def test_a_newer_object_of_a_table_stops_all_that_is_done_with_it(
    pair: list[Driver], commit: str, root: Path, newer: Newer
) -> None:
    newer(root)
    for driver in able(pair, commit, newer):
        assert tried(driver, root, COMMANDS) == dict.fromkeys(COMMANDS, STOPS)
        # Nodes and collectors leave the table alone and go on with others; fsck says what is there.
        assert tried(driver, root, OVER_ALL_TABLES) == dict.fromkeys(OVER_ALL_TABLES, "")
        found = driver.ask("fsck", url=str(root), fresh=True)
        assert STOPS in str(found["default.t"])
        assert found["default.r"] == []
        if driver.release == TODAY:  # the older one says to drop the partition
            assert "upgrade" in str(found["default.t"])
            assert "drop" not in str(found["default.t"])


@kinds(IN_THE_CATALOG)
def test_a_newer_object_of_the_catalog_stops_everything(pair: list[Driver], root: Path, newer: Newer) -> None:
    newer(root)
    every = {**COMMANDS, **OVER_ALL_TABLES, "drop": {"do": "about", "sql": "DROP TABLE t"}}
    for driver in pair:
        assert tried(driver, root, every) == dict.fromkeys(every, STOPS)


@kinds(TAKEN_FOR_DAMAGE)
def test_a_new_field_where_all_are_known_is_taken_for_damage(pair: list[Driver], root: Path, newer: Newer) -> None:
    newer(root)
    for driver in pair:
        assert tried(driver, root, COMMANDS) == dict.fromkeys(COMMANDS, DAMAGED)
        assert tried(driver, root, OVER_ALL_TABLES) == dict.fromkeys(OVER_ALL_TABLES, "")


@kinds(UNSEEN)
def test_a_new_field_elsewhere_is_not_seen_so_it_must_not_mean_anything(
    pair: list[Driver], written: Path, root: Path, newer: Newer
) -> None:
    known = [driver.ask(**READ, url=str(written), fresh=True) for driver in pair]
    newer(root)
    assert [driver.ask(**READ, url=str(root), fresh=True) for driver in pair] == known


def test_a_release_that_takes_a_newer_segment_for_damage_goes_on_from_an_older_checkpoint(
    pair: list[Driver], commit: str, written: Path, root: Path
) -> None:
    if a_segment_of_a_newer_format not in BLIND.get(commit, ()):
        pytest.skip("it stops")
    a_segment_of_a_newer_format(root)
    old, before = pair[0], objects(root)
    assert old.ask(**READ, url=str(root), fresh=True) == old.ask(**READ, url=str(written), fresh=True)
    assert "A checkpoint is not readable" in str(old.ask("fsck", url=str(root), fresh=True)["default.t"])
    # A repair takes the checkpoint away that names the segment, and no entry.
    old.ask("fsck", repair=True, url=str(root), fresh=True)
    after = objects(root)
    (gone,) = (name for name in before if after.get(name) != before[name])
    assert "/checkpoints/" in gone


def test_a_field_of_a_collection_note_is_not_seen_and_a_note_of_a_new_kind_is_left_alone(
    pair: list[Driver], written: Path, tmp_path: Path
) -> None:
    for number, driver in enumerate(pair):
        for kind in ("objects", "trifles"):
            root = Path(shutil.copytree(written, tmp_path / f"{kind}-{number}"))
            unused = collection_note(root, kind, format=2, unless="somebody reads it")

            def collected(driver: Driver = driver, root: Path = root, unused: Path = unused) -> bool:
                driver.ask("collect", url=str(root), fresh=True)
                return not unused.exists()

            if kind == "objects":
                until(collected, "what the note names is deleted")
            else:
                assert not collected()
                assert len([*(log_of(root).parent / "_gc").glob("*-trifles-*")]) == 1


def test_drop_table_takes_the_name_of_a_newer_table_and_leaves_its_objects(pair: list[Driver], root: Path) -> None:
    an_entry_with_a_new_operation(root)
    for driver in pair:
        before = objects(root)
        driver.ask("about", sql="DROP TABLE t", url=str(root), fresh=True)
        driver.ask("collect", url=str(root), fresh=True)
        after = objects(root)
        assert {name: after.get(name) for name in before} == before
        (new,) = after.keys() - before.keys()
        assert new.startswith("_catalog/log/")
        (root / new).unlink()


def test_a_process_that_had_the_table_open_appends_nothing_behind_a_newer_entry(pair: list[Driver], root: Path) -> None:
    before: dict[str, str] = {}
    for driver in pair:
        driver.ask(**READ, url=str(root), fresh=True)
    append(log_of(root), NEW)
    for driver in pair:
        before = objects(root)
        for name, command in COMMANDS.items():
            assert driver.tried(**command, url=str(root)) == STOPS, name
        after = objects(root)
        assert {name: after.get(name) for name in before} == before
        # An insert writes its part before its entry; a part without an entry is nothing, and is collected.
        assert not any("/_" in f"/{name}" for name in after.keys() - before.keys())


def test_a_task_and_a_result_of_a_newer_format_are_refused(pair: list[Driver], root: Path, tmp_path: Path) -> None:
    (planned, *_) = TODAY.mergelake("plan", str(root), "t", "--mutations", "--out", str(tmp_path / "tasks")).split()
    task = json.loads(Path(planned).read_bytes())
    result = {"format": 2, "task": task.pop("digest"), "part": None}
    newer_task, newer_result = tmp_path / "task.json", tmp_path / "result.json"
    newer_task.write_bytes(sealed({**task, "format": 2}))
    newer_result.write_bytes(sealed(result))
    before = objects(root)
    for driver in pair:
        for arguments in (["work", str(newer_task)], ["commit", planned, str(newer_result)]):
            done = subprocess.run(
                [driver.release.command, *arguments],
                env=driver.release.environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 1
            assert STOPS in done.stderr
            assert objects(root) == before


@pytest.mark.slow
@pytest.mark.spark
@kinds((an_entry_with_a_new_operation, IN_THE_CATALOG[0], IN_THE_TABLE[-1]))
def test_a_spark_job_stops_too(pair: list[Driver], root: Path, newer: Newer) -> None:
    newer(root)
    for driver in pair:
        assert tried(driver, root, SPARK) == dict.fromkeys(SPARK, STOPS)


@pytest.mark.slow
def test_a_newer_entry_in_zookeeper_stops_all_that_is_done_with_the_table(
    pair: list[Driver], zookeeper: dict[str, str], tmp_path: Path
) -> None:
    from kazoo.client import KazooClient

    url, hosts = str(tmp_path / "w"), zookeeper["ZOOKEEPER_HOSTS"]
    for sql in (
        "CREATE TABLE t (p UInt8, k UInt64, v UInt64, s String) ENGINE = MergeTree PARTITION BY p ORDER BY k",
        "CREATE TABLE u AS t",
        "INSERT INTO t VALUES (0, 1, 1, 'a'), (1, 2, 2, 'b')",
        "ALTER TABLE t UPDATE v = 5 WHERE k = 1",
    ):
        pair[0].ask("about", sql=sql, url=url, log=f"zookeeper://{hosts}/{tmp_path.name}")
    publish = {"publish": COMMANDS["publish"], "apply": COMMANDS["apply"]}
    client = KazooClient(hosts)
    client.start(30)
    try:

        def nodes(path: str = f"/{tmp_path.name}") -> dict[str, bytes]:
            held = {path: client.get(path)[0]}
            for name in client.get_children(path):
                if name not in ("sealer", "progress"):  # a copier is at work
                    held |= nodes(f"{path}/{name}")
            return held

        (last,) = (path for path, data in nodes().items() if b'"op":"Mutation"' in data)
        raw = json.loads(client.get(last)[0])
        raw.pop("digest")
        version = raw["version"] + 1
        raw |= {"version": version, "attempt": "a" * 24 + "-1", "ops": [NEW]}
        folder = last.rpartition("/")[0]
        change = client.transaction()
        change.set_data(f"{folder.rpartition('/')[0]}/tail", b"%d" % version)
        change.create(f"{folder}/{version:020d}", sealed(raw))
        change.commit()
        before = nodes()
        for driver in pair:
            for name, command in {**COMMANDS, **publish}.items():
                assert driver.tried(**command, url=url, fresh=True) == STOPS, name
            assert nodes() == before
    finally:
        client.stop()
        client.close()


def test_the_design_note_has_the_numbers_of_today() -> None:
    from mergelake.jobs.merge import slices, task_json
    from mergelake.log.backends import intake
    from mergelake.log.reading import transactions
    from mergelake.log.storage import catalog, checkpoint, encoding, segment

    note = (Path(__file__).resolve().parents[2] / "docs/design/0031-stored-formats-and-releases.md").read_text()
    modules = (encoding, checkpoint, segment, catalog, transactions, intake, task_json, slices)
    for module in modules:
        found = {name: held for name, held in vars(module).items() if "FORMAT" in name and isinstance(held, int)}
        assert found
        for name, number in found.items():
            assert f"`{name}` {number}" in note, f"{module.__name__}.{name} = {number}"
