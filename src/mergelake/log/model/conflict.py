"""The precondition of each operation: one function of the state just before it.

There is no table of conflicting operations, and no search through the entries committed since: an operation is valid if
and only if its precondition holds on the exact state before its position. A writer that lost a race applies the
winner's entry and checks again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mergelake.core.base.errors import ConflictError, MergelakeError, error
from mergelake.core.model.engines import precedes_merges
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo, merged_name
from mergelake.log.model.fold import Draft
from mergelake.log.model.immutable import SETTING as IMMUTABLE, immutable_partitions, refusal
from mergelake.log.model.operations import (
    AddParts,
    AddReference,
    AddVolatile,
    AdoptVolatile,
    AdvanceGcHorizon,
    AlterMetadata,
    CancelVolatile,
    CreateTable,
    DropDetached,
    DropParts,
    DropRange,
    DropReference,
    Entry,
    FinishMutations,
    KillMutation,
    LogOp,
    MarkMutated,
    MoveLog,
    Mutation,
    Prepare,
    Publish,
    ReleaseLease,
    RenewLease,
    RowsUnchanged,
    Tag,
    UndropTable,
    Untag,
)
from mergelake.log.model.retention import refers, unreachable
from mergelake.log.model.schema_rules import outdated_default, outdated_ttl
from mergelake.log.model.state import TOKENS_MAX, State, known_ids, positions
from mergelake.log.model.volatile import covered, element_id, inside, leaves, pending, top_level, unfinished


@dataclass(frozen=True, slots=True)
class Reject:
    """Why an operation is not valid on a state."""

    reason: str
    name: str = ""
    """ClickHouse's error name; empty for a lost race."""
    kind: Literal["conflict", "invalid", "duplicate"] = "conflict"
    """`conflict`: other writers were faster. `invalid`: never valid. `duplicate`: already done."""

    def as_error(self) -> MergelakeError:
        """The exception for the caller."""
        if self.kind == "invalid" and self.name:
            return error(self.name, self.reason)
        return ConflictError(self.reason, name=self.name, hint="Look at the table again and decide anew")


def check(state: State, op: LogOp, before: State | None = None) -> Reject | None:
    """Whether `op` may be the next operation after `state`; None if it may.

    `before` is the state before its entry, if `state` has operations of the entry already. None: it is the first one.
    """
    before = state if before is None else before
    if isinstance(op, CreateTable):
        return None if state.schema_version == 0 else _invalid("The table exists already", "TABLE_ALREADY_EXISTS")
    if state.schema_version == 0:
        return _invalid("The table does not exist", "UNKNOWN_TABLE")
    if state.dropped and not isinstance(
        op, (UndropTable, AddReference, DropReference, ReleaseLease, AdvanceGcHorizon, MoveLog, Prepare)
    ):
        return _invalid("The table has been dropped", "UNKNOWN_TABLE")
    match op:
        case AlterMetadata(schema):
            if schema.version != state.schema_version + 1:
                return Reject(f"The schema has version {state.schema_version}, not {schema.version - 1}")
        case AddParts():
            return _check_add(state, op, before)
        case Publish():
            return _check_publish(state, op, before)
        case DropRange():
            return _check_drop(state, op, before)
        case DropParts():
            return _check_drop_parts(state, op)
        case UndropTable():
            if not state.dropped:
                return _invalid("The table is there", "TABLE_ALREADY_EXISTS")
            if not state.history < state.dropped_version:
                return _invalid("The table has been dropped, and its rows are collected", "UNKNOWN_TABLE")
        case AddVolatile():
            return _check_add_volatile(state, op)
        case CancelVolatile(ids):
            gone = next((id for id in ids if state.live(id) is None), None)
            return None if gone is None else _not_live(gone)
        case AdoptVolatile(id, _, previous):
            part = state.live(id)
            if part is None:
                return _not_live(id)
            if part.owner != previous:
                return Reject(f"Volatile part {id} is built by {part.owner} already")
        case RenewLease(_, version):
            if not state.keeps(version):
                return Reject(f"Version {version} is no longer kept")
        case RowsUnchanged(since):
            if state.rows_version > since:
                return Reject(f"Rows were added, changed or removed after version {since}")
        case Mutation():
            return _check_mutation(state, op, before)
        case MarkMutated():
            return _check_mark(state, op)
        case FinishMutations(ids):
            return _check_finish(state, ids)
        case KillMutation(id):
            if not any(known.id == id and not known.killed for known in unfinished(state)):
                return Reject(f"Mutation {id} is not known, or it is done")
        case DropDetached(ids):
            return _check_detached(state, ids)
        case Tag():
            return _check_tag(state, op)
        case Untag(name):
            if name not in state.tags:
                return _invalid(f"There is no tag {name}", "BAD_ARGUMENTS")
        case AddReference(_, directories):
            return _check_reachable(state, directories)
        case MoveLog(sequencer):
            if sequencer == state.sequencer.url:
                return Reject("The log lies there already", kind="duplicate")
        case AdvanceGcHorizon(base_version, history):
            if max(base_version - 1, history) > state.version:
                return _invalid("What is yet to come cannot be collected", "LOGICAL_ERROR")
            if base_version < state.fence or history < state.history:
                return Reject("Another collector has gone further")
        case Prepare():
            return _check_prepare(state, op)
    return None


