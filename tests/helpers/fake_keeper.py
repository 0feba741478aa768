"""A `Keeper` without a server: a dictionary with versions, in which something else may happen before every request."""

from __future__ import annotations

from collections.abc import Callable

from mergelake.core.base.errors import UnavailableError
from mergelake.log.backends.keeper import Check, Create, Delete, KeeperNode, Refused, SetData


class FakeEnsemble:
    """What all sessions share."""

    def __init__(self):
        self.nodes: dict[str, KeeperNode] = {"/": KeeperNode(b"", 0)}

    def commit(self, steps):
        """All steps or none; the rules of ZooKeeper."""
        nodes = dict(self.nodes)
        for step in steps:
            there = nodes.get(step.path)
            match step:
                case Create(path, data):
                    parent = path.rpartition("/")[0] or "/"
                    if there is not None or parent not in nodes:
                        raise Refused(path)
                    nodes[path] = KeeperNode(data, 0)
                case SetData(path, data, version):
                    if there is None or there.version != version:
                        raise Refused(path)
                    nodes[path] = KeeperNode(data, version + 1)
                case Check(path):
                    if there is None:
                        raise Refused(path)
                case Delete(path, version):
                    if there is None or version not in (-1, there.version):
                        raise Refused(path)
                    if any(name.startswith(f"{path}/") for name in nodes):
                        raise Refused(f"{path} is not empty")
                    del nodes[path]
        self.nodes = nodes


class FakeKeeper:
    """A session. `fault(kind)` is asked before each request: it may do something else first, and answers whether the
    request fails "before" or "after" it happened (or "": it does not).
    """

    hosts = "fake"

    def __init__(self, ensemble: FakeEnsemble, fault: Callable[[str], str] = lambda _: ""):
        self._ensemble = ensemble
        self._fault = fault

    def commit(self, *steps):
        how = self._fault("commit")
        if how == "before":
            raise UnavailableError("a test")
        self._ensemble.commit(steps)
        if how == "after":
            raise UnavailableError("a test")

    def get_many(self, paths):
        found = []
        for path in paths:  # one after the other: what happens in between is seen
            if self._fault("get"):
                raise UnavailableError("a test")
            found.append(self._ensemble.nodes.get(path))
        return found

    def get(self, path):
        return self.get_many([path])[0]

    def children(self, path):
        if self._fault("get"):
            raise UnavailableError("a test")
        return [name[len(path) + 1 :] for name in self._ensemble.nodes if name.rpartition("/")[0] == path]

    def ensure(self, path):
        parts = path.strip("/").split("/")
        for end in range(1, len(parts) + 1):
            self._ensemble.nodes.setdefault("/" + "/".join(parts[:end]), KeeperNode(b"", 0))
