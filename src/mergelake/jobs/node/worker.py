"""One node's work on one table, one action at a time.

`view` returns the input of `plan.tick`; each action is executed by `start` (which marks it) and `finish` (which does
the work: in a thread of the runner, or at any later moment of a simulation). All I/O goes through the objects passed
in, and the table stays consistent wherever an action stops:

- Each written part has an id of its own, so no two attempts ever write the same object.
- The objects of an attempt are deleted only if its entry is known not to be in the log. While the outcome is unknown
  they stay, and the same Publish is tried again.
- A node that restarts loads the complete parts on its disk (`LocalDisk.load`); `plan` drops those no longer needed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from mergelake.core.base.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    MergelakeError,
    NotFoundError,
    UnavailableError,
    error,
)
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.jobs.merge.commit import commit_merge, commit_merges
from mergelake.jobs.merge.plan import MergeTask, plan_merge
from mergelake.jobs.merge.together import judges_rows_alone
from mergelake.jobs.merge.ttl_drop import drop_expired
from mergelake.jobs.merge.volatile import LocalPart, build_task
from mergelake.jobs.mutate.commit import note_finished, run_tasks
from mergelake.jobs.mutate.plan import mutation_task
from mergelake.jobs.node.actions import (
    Abandon,
    Action,
    Adopt,
    Build,
    Discard,
    DropExpired,
    EndMutations,
    LongWork,
    Merge,
    Mutate,
    Propose,
    PublishVolatile,
    Renew,
    TableView,
    Upload,
)
from mergelake.jobs.node.disk import LocalDisk, copy_part
from mergelake.jobs.node.failures import FailureTracker
from mergelake.jobs.node.listening import Listening, Traffic
from mergelake.jobs.node.plan import lease_left_ms, lease_ms
from mergelake.jobs.node.progress import Running, running_of, work_key
from mergelake.jobs.node.report import BackOff, VolatileWork, Work, volatile_work
from mergelake.jobs.node.status import NodeStatus, event_of
from mergelake.jobs.node.throttle import Throttle
from mergelake.log.model.immutable import immutable_partitions
from mergelake.log.model.operations import (
    AddVolatile,
    AdoptVolatile,
    CancelVolatile,
    LogOp,
    MergeRecipe,
    Publish,
    ReleaseLease,
    RenewLease,
)
from mergelake.log.model.state import Lease, State, VolatilePart, positions
from mergelake.log.model.volatile import dependents, leaves, pending
from mergelake.store.metering.meter import current_tally, metered
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.mutations import finished_by
from mergelake.table.write.insert import COMMIT_REFUSED, discard_refused

_logger = logging.getLogger("mergelake.node")

MutationRunner = Callable[[TableHandle, Sequence[MergeTask]], Sequence[PartManifest | None]]
"""Executes mutations of parts somewhere; None for a part in which no row changes. Commits nothing."""
MergeRunner = Callable[[TableHandle, MergeTask], PartManifest]
"""Executes a merge somewhere and returns the manifest of the part that it wrote; commits nothing."""
JoinedRunner = Callable[[TableHandle, Sequence[MergeTask]], Sequence[PartManifest | None]]
"""Executes merges of small parts together; None for those that have to be executed alone. Commits nothing."""
BuildRunner = Callable[[TableHandle, MergeTask, LocalDisk, Callable[[], bool]], PartManifest]
"""The same on the node's disk; ends with an error soon after the last argument becomes true."""