def step(state: State, entry: Entry) -> State | Reject:
    """The state after `entry`, each operation checked on the state after those before it.

    Those of a transaction are checked as if it were committed; the entry must say what was decided.
    """
    draft, before = Draft(state), state
    draft.begin(entry)
    for op in entry.ops:
        reject = check(state, op, before)
        if reject is None and isinstance(op, Prepare):
            reject = _check_share(state, op, entry)
        elif isinstance(op, AddParts) and op.held:
            reject = _invalid("Only a transaction brings references to other tables", "LOGICAL_ERROR")
        if reject is not None:
            return reject
        draft.apply(op)
        state = draft.freeze()
    return state if entry.ops else draft.freeze()


def _check_prepare(state: State, op: Prepare) -> Reject | None:
    if op.decision is None:
        return _invalid("Only the coordinator of a transaction appends its entries", "LOGICAL_ERROR")
    if op.base_version < state.fence:
        return Reject(
            f"The transaction began at version {op.base_version}, and its record may have been collected since",
            "ABORTED",
        )
    return None


def _check_share(state: State, op: Prepare, entry: Entry) -> Reject | None:
    """Check the operations of a transaction, one after the other."""
    if len(entry.ops) > 1:
        return _invalid("The share of a transaction has an entry of its own", "LOGICAL_ERROR")
    draft, before = Draft(state), state
    draft.begin(entry)
    for each in op.ops:
        reject = check(state, each, before)
        if reject is not None:
            return reject
        draft.apply(each)
        state = draft.freeze()
    return None


def _invalid(reason: str, name: str) -> Reject:
    return Reject(reason, name, "invalid")


def _not_live(volatile_id: str) -> Reject:
    return Reject(f"Volatile part {volatile_id} is not Live: it was published, cancelled or dropped")


def _check_new(
    state: State,
    parts: tuple[PartManifest, ...],
    before: State,
    begun: tuple[str, ...] = (),
    held: tuple[str, ...] = (),
    near: Iterable[PartManifest] = (),
) -> Reject | None:
    """Check the parts that an operation adds, which refer to what parts in `near` do, among others.

    Directories in `held` are those of other tables, which hold them by the same transaction.

    Directories in `begun` need not be reachable yet. Like the directory of a part itself they were begun at
    `base_version` or later; if a collector may be deleting one, `base_version` is before the fence, and the parts are
    refused for that.
    """
    duplicates = known_ids(state, parts)
    if duplicates or len({part.id for part in parts}) < len(parts):
        return Reject(f"Part {min(duplicates, default=parts[0].id)} is in the table already")
    for part in parts:
        if part.schema_version not in state.schemas:
            return _invalid(f"Part {part.id} has the unknown schema version {part.schema_version}", "INCORRECT_DATA")
        if part.rows < 0 or not part.partition_id:
            return _invalid(f"Part {part.id} has no partition or a negative number of rows", "INCORRECT_DATA")
        if part.base_version < state.fence:
            return Reject(
                f"Part {part.id} was begun at version {part.base_version}, and unused objects of that time are being "
                "deleted. Please write it again; if that takes longer than gc_grace_seconds, raise that setting",
                "ABORTED",
            )
    # A clone's references to another table are held before its first entry; none is added later.
    borrowed = {name for part in parts for name in refers(part) if before.version or not name.startswith("/")}
    borrowed.difference_update(begun)
    borrowed.difference_update(held)
    return _check_reachable(state, borrowed, near) if borrowed else None


