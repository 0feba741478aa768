"""Whether a SELECT runs in tasks of Spark, and why. What plans and runs them is loaded only where it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mergelake.core.base.errors import error
from mergelake.query.context import Context
from mergelake.query.prepare import Prepared, Tables
from mergelake.query.source import SourceScan
from mergelake.query.statement.settings import keeps_partial_answers
from mergelake.query.statement.settings_semantics import statement_settings

if TYPE_CHECKING:
    from mergelake.query.spread.steps import Planner, Steps

SPARK_ROWS_MIN = 50_000_000
"""`executor = 'auto'` goes to Spark from this many rows to read."""
_ALLOWED = frozenset(("join_use_nulls",))
"""Settings that change answers, and mean the same for each row of a share."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where a statement runs."""

    executor: str
    """local or spark."""
    why: str
    planner: Planner | None = None
    steps: Steps | None = None
    """None where it runs here."""
    folder: TemporaryDirectory[str] | None = None
    """For what its steps give; the caller has it removed."""

    def close(self) -> None:
        """Leave nothing behind."""
        if self.folder is not None:
            self.folder.cleanup()


def may_be_spread(context: Context) -> bool:
    """Whether statements may go to Spark at all."""
    return context.run_tasks is not None and context.executor != "local"


def choose_executor(prepared: Prepared, tables: Tables, scans: Mapping[str, SourceScan], context: Context) -> Chosen:
    """Where the statement runs, why, and by which steps."""
    if context.executor not in ("auto", "local", "spark"):
        raise error(
            "BAD_ARGUMENTS", f"There is no executor '{context.executor}'", "SET executor = 'auto', 'local' or 'spark'"
        )
    if context.executor == "local":
        return Chosen("local", "asked for by the setting executor")
    if context.run_tasks is None:
        return Chosen("local", "no Spark session")
    if prepared.setting:
        return Chosen("local", f"the setting {prepared.setting} is for ClickHouse's own reading")
    names = {*context.settings, *statement_settings(prepared.parsed)} - _ALLOWED
    if not keeps_partial_answers(names):
        return Chosen("local", "a setting changes what partial answers mean")
    rows = sum(scan.rows for scan in scans.values())
    if context.executor == "auto" and rows < SPARK_ROWS_MIN:
        return Chosen("local", f"{rows} rows to read, fewer than {SPARK_ROWS_MIN}")
    if not any(scan.items for scan in scans.values()):
        return Chosen("local", "nothing to read")
    from mergelake.query.spread.halves import NotSplitError
    from mergelake.query.spread.steps import Planner

    folder = TemporaryDirectory(prefix="mergelake-select-")
    planner = Planner(tables, context, Path(folder.name))
    try:
        steps = planner.steps(prepared.parsed.text)
    except NotSplitError as why:
        folder.cleanup()
        return Chosen("local", str(why))
    if not steps.spread:
        folder.cleanup()
        return Chosen("local", steps.last.why)
    spread = [planned for planned in (*(s.planned for s in steps.before), steps.last) if planned.split is not None]
    return Chosen("spark", spread[-1].why, planner, steps, folder)


def step_lines(chosen: Chosen) -> list[str]:
    """Lines of EXPLAIN: each step of a statement that has several."""
    if chosen.steps is None or not chosen.steps.before:
        return []
    lines = []
    for step in chosen.steps.before:
        where = "spark" if step.planned.split is not None else "local"
        lines.append(f"  Subquery {step.gives.name}: {where} ({step.planned.why})")
    where = "spark" if chosen.steps.last.split is not None else "local"
    return [*lines, f"  Then: {where} ({chosen.steps.last.why})"]
