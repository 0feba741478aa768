"""Progress of a statement whose tables ClickHouse reads by itself, polled from `system.processes`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count

from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.progress import OnProgress, Progress
from mergelake.core.base.text import quote_string
from mergelake.query.embedded import engine

EVERY_S = 0.2
_numbers = count(1)


@contextmanager
def reporting(on_progress: OnProgress | None, settings: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Context with settings that identify a statement; calls `on_progress` with what was read meanwhile."""
    if on_progress is None or "log_comment" in settings:
        yield settings
        return
    mark = quote_string(f"mergelake-{next(_numbers)}")
    over = threading.Event()

    def poll() -> None:
        columns = "read_rows, total_rows_approx, read_bytes"
        wanted = f"SELECT {columns} FROM system.processes WHERE Settings['log_comment'] = {mark}"
        while not over.wait(EVERY_S):
            with suppress(MergelakeError):
                for rows, total, size in zip(*engine.run(wanted).table().to_pydict().values(), strict=True):
                    on_progress(Progress("read", rows, total, size))

    thread = threading.Thread(target=poll, name="mergelake-progress", daemon=True)
    thread.start()
    try:
        yield {**settings, "log_comment": mark}
    finally:
        over.set()
        thread.join()
