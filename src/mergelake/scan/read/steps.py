"""The conditions of a plan, ready to run: bound in this process, in the order of `scan.read.prewhere`."""

from __future__ import annotations

from mergelake.expr.bound import columns_of
from mergelake.scan.prune.keys import scan_keys
from mergelake.scan.prune.predicate import bound_conjuncts
from mergelake.scan.read.plan import ScanPlan
from mergelake.scan.read.prewhere import FilterStep, filter_steps


def plan_steps(plan: ScanPlan) -> tuple[FilterStep, ...]:
    """The filter steps of a plan."""
    first, rest = bound_conjuncts(plan.request, plan.schema)
    names = dict.fromkeys(name for node in scan_keys(plan.schema).primary.nodes for name in columns_of(node))
    return filter_steps(first, rest, plan.column_bytes, tuple(names))