def _check_reachable(state: State, directories: Iterable[str], near: Iterable[PartManifest] = ()) -> Reject | None:
    """Unreachable directories may be deleted at any moment: no new part may refer to them.

    Parts in `near` probably lead to them.
    """
    lost = unreachable(state, directories, near)
    return Reject(f"The objects in {min(lost)} are no longer kept") if lost else None


def _check_add(state: State, op: AddParts, before: State) -> Reject | None:
    if state.insert_of(op.dedup_token, op.dedup_hash) is not None:
        description = f"with the token '{op.dedup_token}'" if op.dedup_token else "of the same rows"
        return Reject(f"An insert {description} is in the table", kind="duplicate")
    if any(name.startswith("/") for name in op.begun):
        return _invalid("An insert cannot begin objects of another table", "LOGICAL_ERROR")
    taken = {*op.detached}
    near = (part.manifest for part in state.detached if part.manifest.id in taken) if taken else ()
    return (
        _check_schema(state, op.schema_version)
        or _check_immutable(state, {part.partition_id for part in op.parts}, before)
        or _check_new(state, op.parts, before, op.begun, op.held, near)
        or _check_detached(state, op.detached)
    )


def _check_immutable(state: State, partition_ids: Collection[str] | None, before: State) -> Reject | None:
    """Rows of immutable partitions are neither changed nor added to."""
    if not state.schema.settings.get(IMMUTABLE):
        return None
    found = immutable_partitions(state, partition_ids, before.block_counter)
    return _invalid(refusal(found), "TABLE_IS_READ_ONLY") if found else None


def _check_schema(state: State, version: int) -> Reject | None:
    if version in (0, state.schema_version):
        return None
    return Reject(f"The table was altered: its schema has version {state.schema_version}, not {version}")


def _check_detached(state: State, ids: tuple[str, ...]) -> Reject | None:
    missing = set(ids) - {part.manifest.id for part in state.detached}
    return Reject(f"Part {min(missing)} is not detached (any more)") if missing else None


def _check_publish(state: State, op: Publish, before: State) -> Reject | None:
    partition_id = op.part.partition_id
    parts = state.partitions.get(partition_id, ())
    places = positions(parts, op.replaced)
    if not op.replaced:
        return _invalid(f"Part {op.part.id} replaces nothing", "LOGICAL_ERROR")
    if any(name.startswith("/") for name in op.begun):
        return _invalid("A merge cannot begin objects of another table", "LOGICAL_ERROR")
    if places is None:
        return Reject("A source of the merge is no longer active")
    if places[-1] - places[0] != len(places) - 1:
        return Reject("Another active part lies between the sources of the merge")
    sources = parts[places[0] : places[-1] + 1]
    low, high = sources[0].info, sources[-1].info
    floor = state.floor_of(partition_id)
    if low.min_block <= floor:
        return Reject(f"Blocks up to {floor} of partition {partition_id} have been dropped")
    volatile = state.volatile.get(partition_id, ())
    if op.volatile:
        live = state.live(op.volatile)
        if live is None or live.info.partition_id != partition_id:
            return _not_live(op.volatile)
        if leaves(parts, live.info) != sources:
            return Reject(f"Other parts are active within volatile part {op.volatile} now")
        if any(inside(live.info, outer.info) for outer in volatile if outer.id != live.id) and op.mutations:
            return Reject(f"Volatile part {op.volatile} lies within another, and is not mutated alone")
    elif covered(volatile, merged_name([low, high])):
        return Reject("A source of the merge lies under a Live volatile part")
    infos, manifests = [part.info for part in sources], [part.manifest for part in sources]
    return (
        _check_mutations(state, op, infos)
        or _check_holes(state, infos, op.mutations)
        or _check_new(state, (op.part,), before, op.begun, near=manifests)
        or _check_defaults(state, op.part, manifests)
        or _check_ttl(state, op)
    )


def _check_defaults(state: State, part: PartManifest, sources: list[PartManifest]) -> Reject | None:
    if outdated_default(state, part, sources):
        return Reject("The merge wrote values of columns that its sources lack, and the table was altered since")
    return None


