"""Checkpoints are written by a thread of their own: nobody waits for one, and the end of a process does."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from mergelake.log.model.operations import AddParts
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.background import settle
from tests.helpers.manifests import manifest, new_log, open_log, schema_with

INSERTS = """
import sys
import mergelake as ml
db = ml.connect(sys.argv[1])
db.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k SETTINGS checkpoint_interval = 8")
for n in range(7):
    db.table("t").append({"k": [n]})
"""


class Held(MemoryStore):
    """Checkpoints wait until they are let go."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def create(self, key, data):
        if "/checkpoints/" in key:
            assert self.go.wait(60)
        return super().create(key, data)


def test_commits_go_on_while_a_checkpoint_is_written():
    store = Held()
    log = new_log(store, schema_with(checkpoint_interval=4))
    for number in range(2, 12):
        log.commit(lambda _, number=number: [AddParts((manifest(number),))])
    assert log.state.version == 11
    assert not any(log.has_checkpoint(version) for version in (4, 8))
    store.go.set()
    settle()
    assert log.has_checkpoint(8)
    assert not log.checkpoint_failure
    assert open_log(store).state == log.state


def test_a_process_ends_when_its_checkpoint_is_written(tmp_path):
    done = subprocess.run([sys.executable, "-c", INSERTS, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in Path(tmp_path).glob("*/_log/checkpoints/*")] == ["00000000000000000008.arrow"]
