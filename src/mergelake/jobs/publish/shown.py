"""The published names of a table, as known from the last round of a process, so that only changes are planned.

The plan of a partition depends only on its active parts, its names, its floor and the time (`plan.plan_publish`). So a
round plans again

1. the partitions whose parts changed since the last state (`Partitions.touched_since`), or whose floor rose;
2. the partitions of names that were added, removed or rewritten since the last listing;
3. the partitions that the last plan left **open**: with work, or a name that waits for its grace period.

The plan of all others is still empty. The first round of a process plans everything, and so does one after a failed
round, whose state `TableHandle.remembering` drops. The listing is always complete, and comes before the log is read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from mergelake.core.model.names import PartInfo
from mergelake.jobs.publish.plan import (
    PublishedName,
    PublishPlan,
    brought,
    empty_info,
    floor_part,
    is_projection,
    name_over,
    part_of,
    plan_publish,
)
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.parts import ActivePart, RetiredPart
from mergelake.log.model.state import State
from mergelake.store.interface.protocol import ObjectMeta, Store
from mergelake.table.handle.handle import TableHandle

ReadName = Callable[[Store, str], PartInfo | None]
"""Reads the name of a part that the log has forgotten; None if it is gone."""

Named: TypeAlias = tuple[PartInfo, int]
"""A part's own name and the version that brought it, which its published name follows from; a published one and 0."""

Listed: TypeAlias = list[ObjectMeta]
"""A listing of a table's names, in order."""


def list_names(handle: TableHandle) -> Listed:
    """The names of a table, by one LIST."""
    return list(handle.store.list(_prefix(handle)))


def _prefix(handle: TableHandle) -> str:
    return f"{handle.directory}/__meta/"


