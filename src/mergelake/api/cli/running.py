"""Run a statement while a person watches: progress on the terminal, Ctrl-C cancels the statement, not the shell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from rich.live import Live
from rich.text import Text

from mergelake.api.cli.output import Output, count, size
from mergelake.api.cli.signals import counted_interrupts
from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import UnavailableError
from mergelake.core.base.progress import Progress

if TYPE_CHECKING:
    from mergelake.api.sql.database import Database
    from mergelake.api.sql.result import Result

T = TypeVar("T")

_LOOKS_EVERY_S = 0.08
_SHOW_AFTER_S = 0.3
_ENDS_WITHIN_S = 2.0
_BAR = 12
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def run_watched(db: Database, statement: str, output: Output, clock: Clock, format: str = "") -> Result:
    """The statement's result (the beginning of a large one), in `format` unless the statement names one.

    Raises what the statement raises, and KeyboardInterrupt after Ctrl-C, which cancels the statement. Ctrl-C pressed
    again while the statement ends has no effect.
    """
    if not output.messages.is_terminal:
        return db.sql(statement, format=format)
    seen: dict[str, Progress] = {}

    def record(news: Progress) -> None:
        seen[news.doing] = news

    db.on_progress = record
    try:
        return _waited(lambda: db.sql(statement, format=format), seen, output, clock, db.cancel)
    finally:
        db.on_progress = None


def when_up(begin: Callable[[], T], stop: threading.Event, output: Output) -> T | None:
    """The result of `begin`, which is called again, after longer and longer pauses, while the store is unavailable.

    None if `stop` is set first. A note that it waits, and why, is printed once.
    """
    from mergelake.jobs.node.runner import DOWN_FIRST_S, DOWN_MAX_S

    wait_s = 0.0
    while not stop.is_set():
        try:
            return begin()
        except UnavailableError as failure:
            if not wait_s:
                output.note(f"Waiting for the store: {failure}")
            wait_s = min(max(2 * wait_s, DOWN_FIRST_S), DOWN_MAX_S)
            stop.wait(wait_s)
    return None


def _waited(
    call: Callable[[], Result],
    seen: Mapping[str, Progress],
    output: Output,
    clock: Clock,
    cancel: Callable[[], None],
) -> Result:
    done = threading.Event()
    outcome: list[Result] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(call())
        except BaseException as failure:  # noqa: BLE001  (raised again in the caller's thread)
            failures.append(failure)
        finally:
            done.set()

    # The worker keeps its own ClickHouse connection; a daemon, so that a stuck statement cannot hold the process.
    threading.Thread(target=work, daemon=True, name="mergelake-statement").start()
    started = clock.monotonic_s()
    live: Live | None = None
    with counted_interrupts() as interrupted:
        try:
            while not done.wait(_LOOKS_EVERY_S) and not interrupted():
                elapsed = clock.monotonic_s() - started
                if live is None and elapsed > _SHOW_AFTER_S:
                    live = Live(console=output.messages, transient=True, auto_refresh=False)
                    live.start()
                if live is not None:
                    live.update(progress_line(elapsed, list(seen.values())), refresh=True)
        finally:
            if live is not None:
                live.stop()
        if interrupted():
            cancel()
            if not done.wait(_ENDS_WITHIN_S):
                output.note("It still ends what it cannot leave half done.")
    if interrupted() and not outcome:  # with an outcome, the statement was done before it was cancelled
        raise KeyboardInterrupt
    if failures:
        raise failures[0]
    return outcome[0]


def progress_line(elapsed_s: float, seen: Iterable[Progress]) -> Text:
    """Progress of a running statement: elapsed time and, for each kind of work, rows, bytes and rows per second so far.

    A percentage is shown only if the total number of rows is known. It is rounded down and never 100 %, because the
    statement has not ended.
    """
    spinner = _SPINNER[int(elapsed_s * 12) % len(_SPINNER)]
    text = Text(f"{spinner} {elapsed_s:5.1f} s", style="cyan", no_wrap=True, overflow="ellipsis")
    # Reading comes last: a narrow screen cuts the end of the line off.
    for news in sorted(seen, key=lambda news: news.doing == "read"):
        if not news.rows:
            continue
        rows = count(news.rows)
        if news.total_rows:
            share = min(news.rows * 100 // news.total_rows, 99)
            filled = share * _BAR // 100
            text.append(f"  {'━' * filled}{'╌' * (_BAR - filled)} {share:2d}%")
            rows += f" of {count(news.total_rows)}"
        size_text = f", {size(news.bytes)}" if news.bytes else ""
        speed = count(news.rows / max(elapsed_s, 1e-3))
        text.append(f"  {rows} rows {news.doing}{size_text} ({speed} rows/s)", style="dim")
    return text
