"""What the benchmarks share: timing, a table of ratios, the log table in ClickHouse."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Ratio:
    """One line of the result: ours against theirs, measured in the same run."""

    what: str
    ours: float
    theirs: float
    unit: str
    target: float
    higher_is_better: bool = False

    @property
    def ratio(self) -> float:
        """How many times worse than the yardstick; below 1 is better."""
        return self.theirs / self.ours if self.higher_is_better else self.ours / self.theirs


def in_process(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module in a process of its own; the JSON object of the last line that it prints."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def best_of(runs: int, call: Callable[[], Any]) -> float:
    """Seconds of the fastest of `runs` calls: the one least disturbed by whatever else the machine does."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def median_of(runs: int, call: Callable[[], Any]) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def show(title: str, yardstick: str, ratios: list[Ratio]) -> None:
    """Print the table of ratios."""
    table = Table(title=title, title_justify="left")
    for name in ("", "mergelake", yardstick, "ratio", "target", ""):
        table.add_column(name, justify="left" if not name else "right")
    for line in ratios:
        verdict = "[green]ok[/]" if line.ratio <= line.target else "[red]missed[/]"
        ours, theirs = (f"{value:,.4g} {line.unit}" for value in (line.ours, line.theirs))
        table.add_row(line.what, ours, theirs, f"{line.ratio:.2f}", f"{line.target:.2f}", verdict)
    Console(width=120).print(table)
