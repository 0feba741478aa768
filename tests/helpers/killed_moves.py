"""A process that brings a partition from table to table, and is killed on its way: `python -m … URL OPTIONS KIND STEP`.

STEP counts what the process writes; an even one is killed before the request, an odd one when its reply has come.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from mergelake.api.python import Warehouse
from mergelake.store import open_store
from mergelake.table.partitions.exchange_parts import bring_partition


class Killed:
    """A store that kills its process with SIGKILL at one of its writes."""

    def __init__(self, inner: Any, step: int) -> None:
        self._inner, self._step, self._writes = inner, step, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, key: str, data: Any) -> None:
        self._written(lambda: self._inner.put(key, data))

    def create(self, key: str, data: Any) -> Any:
        return self._written(lambda: self._inner.create(key, data))

    def _written(self, send: Any) -> Any:
        at, self._writes = self._writes, self._writes + 1
        if self._step == 2 * at:
            os.kill(os.getpid(), signal.SIGKILL)
        out = send()
        if self._step == 2 * at + 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return out


def main(url: str, options: str, kind: Any, step: str) -> None:
    warehouse = Warehouse(open_store(url, json.loads(options)), author="setup")
    store: Any = Killed(warehouse.store, int(step))
    warehouse = Warehouse(store, author="killed")
    source, target = (warehouse.table(name).handle for name in "ab")
    print("done", bring_partition(source, target, "1", kind, source.neighbour), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