def _check_ttl(state: State, op: Publish) -> Reject | None:
    if op.kind != "mutation" and not op.volatile and outdated_ttl(state, op.part):
        return Reject("The merge removed what had expired, and the TTL was changed since")
    return None


def _check_holes(state: State, infos: Sequence[PartInfo], applied: Sequence[int]) -> Reject | None:
    """A part that was dropped between the sources may have had mutations that these still lack."""
    holes = state.holes.get(infos[0].partition_id, ())
    if holes and len(infos) > 1:
        named = merged_name(infos, holes)
        lacking = {
            tuple(v for v in pending(state.mutations, info) if v not in applied) for info in (named, merged_name(infos))
        }
        if len(lacking) > 1:
            return Reject("The sources of the merge lack mutations that a part between them, dropped since, had")
    return None


def _check_mutations(state: State, op: Publish, infos: list[PartInfo]) -> Reject | None:
    """The new part applies the next mutations of each source, after which all lack the same ones.

    Sources may have different mutations: each gets those of `op.mutations` that it lacks.
    """
    if op.kind == "mutation" and not op.volatile and len(infos) != 1:
        return _invalid("A mutation rewrites one element", "LOGICAL_ERROR")
    if op.kind == "mutation" and not op.mutations:
        return _invalid("A mutation without a version", "LOGICAL_ERROR")
    applied = set(op.mutations)
    lacking = [pending(state.mutations, info) for info in infos]
    if list(op.mutations) != sorted({version for due in lacking for version in due} & applied):
        return Reject(f"Mutations {op.mutations} are not ones that the sources lack: {sorted(set(lacking))} are")
    left = {tuple(version for version in due if version not in applied) for due in lacking}
    live = state.live(op.volatile) if op.volatile else None
    result = merged_name(infos) if live is None else live.info
    if op.mutations:
        result = replace(result, mutation=max(result.mutation, op.mutations[-1]))
    if left != {pending(state.mutations, result)}:
        return Reject("The sources of the merge lack different mutations")
    first = {m.version for m in state.mutations if precedes_merges(state.schema.engine, m.drops_rows)}
    if op.kind != "mutation" and any(version in first for due in left for version in due):
        # The merge may have removed rows in favour of ones that the mutation deletes, or made one row of some of which
        # it changes only one: the mutation comes first.
        return Reject("The sources of the merge lack a mutation that changes its outcome")
    return None


def _check_mutation(state: State, op: Mutation, before: State) -> Reject | None:
    immutable = _check_immutable(state, op.partition_ids, before)
    if immutable is not None:
        return immutable
    if any(known.id == op.id for known in state.mutations):
        return Reject(f"Mutation {op.id} is known already", kind="duplicate")
    if not op.only:
        return _check_schema(state, op.schema_version)
    if op.schema_version and op.schema_version not in state.schemas:
        return _invalid(f"Mutation {op.id} has the unknown schema version {op.schema_version}", "INCORRECT_DATA")
    held = [part for name in op.partition_ids or () for part in state.partitions.get(name, ())]
    since = min((part.info.min_block for part in held if part.manifest.id in op.only), default=0)
    if {part.manifest.id for part in held if part.info.data_version >= since} != {*op.only}:
        return _invalid("A mutation of some parts concerns those that were added just before it", "LOGICAL_ERROR")
    return None


def _check_mark(state: State, op: MarkMutated) -> Reject | None:
    parts = state.partitions.get(op.partition_id, ())
    places = positions(parts, op.ids)
    if not op.ids or not op.mutations:
        return _invalid("Nothing says which parts are marked, or with what", "LOGICAL_ERROR")
    if places is None:
        return Reject("A part to mark is no longer active")
    volatile = state.volatile.get(op.partition_id, ())
    for at in places:
        due = pending(state.mutations, parts[at].info)
        if op.mutations != due[: len(op.mutations)]:
            return Reject(f"Mutations {op.mutations} are not the next ones for the part: {due} are")
        if covered(volatile, parts[at].info):
            return Reject(f"Part {parts[at].name} lies under a Live volatile part")
    return None


