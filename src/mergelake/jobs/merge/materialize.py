"""MATERIALIZE and CLEAR PROJECTION: parts that lack a projection, or have it, are written anew, a merge for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from mergelake.core.base.errors import error
from mergelake.engines.projections.projections import table_projections
from mergelake.jobs.merge.optimize import RunMerges, run_tasks
from mergelake.jobs.merge.plan import plan_merge
from mergelake.jobs.merge.select import Candidate
from mergelake.log.model.operations import CancelVolatile, TableOp
from mergelake.log.model.state import State
from mergelake.log.model.volatile import leaves
from mergelake.table.definition.define_projections import MODE, projection_mode
from mergelake.table.definition.projections import no_projection
from mergelake.table.handle.handle import TableHandle


def write_projection(
    handle: TableHandle, run: RunMerges, name: str, *, partition_id: str | None = None, clear: bool = False
) -> int:
    """Write the parts that lack a projection anew, with it; `clear`: those that have it, without it; their number.

    Each is a merge of one part. Those of one partition, with `partition_id`. Raises NO_SUCH_PROJECTION_IN_TABLE,
    SUPPORT_IS_DISABLED where merges drop projections, and the first error of a merge.
    """
    snapshot = handle.snapshot()
    schema = snapshot.schema
    found = next((each for each in table_projections(schema) if each.name == name), None)
    if found is None:
        raise no_projection(name, schema)
    if not clear and schema.engine != "MergeTree" and projection_mode(schema) == "drop":
        message = f"Merges of {schema.engine} drop projections: {MODE} = drop"
        raise error("SUPPORT_IS_DISABLED", message, f"Set {MODE} to 'rebuild'")
    if clear:
        schema = replace(schema, projections=tuple(each for each in schema.projections if each.name != name))

    def wanted(part: Candidate) -> bool:
        facts = part.manifest.projections.get(name)
        has = facts is not None and (clear or facts.digest == found.digest)
        return has is clear and bool(part.manifest.rows) and partition_id in (None, part.info.partition_id)

    if _cancel_volatile(handle, wanted, name):
        snapshot = handle.snapshot()
    plan = partial(plan_merge, handle.directory, schema, kind="optimize", base_version=snapshot.version)
    chosen = [part for part in snapshot.parts if wanted(part)]
    tasks = [plan(parts=[part], mutations=snapshot.mutations) for part in chosen]
    return run_tasks(handle, run, tasks, one_job=False)


def _cancel_volatile(handle: TableHandle, wanted: Callable[[Candidate], bool], name: str) -> bool:
    """Cancel Live volatile parts that claim parts which are to be written: they may have been begun without it.

    Returns whether there were any.
    """

    def build(state: State) -> Sequence[TableOp]:
        claimed = [
            volatile.id
            for partition_id, held in state.volatile.items()
            for volatile in held
            if any(wanted(part) for part in leaves(state.partitions.get(partition_id, ()), volatile.info))
        ]
        return [CancelVolatile(tuple(claimed), f"projection {name} is written")] if claimed else ()

    return handle.log.commit(build).entry is not None
