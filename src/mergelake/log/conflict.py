"""The precondition of each operation: one function of the state just before it.

There is no table of which operation conflicts with which, and no look at "what others committed since":
an operation is valid iff it makes sense on the exact state at the position that it takes. A writer that
lost a race applies the winner and asks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mergelake.core.errors import ConflictError, MergelakeError, error
from mergelake.core.manifest import PartManifest
from mergelake.log.fold import Draft
from mergelake.log.operations import (
    AddParts,
    AlterMetadata,
    CreateTable,
    DropRange,
    Entry,
    LogOp,
    Publish,
)
from mergelake.log.state import State, known_ids, positions


@dataclass(frozen=True, slots=True)
class Reject:
    """Why an operation is not valid on a state."""

    reason: str
    name: str = ""
    """ClickHouse's error name; empty where only the race is to blame."""
    kind: Literal["conflict", "invalid", "duplicate"] = "conflict"
    """`conflict`: others were faster. `invalid`: would never work. `duplicate`: it is done already."""

    def as_error(self) -> MergelakeError:
        """The exception for a caller that cannot go on."""
        if self.kind == "invalid" and self.name:
            return error(self.name, self.reason)
        return ConflictError(self.reason, name=self.name, hint="Look at the table again and decide anew")


def check(state: State, op: LogOp) -> Reject | None:
    """Whether `op` may be the next operation after `state`; None if it may."""
    if isinstance(op, CreateTable):
        return None if state.schema_version == 0 else _invalid("The table exists already", "TABLE_ALREADY_EXISTS")
    if state.schema_version == 0:
        return _invalid("The table does not exist", "UNKNOWN_TABLE")
    if state.dropped:
        return _invalid("The table has been dropped", "UNKNOWN_TABLE")
    match op:
        case AlterMetadata(schema):
            if schema.version != state.schema_version + 1:
                return Reject(f"The schema has version {state.schema_version}, not {schema.version - 1}")
        case AddParts():
            return _check_add(state, op)
        case Publish():
            return _check_publish(state, op)
        case DropRange():
            return _check_drop(state, op)
    return None


def step(state: State, entry: Entry) -> State | Reject:
    """The state after `entry`, each operation checked against the state that the ones before it leave."""
    draft = Draft(state)
    draft.begin(entry)
    for op in entry.ops:
        reject = check(state, op)
        if reject is not None:
            return reject
        draft.apply(op)
        state = draft.freeze()
    return state if entry.ops else draft.freeze()


def _invalid(reason: str, name: str) -> Reject:
    return Reject(reason, name, "invalid")


def _unknown_schema(part: PartManifest) -> Reject:
    return _invalid(f"Part {part.id} has the unknown schema version {part.schema_version}", "INCORRECT_DATA")


def _check_add(state: State, op: AddParts) -> Reject | None:
    if op.dedup_token and op.dedup_token in state.tokens:
        return Reject(f"An insert with the token '{op.dedup_token}' is in the table", kind="duplicate")
    if op.dedup_hash and op.dedup_hash in state.hashes and not op.dedup_token:
        return Reject("An insert of the same rows is in the table", kind="duplicate")
    twice = known_ids(state, op.parts)
    if twice or len({part.id for part in op.parts}) < len(op.parts):
        return Reject(f"Part {min(twice, default=op.parts[0].id)} is in the table already")
    for part in op.parts:
        if part.schema_version not in state.schemas:
            return _unknown_schema(part)
        if part.rows < 0 or not part.partition_id:
            return _invalid(f"Part {part.id} has no partition or a negative number of rows", "INCORRECT_DATA")
    return None


def _check_publish(state: State, op: Publish) -> Reject | None:
    parts = state.partitions.get(op.part.partition_id, ())
    found = positions(parts, op.replaced)
    if not op.replaced:
        return _invalid(f"Part {op.part.id} replaces nothing", "LOGICAL_ERROR")
    if found is None:
        return Reject("A source of the merge is no longer active")
    if found[-1] - found[0] != len(found) - 1:
        return Reject("Another active part lies between the sources of the merge")
    if op.part.schema_version not in state.schemas:
        return _unknown_schema(op.part)
    if known_ids(state, (op.part,)):
        return Reject(f"Part {op.part.id} is in the table already")
    floor = state.floor_of(op.part.partition_id)
    if parts[found[0]].info.min_block <= floor:
        return Reject(f"Blocks up to {floor} of partition {op.part.partition_id} have been dropped")
    return None


def _check_drop(state: State, op: DropRange) -> Reject | None:
    bound = op.max_block
    if bound is None:
        return None
    if bound > state.block_counter:
        return _invalid(f"Block {bound} has not been given yet", "BAD_ARGUMENTS")
    touched = [op.partition_id] if op.partition_id is not None else list(state.partitions)
    for partition_id in touched:
        for part in state.partitions.get(partition_id, ()):
            if part.info.min_block <= bound < part.info.max_block:
                return Reject(f"Part {part.name} reaches across block {bound}")
    return None
