"""How far a statement is that ClickHouse reads by itself: asked of `system.processes` now and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count

from mergelake.core.errors import MergelakeError
from mergelake.core.text import quote_string
from mergelake.query.embedded import engine

EVERY_S = 0.2
_numbers = count(1)


@contextmanager
def reporting(
    on_progress: Callable[[int, int], None] | None, settings: Mapping[str, str]
) -> Iterator[Mapping[str, str]]:
    """Settings for a statement, by which it is known; while it runs `on_progress` gets (rows read, rows to read)."""
    if on_progress is None or "log_comment" in settings:
        yield settings
        return
    mark = quote_string(f"mergelake-{next(_numbers)}")
    over = threading.Event()

    def poll() -> None:
        wanted = f"SELECT read_rows, total_rows_approx FROM system.processes WHERE Settings['log_comment'] = {mark}"
        while not over.wait(EVERY_S):
            with suppress(MergelakeError):
                for rows, total in zip(*engine.run(wanted).table().to_pydict().values(), strict=True):
                    on_progress(rows, max(rows, total))

    thread = threading.Thread(target=poll, name="mergelake-progress", daemon=True)
    thread.start()
    try:
        yield {**settings, "log_comment": mark}
    finally:
        over.set()
        thread.join()
