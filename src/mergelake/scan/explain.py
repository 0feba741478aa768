"""A plan as ClickHouse's `EXPLAIN indexes = 1` prints it."""

from __future__ import annotations

from mergelake.scan.plan import IndexStep, ScanPlan
from mergelake.scan.steps import plan_steps


def explain_text(plan: ScanPlan, table: str = "table") -> str:
    """The plan of one table's scan; `table` is its name with its database.

    Source: ClickHouse 26.9, `EXPLAIN indexes = 1`, the read from one table.
    """
    columns = ", ".join(plan.columns)
    lines = [f"Output: {columns}", f"ReadFromMergeTree ({table})", "   Read type: Default"]
    if plan.request.final:
        lines.append("   FINAL: 1")
    if plan.items or plan.steps:  # ClickHouse shows no numbers where the condition is false for every row
        lines.append(f"   Parts: {len(plan.items)} | Granules: {plan.marks}")
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
    if step.keys:
        lines += ["       Keys:", *(f"         {key}" for key in step.keys)]
    lines += [
        f"       Condition: {step.condition}",
        f"       Parts: {step.parts}/{step.parts_total}",
        f"       Granules: {step.granules}/{step.granules_total}",
    ]
    if step.algorithm:
        lines.append(f"       Search Algorithm: {step.algorithm}")
    return lines
