"""The places where a log can lie, for tests that ask the same of all of them."""

from __future__ import annotations

import itertools
import threading
import uuid

from mergelake.core.base.clock import SystemClock
from mergelake.core.base.ids import RandomIds
from mergelake.log.backends.backend import EVERY, ObjectBackend
from mergelake.log.backends.backend_zookeeper import ZooKeeperBackend, make_tree
from mergelake.log.backends.backends import Backends
from mergelake.log.backends.keeper import Address, Keeper, close_all
from mergelake.log.commit.commit import Log
from mergelake.log.commit.migrate import new_tree
from mergelake.log.model.operations import AddParts, CreateTable
from mergelake.log.storage.machine import TableMachine
from tests.helpers.manifests import SCHEMA, manifest

PREFIX = "t/_log"
CLOCK = SystemClock()
_ids = RandomIds()
_numbers = itertools.count(1)


def end_sessions():
    """When all copies have been made, or given up."""
    for thread in threading.enumerate():
        if thread.name == "mergelake-seal":
            thread.join()
    close_all()


class Bucket:
    """Entries are objects of `store`."""

    def __init__(self, store):
        self.store = store

    def backend(self):
        """A client of its own."""
        return ObjectBackend(self.store, PREFIX, clock=CLOCK, threads=4)

    def close(self):
        """Nothing is open."""

    def new_log(self, schema=SCHEMA):
        log = self.open_log()
        log.commit(lambda _: [CreateTable(schema)])
        return log

    def open_log(self, **options):
        return Log.open(self.store, PREFIX, TableMachine(), clock=CLOCK, ids=_ids, author="test", **options)


class Ensemble(Bucket):
    """The tail is in ZooKeeper; each log that is opened has a session of its own."""

    def __init__(self, store, hosts, timeout_s=5):
        super().__init__(store)
        self.hosts = hosts
        self.timeout_s = timeout_s
        self.root = f"/test-{uuid.uuid4().hex}"
        self.path = f"{self.root}/{uuid.uuid4().hex}"
        self._keepers = [self.keeper()]
        make_tree(self._keepers[0], self.path, "a test")

    def keeper(self, hosts=""):
        return Keeper(Address(hosts or self.hosts, "", options=(("timeout_s", str(self.timeout_s)),)), CLOCK)

    def backend(self, hosts=""):
        self._keepers.append(self.keeper(hosts))
        bucket = ObjectBackend(self.store, PREFIX, clock=CLOCK, threads=4, batched=EVERY)
        return ZooKeeperBackend(self._keepers[-1], self.path, 0, bucket, CLOCK)

    def close(self):
        end_sessions()
        for keeper in self._keepers:
            keeper.close()

    def children(self):
        """Names of the trees that are there."""
        return self._keepers[0].children(self.root)

    def address(self, hosts=""):
        # The time-out differs a little each time, and so the session does.
        return f"zookeeper://{hosts or self.hosts}{self.root}?timeout_s={self.timeout_s}.{next(_numbers):05d}"

    def new_log(self, schema=SCHEMA):
        log = super().open_log(backends=Backends(self.address()))
        move = new_tree(Address.parse(self.address()), self.store, PREFIX, CLOCK, _ids)
        log.commit(lambda _: [CreateTable(schema), move])
        return log

    def open_log(self, hosts="", **options):
        return super().open_log(**{"backends": Backends(self.address(hosts)), **options})


def insert(log, part_id=None, **fields):
    """Commit a part; its id."""
    part_id = part_id or _ids.new_id()
    log.commit(lambda _: [AddParts((manifest(part_id, **fields),))])
    return part_id


def part_ids(state):
    return [part.manifest.id for part in state.parts()]
