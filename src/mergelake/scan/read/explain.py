"""A plan as ClickHouse's `EXPLAIN indexes = 1` prints it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mergelake.scan.read.plan import IndexStep, ScanPlan
from mergelake.scan.read.steps import plan_steps
from mergelake.table.handle.volatile_choice import VolatileRead

_VOLATILE_MAX = 20


def applied_line(versions: Iterable[int]) -> str:
    """A line that names the mutations which are applied on reading."""
    return f"Mutations applied on reading: {', '.join(map(str, versions))}"


def volatile_lines(reads: Sequence[VolatileRead]) -> list[str]:
    """Lines that say which volatile parts are read, and why others are not; the first `_VOLATILE_MAX` of them."""
    left = len(reads) - _VOLATILE_MAX
    return [*map(str, reads[:_VOLATILE_MAX]), *([f"and {left} more volatile parts"] if left > 0 else [])]


def explain_text(plan: ScanPlan, table: str = "table") -> str:
    """The plan of one table's scan; `table` is its name with its database.

    Source: ClickHouse 26.9, `EXPLAIN indexes = 1`, the read from one table.
    """
    columns = ", ".join(plan.columns)
    lines = [f"Output: {columns}", f"ReadFromMergeTree ({table})", "   Read type: Default"]
    if plan.request.final:
        lines.append("   FINAL: 1")
    lines += [f"   {line}" for line in volatile_lines(plan.volatile)]
    if plan.items or plan.steps:  # ClickHouse shows no numbers where the condition is false for every row
        # ClickHouse prints the numbers of the last step; the combination of skip indexes does not count parts again.
        parts = plan.steps[-1].parts if plan.steps else len(plan.items)
        lines.append(f"   Parts: {parts} | Granules: {plan.marks}")
    lines.append(f"   Output: {columns}")
    conditions = [str(condition) for step in plan_steps(plan) for condition in step.conditions]
    if conditions:
        kind = "Filter" if plan.request.final else "Prewhere filter"
        lines += [f"   {kind}", f"   {kind} column:  {' AND '.join(conditions)}"]
    if plan.steps:
        lines.append("   Indexes:")
        for step in plan.steps:
            lines += _index(step)
        lines.append(f"     Ranges: {plan.ranges}")
    return "\n".join(lines) + "\n"


def _index(step: IndexStep) -> list[str]:
    lines = [f"     {step.type}"]
    if step.name:
        lines += [f"       Name: {step.name}", f"       Description: {step.description}"]
    if step.keys:
        lines += ["       Keys:", *(f"         {key}" for key in step.keys)]
    if step.condition:
        lines.append(f"       Condition: {step.condition}")
    lines += [
        f"       Parts: {step.parts}/{step.parts_total}",
        f"       Granules: {step.granules}/{step.granules_total}",
    ]
    if step.algorithm:
        lines.append(f"       Search Algorithm: {step.algorithm}")
    return lines