class TableWorker:
    """The state and the work of a node in one table. Threads may share it."""

    def __init__(
        self,
        node: str,
        handle: TableHandle,
        run_merge: MergeRunner,
        *,
        status: NodeStatus | None = None,
        disk: LocalDisk | None = None,
        build: BuildRunner | None = None,
        abandon: Callable[[], bool] = lambda: False,
        listening: Listening | None = None,
        run_mutations: MutationRunner | None = None,
        merges_on_disk: bool = False,
        check_merges: Callable[[TableSchema], None] = lambda schema: None,
        upload_rate: Throttle | None = None,
        run_joined: JoinedRunner | None = None,
    ) -> None:
        """`disk` and `build` are for volatile parts, and `merges_on_disk` says that the node begins some: its lease
        tells the others. `abandon` tells long work whether to stop; `listening` takes commits of others. `check_merges`
        raises an error if parts of such a table cannot be merged in this process. `upload_rate` delays uploads.
        """
        self.handle = handle
        self.name = handle.directory
        """Name of the table, for people."""
        self.status = status or NodeStatus()
        self._node = node
        self._run_merge = run_merge
        self._run_mutations = run_mutations
        self._build_bytes = build
        self._abandon = abandon
        self._disk = disk
        self._merges_on_disk = merges_on_disk and disk is not None
        self._check_merges = check_merges
        self._checked: tuple[int, bool] = (-1, True)
        self._upload_rate = upload_rate
        self._run_joined = run_joined
        self._lock = threading.Lock()
        self._local: dict[str, LocalPart] = disk.load() if disk else {}
        self._merging: dict[frozenset[str], tuple[int, str]] = {}
        """Running merges: ids of the sources -> the version at which it began, and the partition."""
        self._mutating: set[frozenset[str]] = set()
        """Those of them that are mutations."""
        self._expiring: set[frozenset[str]] = set()
        """Those of them that a TTL asked for."""
        self._building: dict[str, int] = {}
        self._uploading: dict[str, int] = {}
        self._uploaded: dict[str, PartManifest] = {}
        self._running: dict[str, Running] = {}
        self._joins = 0, False
        """A version of the schema, and whether merges of small parts are executed together."""
        self._failures = FailureTracker(handle.clock)
        self._signs: dict[str, tuple[Lease, float]] = {}
        self._listening = listening
        self._announced_s = float("-inf")
        self._traffic = Traffic(listening.service.add(handle.log), handle.clock) if listening else None
        if listening is not None and disk is not None:
            listening.volatile.add(handle.directory, self.served, disk.store)
        self.unreadable = False
        """Whether the last refresh of the table failed: then the next one waits for the end of the pause."""

    def view(self) -> TableView:
        """The input of a tick about the table, as known here, without a request."""
        now_s = self.handle.clock.monotonic_s()
        state = self.handle.log.state
        lease_s = lease_ms(state) / 1000
        self.status.last_error = self.handle.log.checkpoint_failure or self.status.last_error
        merges = state.dropped or self._can_merge(state)
        with self._lock:
            # A lease has expired if it has not changed for its duration by our clock: two clocks are never compared.
            for node, lease in state.leases.items():
                if node not in self._signs or self._signs[node][0] != lease:
                    self._signs[node] = (lease, now_s)
            others = [node for node in state.leases if node != self._node]
            self._failures.forget({part.id for live in state.volatile.values() for part in live})
            return TableView(
                self.handle.directory,
                state,
                dict(self._local),
                {ids: partition_id for ids, (_, partition_id) in self._merging.items()},
                frozenset(self._building),
                frozenset(self._uploading),
                frozenset(self._uploaded),
                frozenset(self._failures.failed),
                self._failures.avoided(),
                frozenset(node for node in others if now_s - self._signs[node][1] >= lease_s),
                self._failures.waits,
                self._listens() if self._may_announce(state, now_s) else None,
                frozenset(self._mutating),
                merges,
                not state.dropped and self._can_join(state),
                frozenset(self._expiring),
            )

    def _can_join(self, state: State) -> bool:
        """Whether merges of small parts of the table are executed together."""
        version, joins = self._joins
        if version != state.schema_version:
            joins = self._run_joined is not None and judges_rows_alone(state.schema)
            self._joins = state.schema_version, joins
        return joins

    def _can_merge(self, state: State) -> bool:
        """Whether parts of the table can be merged in this process; if not, it is said once for each schema."""
        version, merges = self._checked
        if version != state.schema_version:
            try:
                self._check_merges(state.schema)
            except MergelakeError as refused:
                merges = False
                self.status.last_error = str(refused)
                _logger.warning("parts of %s are not merged here: %s", self.handle.directory, refused)
            else:
                merges = True
            self._checked = state.schema_version, merges
        return merges

    def _may_announce(self, state: State, now_s: float) -> bool:
        """Whether the lease has our address already, or was not set lately, so that two nodes of one name do not
        alternate.
        """
        lease = state.leases.get(self._node)
        announced = lease is not None and (lease.address, lease.token) == self._listens()
        return announced or now_s - self._announced_s >= lease_ms(state) / 3000

    def _listens(self) -> tuple[str, str] | None:
        """Address and token to announce, if other processes commit to the table or may read volatile parts here."""
        if self._listening is None or self._traffic is None or not (self._traffic.busy or self._serves()):
            return None
        return self._listening.address, self._listening.token

    def served(self) -> dict[str, LocalPart]:
        """The parts on the disk that other processes may read."""
        state = self.handle.log.state
        if state.dropped or not TableSettings(state.schema.settings)["volatile_peer_reads"]:
            return {}
        return dict(self._local)

    def _serves(self) -> bool:
        """Whether some Live volatile part can be read here."""
        served = self.served()
        live = self.handle.log.state.volatile.values() if served else ()
        return any(part.id in served for held in live for part in held)

    @property
    def waits(self) -> bool:
        """Whether the table is in a pause after failed work."""
        return self._failures.waits

    @property
    def busy(self) -> bool:
        """Whether long work runs."""
        with self._lock:
            return bool(self._merging or self._building or self._uploading)

    @property
    def disk_bytes(self) -> int:
        """Bytes of the table's parts on the node's disk."""
        return sum(part.manifest.bytes_on_disk for part in self._held())

    def start(self, action: Action) -> None:
        """Mark an action as begun: the next view shows it. `finish` must follow."""
        version = self.handle.log.state.version
        with self._lock:
            match action:
                case Merge() | Mutate():
                    self._merging[action.part_ids] = version, action.partition_id
                    if isinstance(action, Mutate):
                        self._mutating.add(action.part_ids)
                    elif action.kind != "regular":
                        self._expiring.add(action.part_ids)
                case Build(_, volatile_id):
                    self._building[volatile_id] = version
                case Upload(_, volatile_id):
                    self._uploading[volatile_id] = version
                case _:
                    return
            self._running[work_key(action)] = running_of(action, self.handle.log.state, self.handle.clock.now_ms())
        self.status.add(merges_started=int(not isinstance(action, Upload | Mutate)))

    def finish(self, action: Action) -> None:
        """Execute a started action. A failure is counted, logged and followed by a pause, never raised."""
        try:
            with metered(self.handle.store):
                self._do(action)
            if not isinstance(action, (Discard, Renew)):
                self._failures.over()
        except ConflictError:
            self.status.add(merges_lost=1)
        except Exception as failure:  # noqa: BLE001  one bad merge must not end the node
            self._failed(action, failure)
        finally:
            with self._lock:
                match action:
                    case Merge() | Mutate():
                        self._merging.pop(action.part_ids, None)
                        self._mutating.discard(action.part_ids)
                        self._expiring.discard(action.part_ids)
                    case Build(_, volatile_id):
                        self._building.pop(volatile_id, None)
                    case Upload(_, volatile_id):
                        self._uploading.pop(volatile_id, None)
                if isinstance(action, Merge | Mutate | Build | Upload):
                    self._running.pop(work_key(action), None)

    def finish_together(self, actions: Sequence[Merge]) -> None:
        """`finish` each of some started merges: together as far as possible, in few entries of the log."""
        alone: Sequence[Merge] = actions
        if self._run_joined is not None and len(actions) > 1 and not self._abandon():
            try:
                with metered(self.handle.store):
                    alone = self._merge_together(actions, self._run_joined)
            except UnavailableError as failure:
                self._failed(actions[0], failure)
                alone = ()
            except Exception as failure:  # noqa: BLE001  one of them fails alone, too, and the others do not
                _logger.info("merges of %s are executed one by one: %s", self.name, failure)
        left = {work_key(action) for action in alone}
        with self._lock:
            for action in actions:
                if work_key(action) not in left:
                    self._merging.pop(action.part_ids, None)
                    self._running.pop(work_key(action), None)
        for action in alone:
            self.finish(action)

    def _merge_together(self, actions: Sequence[Merge], run: JoinedRunner) -> Sequence[Merge]:
        """Returns the merges that have to be executed alone."""
        handle = self.handle
        tasks = [self._planned(action) for action in actions]
        running = [self._begin(action, task) for action, task in zip(actions, tasks, strict=True)]
        made = run(handle, tasks)
        done = [at for at, manifest in enumerate(made) if manifest is not None]
        results = [(task, part) for task, part in zip(tasks, made, strict=True) if part is not None]
        for at, (task, part), failure in zip(done, results, commit_merges(handle, results), strict=True):
            if failure is None:
                self._failures.over()
                self._merged(task, part, running[at], together=len(actions))
            elif isinstance(failure, ConflictError):
                self.status.add(merges_lost=1)
            else:
                self._failed(actions[at], failure)
        return [action for action, manifest in zip(actions, made, strict=True) if manifest is None]

    def watch(self, task: MergeTask) -> Callable[[int], None]:
        """A function that is told how many rows of a running merge are done; any thread may call it."""
        with self._lock:
            found = next((running for running in self._running.values() if running.result == task.result), None)
        return found.merged if found is not None else lambda rows: None

    def work(self) -> tuple[list[Work], list[VolatileWork], list[BackOff]]:
        """What is under way, the node's volatile parts, and what is left alone after failures, as of now."""
        now_ms, state = self.handle.clock.now_ms(), self.handle.log.state
        with self._lock:
            running = [Work.of(self.name, each) for each in self._running.values()]
            states = {
                **dict.fromkeys(self._local, "ready"),
                **dict.fromkeys(self._building, "building"),
                **dict.fromkeys([*self._uploading, *self._uploaded], "uploading"),
            }
            left = self._failures.back_offs()
        volatile = [
            msgspec.structs.replace(part, state=states.get(part.id, "live"))
            for part in volatile_work(self.name, state, self._node)
        ]
        back_offs = [
            BackOff(
                table=self.name,
                partition_id=info.partition_id if info else "",
                blocks=f"{info.min_block}-{info.max_block}" if info else "",
                reason=reason,
                until_ms=now_ms + int(left_s * 1000),
            )
            for left_s, info, reason in left
        ]
        return running, volatile, back_offs

    def perform(self, action: Action) -> None:
        """Start and finish at once."""
        self.start(action)
        self.finish(action)

    def owns(self) -> bool:
        """Whether volatile parts, as known here, wait for this node."""
        return bool(self._own(self.handle.log.state))

    def leave(self) -> None:
        """Publish uploaded parts, cancel the node's other volatile parts, and release its lease."""

        def build(state: State) -> Sequence[LogOp]:
            own = self._own(state)
            ops: list[LogOp] = [CancelVolatile(own, "its owner leaves")] if own else []
            return [*ops, ReleaseLease(self._node)] if self._node in state.leases else ops

        for volatile_id in [*self._uploaded]:
            self.finish(PublishVolatile(self.handle.directory, volatile_id))
        if not self.handle.log.state.dropped:
            self.handle.log.commit(build)

    def clear(self) -> None:
        """Delete all files of the table on the disk, and take no commits to it."""
        self._forget(self._held())
        if self._listening is not None:
            self._listening.service.remove(self.handle.log)
            self._listening.volatile.remove(self.handle.directory)

    def _own(self, state: State) -> tuple[str, ...]:
        """The node's volatile parts on which no other node has built."""
        return tuple(
            part.id
            for live in state.volatile.values()
            for part in live
            if part.owner == self._node and all(outer.owner == self._node for outer in dependents(live, part))
        )

    def _do(self, action: Action) -> None:
        match action:
            case Merge():
                if action.past_target:
                    self._past_target()
                self._merge(action)
            case Mutate():
                self._mutate(action)
            case Build():
                self._build(action)
            case Upload():
                if action.past_target:
                    self._past_target()
                self._upload(action)
            case PublishVolatile(_, volatile_id):
                self._publish(volatile_id)
            case Propose():
                self._propose(action)
            case Adopt(_, volatile_id, previous):
                self._commit_alive([AdoptVolatile(volatile_id, self._node, previous)])
                self.status.add(volatile_adopted=1)
            case Abandon():
                self._cancel(action)
            case Renew():
                self._commit_alive([])
            case EndMutations():
                note_finished(self.handle)
            case DropExpired():
                self._drop_expired(action)
            case Discard():
                self._discard(action)

    # -- merges straight to the store ----------------------------------------------------------

    def _merge(self, action: Merge) -> None:
        handle, task = self.handle, self._planned(action)
        running = self._begin(action, task)
        merged = commit_merge(handle, task, self._run_merge(handle, task))
        with self._lock:
            self._failures.merged([source.info for source in task.sources])
        self._merged(task, merged.manifest, running)

    def _drop_expired(self, action: DropExpired) -> None:
        dropped = drop_expired(self.handle, action.partitions, action.busy)
        facts = {"table": self.name, "parts": len(dropped.parts), "rows": dropped.rows}
        _logger.info("dropped %d expired parts", len(dropped.parts), extra=event_of("expire", **facts))

    def _planned(self, action: Merge) -> MergeTask:
        handle, state = self.handle, self.handle.log.state
        version = self._merging[action.part_ids][0]
        kept = immutable_partitions(state, [action.partition_id])  # no row of these expires
        return plan_merge(
            handle.directory,
            state.schema,
            action.sources,
            action.kind,
            base_version=version,
            mutations=state.mutations,
            time_ms=0 if kept else handle.clock.now_ms(),
        )

    def _begin(self, action: LongWork, task: MergeTask) -> Running:
        running = self._running[work_key(action)]
        running.begin(task)
        return running

    def _merged(self, task: MergeTask, made: PartManifest, running: Running, together: int = 1) -> None:
        """`together`: merges of which the requests that were counted are."""
        self.status.add(merges_done=1, rows_merged=task.rows, bytes_merged=task.bytes_on_disk)
        shared = {"together": together} if together > 1 else {}
        self._note("merge", "merged %d parts into %s", running, made, len(task.sources), running.part, **shared)

    def _note(
        self, event: str, text: str, running: Running, made: PartManifest, *arguments: object, **more: object
    ) -> None:
        """Log an action that is done."""
        seconds = (self.handle.clock.now_ms() - running.started_ms) / 1000
        facts = {"table": self.name, "partition": running.partition_id, "kind": running.kind, "parts": running.parts}
        facts |= {"rows": made.rows, "bytes": made.bytes_on_disk, "seconds": seconds, **_asked(), **more}
        _logger.info(text, *arguments, extra=event_of(event, **facts))

    # -- mutations -----------------------------------------------------------------------------

    def _mutate(self, action: Mutate) -> None:
        """Rewrite the parts; those for which it fails are avoided for a while, and the others go on."""
        run = self._run_mutations
        if run is None:
            return
        handle, state = self.handle, self.handle.log.state
        base_version = self._merging[action.part_ids][0]
        tasks = [
            replace(mutation_task(handle.directory, state.schema, part, state), base_version=base_version)
            for part in action.sources
            if pending(state.mutations, part.info)
        ]
        outcome = run_tasks(handle, lambda some: run(handle, some), tasks)
        self.status.add(parts_mutated=outcome.done)
        if outcome.failed and not self._abandon():
            with self._lock:
                self._failures.avoid([task.sources[0].info for task, _ in outcome.failed], str(outcome.failed[0][1]))
            raise outcome.failed[0][1]

    # -- volatile parts ------------------------------------------------------------------------

    def _propose(self, action: Propose) -> None:
        handle, state = self.handle, self.handle.log.state
        recipe = MergeRecipe(state.schema_version, handle.clock.now_ms())
        volatile_id = handle.ids.new_id()
        self._commit_alive([AddVolatile(volatile_id, action.partition_id, action.source_ids, recipe, self._node)])
        self.status.add(volatile_proposed=1)
        if action.past_target:
            self._past_target()

    def _past_target(self) -> None:
        state, directory = self.handle.log.state, self.handle.directory
        if not self.status.merges_past_target:
            _logger.warning(
                "merges of %s write more than write_amplification_target allows (%.2f bytes for each inserted so far): "
                "a partition of %d parts would slow inserts down",
                directory,
                state.written.amplification,
                state.partitions.most,
                extra=event_of("past_target", table=self.name),
            )
        self.status.add(merges_past_target=1)

    def _build(self, action: Build) -> None:
        state = self.handle.log.state
        part = state.live(action.id)
        if part is None:
            return
        task = build_task(self.handle.directory, state, part, {local.id: local for local in self._held()})
        running = self._begin(action, task)
        on_disk: PartManifest | None = None
        if task.local and self._disk is not None and self._build_bytes is not None:
            if not action.past_disk:
                on_disk = self._build_on_disk(part, task, self._disk, self._build_bytes)
            if on_disk is None:
                self.status.no_room()
        if on_disk is None:
            task = replace(build_task(self.handle.directory, state, part, {}), local=False)
            manifest = self._run_merge(self.handle, task)
            self._now_in_store(action.id, manifest)
        else:
            manifest = on_disk
        with self._lock:
            self._failures.built(action.id)
        self._merged(task, manifest, running)

    def _build_on_disk(
        self, part: VolatilePart, task: MergeTask, disk: LocalDisk, build: BuildRunner
    ) -> PartManifest | None:
        """The part whose bytes are on the disk now; None if that turned out to be full."""
        try:
            manifest = build(self.handle, task, disk, lambda: self._unwanted(part.id))
        except InvalidInputError as full:
            if full.name != "NOT_ENOUGH_SPACE":
                raise
            return None
        except (CorruptDataError, NotFoundError):
            # Our own disk may be damaged: the store has all rows.
            used = {source.manifest.id for source in task.sources if source.local}
            self._forget([local for local in self._held() if local.manifest.id in used])
            raise
        if self.handle.log.state.live(part.id) is None:
            disk.discard([manifest])
            raise ConflictError(f"Volatile part {part.name} was published, cancelled or dropped while it was made")
        try:
            local_part = disk.add(part, manifest)
        except InvalidInputError:
            disk.discard([manifest])
            return None
        with self._lock:
            self._local[part.id] = local_part
        return manifest

    def _upload(self, action: Upload) -> None:
        volatile_id, running = action.id, self._running[work_key(action)]
        handle, local = self.handle, self._local.get(volatile_id)
        if local is None or self._disk is None or handle.log.state.live(volatile_id) is None:
            return
        running.rows, running.bytes = local.manifest.rows, local.manifest.bytes_on_disk

        def go_on(size: int) -> None:
            unwanted = self._unwanted(volatile_id)
            if not unwanted and self._upload_rate is not None:
                unwanted = not self._upload_rate.take(size, lambda: self._unwanted(volatile_id))
            if unwanted:
                raise error("ABORTED", f"The upload of {local.info} was given up", "It is due again later")
            running.sent(size)

        base_version = self._uploading[volatile_id]
        try:
            manifest = copy_part(
                self._disk.store,
                handle.store,
                handle.directory,
                local.manifest,
                handle.ids.new_id(),
                base_version,
                go_on,
            )
        except (CorruptDataError, NotFoundError):
            self._forget([local])
            raise
        self._now_in_store(volatile_id, manifest)
        self._note("upload", "uploaded %s", running, manifest, running.part)

    def _now_in_store(self, volatile_id: str, manifest: PartManifest) -> None:
        with self._lock:
            self._uploaded[volatile_id] = manifest
        self.status.add(bytes_uploaded=manifest.bytes_on_disk)

    def _publish(self, volatile_id: str) -> None:
        manifest = self._uploaded[volatile_id]

        def build(state: State) -> Sequence[LogOp]:
            part = state.live(volatile_id)
            if part is None:
                return ()
            # The parts in the range may have changed since, but not their rows, so nothing is uploaded again.
            replaced = leaves(state.partitions.get(part.info.partition_id, ()), part.info)
            ids = tuple(source.manifest.id for source in replaced)
            lacks = {version for source in replaced for version in pending(state.mutations, source.info)}
            applied = tuple(sorted(version for version in lacks if version <= part.info.mutation))
            publish = Publish(manifest, ids, kind="volatile", volatile=volatile_id, mutations=applied)
            return (publish, *(finished_by(state, dict.fromkeys(ids, applied[-1])) if applied else ()))

        try:
            committed = self.handle.log.commit(build)
        except COMMIT_REFUSED:
            self._end_attempt(volatile_id)
            raise
        if committed.entry is None:
            # It was published or cancelled, perhaps by us, in an entry whose reply was lost.
            self._end_attempt(volatile_id)
            return
        with self._lock:
            del self._uploaded[volatile_id]
        self.status.add(volatile_published=1)
        facts = {"table": self.name, "partition": manifest.partition_id, "rows": manifest.rows}
        _logger.info(
            "published volatile part %s with %d rows",
            volatile_id,
            manifest.rows,
            extra=event_of("publish", **facts, bytes=manifest.bytes_on_disk, **_asked()),
        )

    def _end_attempt(self, volatile_id: str) -> None:
        with self._lock:
            manifest = self._uploaded.pop(volatile_id)
        discard_refused(self.handle, [manifest])

    def _cancel(self, action: Abandon) -> None:
        def build(state: State) -> Sequence[LogOp]:
            live = tuple(volatile_id for volatile_id in action.ids if state.live(volatile_id) is not None)
            return (CancelVolatile(live, action.reason),) if live else ()

        committed = self.handle.log.commit(build)
        self.status.add(volatile_cancelled=len(action.ids) if committed.entry else 0)

    def _discard(self, action: Discard) -> None:
        for volatile_id, version in action.different:
            if self._was_published(volatile_id, version):
                self.status.add(results_different=1)
                _logger.error("volatile part %s was published with other rows than were made here", volatile_id)
        self._forget([local for local in self._held() if local.id in action.ids])

    def _was_published(self, volatile_id: str, version: int) -> bool:
        """Whether the entry of this version published the result of a volatile part, and not another of its name."""
        try:
            (entry,) = self.handle.log.entries(version, version)
        except CorruptDataError:  # it has been collected
            return False
        return any(isinstance(op, Publish) and op.volatile == volatile_id for op in entry.ops)

    def _held(self) -> list[LocalPart]:
        with self._lock:
            return list(self._local.values())

    def _forget(self, parts: Sequence[LocalPart]) -> None:
        with self._lock:
            for part in parts:
                self._local.pop(part.id, None)
        if self._disk is not None:
            self._disk.drop(parts)

    def _unwanted(self, volatile_id: str) -> bool:
        return self._abandon() or self.handle.log.state.live(volatile_id) is None

    def _commit_alive(self, ops: Sequence[LogOp]) -> None:
        """Commit operations, with a new lease if the old one expires soon; without operations, the lease alone."""

        def build(state: State) -> Sequence[LogOp]:
            now_ms = self.handle.clock.now_ms()
            whole_ms = lease_ms(state)
            if ops and lease_left_ms(state, self._node, now_ms) * 3 > whole_ms * 2:
                return ops
            listens = ("", "") if self._abandon() else self._listens() or ("", "")
            with self._lock:
                merging = (version for version, _ in self._merging.values())
                reading = [*merging, *self._building.values(), *self._uploading.values()]
            oldest = min(reading, default=state.version)
            version = oldest if state.keeps(oldest) else state.version
            disk = self._merges_on_disk and self._checked[1] and not self._abandon()
            return [*ops, RenewLease(self._node, version, now_ms + whole_ms, *listens, disk)]

        self.handle.log.commit(build)
        if self._listens() is not None:
            self._announced_s = self.handle.clock.monotonic_s()

    # -- failures ------------------------------------------------------------------------------

    def _failed(self, action: Action, failure: Exception) -> None:
        state = self.handle.log.state
        if state.dropped or self._is_gone(action):
            self.status.add(merges_lost=1)
            return
        if self._abandon():
            self.status.add(merges_abandoned=1)
            return
        here = False
        with self._lock:
            part = state.live(action.id) if isinstance(action, Build) else None
            if part is not None:
                self._failures.build_failed(part.id, part.info, failure)
            elif isinstance(action, Merge):
                here = self._failures.merge_failed([source.info for source in action.sources], failure)
        self.record_failure(failure, action.sources[0].info.partition_id if here and isinstance(action, Merge) else "")

    def record_failure(self, failure: Exception, partition_id: str = "") -> None:
        """Count and log a failure, and begin a pause, longer each time, before the next work on this table.

        No pause for one in a partition, some blocks of which are avoided.
        """
        self.status.add(merges_failed=1)
        self.status.last_error = str(failure)
        code = getattr(failure, "name", type(failure).__name__)
        facts = event_of("failure", table=self.name, partition=partition_id, error=code)
        if partition_id:
            _logger.warning("a merge of %s, partition %s, failed: %s", self.name, partition_id, failure, extra=facts)
            return
        with self._lock:
            wait_s = self._failures.pause(str(failure))
        _logger.warning("work on %s failed, next try in %.0f s: %s", self.name, wait_s, failure, extra=facts)

    def _is_gone(self, action: Action) -> bool:
        """Whether the action is obsolete: another writer has merged, published, cancelled or dropped its parts."""
        state = self.handle.log.state
        if isinstance(action, Merge | Mutate):
            parts = state.partitions.get(action.sources[0].info.partition_id, ())
            return positions(parts, tuple(part.manifest.id for part in action.sources)) is None
        return isinstance(action, (Build, Upload)) and state.live(action.id) is None


def _asked() -> dict[str, int]:
    """What the action of this thread asked of the store so far, for its log record."""
    tally = current_tally()
    if tally is None:
        return {}
    used = tally.counters
    return {"put": used.put, "get": used.get, "bytes_put": used.bytes_put, "bytes_get": used.bytes_get}