class Shown:
    """The names of a table and its active parts, as of the last `look`. Not thread-safe."""

    def __init__(self) -> None:
        self.state = State()
        """The state that was read after the listing."""
        self.published = 0
        """The version that this process published last, 0 for none."""
        self.served = 0
        """The version of the schema that this process knows to be a served one."""
        self.planned = 0
        """Number of partitions planned so far."""
        self.shrunk = 0
        """Number of `look` calls after which a name was gone."""
        self._prefix = ""
        self._last: Listed = []
        self._listed: dict[str, int] = {}
        """Key -> time of the last listing."""
        self._tokens: set[str] = set()
        """Tokens of the names."""
        self._infos: dict[str, Named] = {}
        self._by_partition: dict[str, set[str]] = {}
        self._open: set[str] = set()
        self._doubtful: set[str] = set()
        """Keys of names that are not in the log: read again in each `look`."""
        self._odd: set[str] = set()
        """Tokens with objects other than a name."""
        self._partitions: Partitions | None = None

    def __len__(self) -> int:
        """Number of names."""
        return len(self._infos)

    @property
    def tokens(self) -> tuple[Container[str], ...]:
        """Sets that together have every listed token."""
        return self._tokens, self._odd

    def look(self, handle: TableHandle, read_name: ReadName) -> None:
        """Update the names by one LIST, then the state. `read_name` reads names that the log has forgotten."""
        self._prefix = _prefix(handle)
        listed = list_names(handle)
        self._learn_state(handle.refresh())
        if listed != self._last or len(listed) != len(self._listed) or self._doubtful:
            self._learn(handle.store, listed, read_name)
        self._last = listed

    def _learn(self, store: Store, listed: Listed, read_name: ReadName) -> None:
        """Update the names that were added, removed, rewritten, or are doubtful."""
        before, doubtful = self._listed, self._doubtful
        self._listed, self._doubtful = {meta.key: meta.modified_ms for meta in listed}, set()
        fresh = [key for key, put_ms in self._listed.items() if before.get(key) != put_ms or key in doubtful]
        unchanged = {key: info for key in fresh if key not in doubtful and (info := self._infos.get(key)) is not None}
        removed = before.keys() - self._listed.keys()
        self.shrunk += bool(removed)
        self._tokens.difference_update(map(self._token, removed))
        self._tokens.update(self._token(key) for key in fresh if key.endswith("/prefix.path"))
        for key in (*removed, *fresh):
            self._forget(key)
        if self._odd or any(not key.endswith("/prefix.path") for key in fresh):
            self._odd = {self._token(key) for key in self._listed if not key.endswith("/prefix.path")}
        self._learn_names(store, fresh, unchanged, read_name)

    def lacks(self, listed: Listed) -> set[str]:
        """Tokens of an earlier listing that are missing in the last one."""
        if listed == self._last:
            return set()
        return {self._token(meta.key) for meta in listed if meta.key not in self._listed}

    def projections(self, gone: Container[str]) -> list[str]:
        """Tokens of projections of the parts behind the tokens in `gone`, and of parts that have no name and are gone.

        `gone` are about to be removed.
        """
        found = [token for token in self._tokens if is_projection(token)]
        if not found:
            return []
        named = {part_of(self._token(key)) for key in self._infos if self._token(key) not in gone}
        named |= {part.manifest.id for part in self.state.parts()}
        return sorted(token for token in found if part_of(token) not in named)

    def plan(self, now_ms: int, grace_ms: int) -> PublishPlan:
        """The result of `plan_publish` for the open partitions."""
        self.planned += len(self._open)
        active = self.active()
        for name in self.names():
            if name.part_id in active:  # marked since, and perhaps shown anew: what covers this covers an older name
                self._infos[f"{self._prefix}{name.token}/prefix.path"] = _named(active[name.part_id])
        infos = {part_id: name_over(self.state, *_named(part)) for part_id, part in active.items()}
        plan = plan_publish(infos, partial(floor_part, self.state), self.names(), now_ms, grace_ms)
        self._open = set(plan.open)
        return plan

    def active(self) -> dict[str, ActivePart]:
        """The active parts of the partitions that are open, by id."""
        partitions = self.state.partitions
        return {part.manifest.id: part for name in self._open for part in partitions.get(name, ())}

    def names(self) -> list[PublishedName]:
        """The names of the partitions that are open, in the order of the listing."""
        keys = sorted(key for name in self._open for key in self._by_partition.get(name, ()))
        return [
            PublishedName(self._token(key), name_over(self.state, *self._infos[key]), self._listed[key]) for key in keys
        ]

    def _token(self, key: str) -> str:
        return key[len(self._prefix) :].partition("/")[0]

    def _forget(self, key: str) -> None:
        named = self._infos.pop(key, None)
        if named is not None:
            partition_id = named[0].partition_id
            held = self._by_partition[partition_id]
            held.remove(key)
            if not held:
                del self._by_partition[partition_id]
            self._open.add(partition_id)

    def _learn_state(self, state: State) -> None:
        changed = state.partitions.touched_since(self._partitions) if self._partitions is not None else None
        if changed is None:
            self._listed, self._infos, self._by_partition, self._doubtful = {}, {}, {}, set()
            self._tokens = set()
            self.shrunk += 1
            self._open = set(state.partitions)
        else:
            self._open |= changed
        before = self.state
        if state.floor != before.floor:
            self._open.update(self._by_partition)
        elif state.floors is not before.floors:
            self._open.update(name for name in state.floors if state.floors[name] != before.floors.get(name))
        self._partitions, self.state = state.partitions, state

    def _learn_names(
        self, store: Store, fresh: Sequence[str], unchanged: Mapping[str, Named], read_name: ReadName
    ) -> None:
        """Map fresh names to infos: first of parts in open partitions, then of retired and of all active parts."""
        near = {part_id: _named(part) for part_id, part in self.active().items()} if fresh else {}
        all_infos: dict[str, Named] | None = None
        wanted = {part_of(key[len(self._prefix) :].partition("/")[0]) for key in fresh if key not in unchanged}
        retired_parts = self.state.retired.find(wanted - near.keys())
        for key in fresh:
            token, _, file = key[len(self._prefix) :].partition("/")
            if file != "prefix.path" or is_projection(token):
                continue
            part_id = part_of(token)
            retired = retired_parts.get(part_id)
            named = unchanged.get(key) or near.get(part_id) or (_named(retired) if retired else None)
            info = empty_info(token)
            if named is None and info is None:
                if all_infos is None:
                    all_infos = {part.manifest.id: _named(part) for part in self.state.parts()}
                named = all_infos.get(part_id)
                if named is None:
                    self._doubtful.add(key)
                    info = read_name(store, key)
            if named is None and info is not None:
                named = (info, 0)
            if named is not None:
                self._infos[key] = named
                self._by_partition.setdefault(named[0].partition_id, set()).add(key)
                self._open.add(named[0].partition_id)


def _named(part: ActivePart | RetiredPart) -> Named:
    return part.info, brought(part)