def _check_finish(state: State, ids: tuple[str, ...]) -> Reject | None:
    known = {m.id for m in state.mutations if not m.finished_ms and not m.killed}
    left = {m.id for m in unfinished(state)}
    if not known.issuperset(ids) or not ids:
        return Reject("A mutation is not known, or its end is", kind="duplicate")
    if not left.isdisjoint(ids):
        return Reject("A part lacks a mutation that is said to be finished")
    return None


def _check_add_volatile(state: State, op: AddVolatile) -> Reject | None:
    held = state.volatile.get(op.partition_id, ())
    elements = top_level(state.partitions.get(op.partition_id, ()), held)
    places = {element_id(element): at for at, element in enumerate(elements)}
    if len(op.sources) < 2:
        return _invalid("A volatile part has at least two sources", "LOGICAL_ERROR")
    if op.recipe.schema_version not in state.schemas:
        return _invalid(f"The recipe has the unknown schema version {op.recipe.schema_version}", "INCORRECT_DATA")
    if state.live(op.id) is not None:
        return Reject(f"Volatile part {op.id} is Live already", kind="duplicate")
    if (outdated := _check_schema(state, op.recipe.schema_version)) is not None:
        return outdated
    gone = next((source for source in op.sources if source not in places), None)
    if gone is not None:
        return Reject(f"{gone} is no longer at the top level")
    first = places[op.sources[0]]
    if [places[source] for source in op.sources] != list(range(first, first + len(op.sources))):
        return Reject("Another part lies between the sources of the merge")
    infos = [elements[places[source]].info for source in op.sources]
    if infos[0].min_block <= state.floor_of(op.partition_id):
        return Reject(f"Blocks of partition {op.partition_id} have been dropped")
    if len({pending(state.mutations, info) for info in infos}) > 1:
        return Reject("The sources of the merge lack different mutations")
    return None


def _check_drop(state: State, op: DropRange, before: State) -> Reject | None:
    if op.kind == "replace":
        immutable = _check_immutable(state, None if op.partition_id is None else (op.partition_id,), before)
        if immutable is not None:
            return immutable
    bound = op.max_block
    touched = [op.partition_id] if op.partition_id is not None else list(state.partitions)
    known = (*(op.tokens or ()), *(op.hashes or ()))
    if max((version for _, version, _ in known), default=0) > (op.remember or 0) or len(op.tokens or ()) > TOKENS_MAX:
        return _invalid("More inserts are brought back than the version that is remembered knew", "LOGICAL_ERROR")
    if op.remember is not None and (op.remember > state.version or op.partition_id is not None or bound is not None):
        return _invalid("Only a drop of all rows goes back to a version, and only to one that was", "LOGICAL_ERROR")
    if bound is None:
        return None
    if bound > state.block_counter:
        return _invalid(f"Block {bound} has not been given yet", "BAD_ARGUMENTS")
    for partition_id in touched:
        for part in state.partitions.get(partition_id, ()):
            if part.info.min_block <= bound < part.info.max_block:
                return Reject(f"Part {part.name} reaches across block {bound}")
            if part.info.max_block <= bound < part.info.mutation:  # what is published over it could not cover its name
                return Reject(f"Part {part.name} was mutated after block {bound} was given")
    return None


def _check_drop_parts(state: State, op: DropParts) -> Reject | None:
    parts = state.partitions.get(op.partition_id, ())
    places = positions(parts, op.ids)
    if not op.ids or op.kind not in ("drop", "expire", "detach"):
        return _invalid("Nothing says which parts go, or how", "LOGICAL_ERROR")
    if places is None:
        return Reject("A part is no longer active", "NO_SUCH_DATA_PART")
    return None


def _check_tag(state: State, op: Tag) -> Reject | None:
    name, version = op.name, op.version
    if name in state.tags:
        held = state.tagged_partitions.get(name)
        if op.partition_ids is not None and version == state.tags[name]:
            if held is None or {*op.partition_ids} <= {*held}:
                return None
            return _invalid(f"Tag {name} does not keep all of these partitions", "BAD_ARGUMENTS")
        return _invalid(f"Tag {name} exists already, at version {state.tags[name]}", "BAD_ARGUMENTS")
    if not 1 <= version <= state.version:
        return _invalid(f"There is no version {version}", "BAD_ARGUMENTS")
    if version < state.history and version not in state.whole_tags.values():
        return _invalid(f"Version {version} is no longer kept", "BAD_ARGUMENTS")
    return None
