"""The names that a table shows to ClickHouse, as a process knows them from its last round: planning costs what changed.

What is to be done in one partition follows from its active parts, its names, its floor and the time, and from nothing
else (`published.plan_publish`). So a round plans again

1. the partitions whose parts changed since the last state (`Partitions.touched_since`), or whose floor rose;
2. those of the names that came, went or were put again since the last listing;
3. those that the last plan left **open**: something was to be done, or a name waited for its grace period.

All others have the empty plan that they had. The first round of a process plans everything, and so does one after a
round that failed: `TableHandle.remembering` throws away what that one knew. The listing is whole each time, and comes
before the log is read, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from mergelake.core.names import PartInfo
from mergelake.log.part_map import Partitions
from mergelake.log.state import ActivePart, State
from mergelake.publish.plan import PublishedName, PublishPlan, empty_info, floor_part, part_of, plan_publish
from mergelake.store.protocol import ObjectMeta, Store
from mergelake.table.handle import TableHandle

ReadName = Callable[[Store, str], PartInfo | None]
"""What an object says that the log knows nothing of; None if it is gone."""

Listed: TypeAlias = list[ObjectMeta]
"""A listing of a table's names, in order. Equal ones are told without hashing."""


def list_names(handle: TableHandle) -> Listed:
    """The names of a table, by one LIST."""
    return list(handle.store.list(_prefix(handle)))


def _prefix(handle: TableHandle) -> str:
    return f"{handle.directory}/__meta/"


class Shown:
    """The names of a table and its active parts, as of the last look. Not for threads."""

    def __init__(self) -> None:
        self.state = State()
        """The one that was read after the listing."""
        self.planned = 0
        """How many partitions were planned so far."""
        self.shrunk = 0
        """How many looks found that a name had gone."""
        self._prefix = ""
        self._last: Listed = []
        self._listed: dict[str, int] = {}
        """The same, by key."""
        self._tokens: set[str] = set()
        """Those of the names."""
        self._infos: dict[str, PartInfo] = {}
        self._by_partition: dict[str, set[str]] = {}
        self._open: set[str] = set()
        self._doubtful: set[str] = set()
        """Names of which the log knows nothing: asked anew at each look."""
        self._odd: set[str] = set()
        """Tokens below which something else lies than a name."""
        self._partitions: Partitions | None = None

    def __len__(self) -> int:
        """How many names there are."""
        return len(self._infos)

    @property
    def tokens(self) -> tuple[Container[str], ...]:
        """Sets that have every token of which something was listed."""
        return self._tokens, self._odd

    def look(self, handle: TableHandle, read_name: ReadName) -> None:
        """Learn the names by one LIST, then the log. `read_name` is asked for names that the log has forgotten."""
        self._prefix = _prefix(handle)
        listed = list_names(handle)
        self._learn_state(handle.refresh())
        if listed != self._last or len(listed) != len(self._listed) or self._doubtful:
            self._learn(handle.store, listed, read_name)
        self._last = listed

    def _learn(self, store: Store, listed: Listed, read_name: ReadName) -> None:
        """What came, went, was put again, or is doubtful."""
        before, again = self._listed, self._doubtful
        self._listed, self._doubtful = {meta.key: meta.modified_ms for meta in listed}, set()
        fresh = [key for key, put_ms in self._listed.items() if before.get(key) != put_ms or key in again]
        same = {key: info for key in fresh if key not in again and (info := self._infos.get(key)) is not None}
        gone = before.keys() - self._listed.keys()
        self.shrunk += bool(gone)
        self._tokens.difference_update(map(self._token, gone))
        self._tokens.update(self._token(key) for key in fresh if key.endswith("/prefix.path"))
        for key in (*gone, *fresh):
            self._forget(key)
        if self._odd or any(not key.endswith("/prefix.path") for key in fresh):
            self._odd = {self._token(key) for key in self._listed if not key.endswith("/prefix.path")}
        self._learn_names(store, fresh, same, read_name)

    def lacks(self, listed: Listed) -> set[str]:
        """Tokens of what an earlier listing has and the last one has not."""
        if listed == self._last:
            return set()
        return {self._token(meta.key) for meta in listed if meta.key not in self._listed}

    def plan(self, now_ms: int, grace_ms: int) -> PublishPlan:
        """What is to be done: `plan_publish`, of the partitions for which that may be anything."""
        self.planned += len(self._open)
        active = {part_id: part.info for part_id, part in self.active().items()}
        plan = plan_publish(active, partial(floor_part, self.state), self.names(), now_ms, grace_ms)
        self._open = set(plan.open)
        return plan

    def active(self) -> dict[str, ActivePart]:
        """The active parts of the partitions that are open, by id."""
        partitions = self.state.partitions
        return {part.manifest.id: part for name in self._open for part in partitions.get(name, ())}

    def names(self) -> list[PublishedName]:
        """The names of the partitions that are open, in the order of the listing."""
        keys = sorted(key for name in self._open for key in self._by_partition.get(name, ()))
        return [PublishedName(self._token(key), self._infos[key], self._listed[key]) for key in keys]

    def _token(self, key: str) -> str:
        return key[len(self._prefix) :].partition("/")[0]

    def _forget(self, key: str) -> None:
        info = self._infos.pop(key, None)
        if info is not None:
            held = self._by_partition[info.partition_id]
            held.remove(key)
            if not held:
                del self._by_partition[info.partition_id]
            self._open.add(info.partition_id)

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
        self, store: Store, fresh: Sequence[str], same: Mapping[str, PartInfo], read_name: ReadName
    ) -> None:
        """Whose names these are: most often of a part that was to be named, which lies in an open partition."""
        near = {part_id: part.info for part_id, part in self.active().items()} if fresh else {}
        everyone: dict[str, PartInfo] | None = None
        wanted = {part_of(key[len(self._prefix) :].partition("/")[0]) for key in fresh if key not in same}
        gone = self.state.retired.find(wanted - near.keys())
        for key in fresh:
            token, _, file = key[len(self._prefix) :].partition("/")
            if file != "prefix.path":
                continue
            part_id = part_of(token)
            retired = gone.get(part_id)
            info = same.get(key) or near.get(part_id) or (retired.info if retired else empty_info(token))
            if info is None:
                if everyone is None:
                    everyone = {part.manifest.id: part.info for part in self.state.parts()}
                info = everyone.get(part_id)
            if info is None:
                self._doubtful.add(key)
                info = read_name(store, key)
            if info is not None:
                self._infos[key] = info
                self._by_partition.setdefault(info.partition_id, set()).add(key)
                self._open.add(info.partition_id)
