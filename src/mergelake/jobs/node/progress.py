"""How far the long actions of a node are: numbers that change while an action runs, and are read at any time."""

from __future__ import annotations

from dataclasses import dataclass

from mergelake.core.model.names import PartInfo
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.node.actions import Build, LongWork, Merge, Mutate, Upload
from mergelake.log.model.state import State
from mergelake.log.model.volatile import leaves


@dataclass(slots=True)
class Running:
    """A long action under way. One thread writes; whoever reads sees numbers of about the same moment."""

    kind: str
    """`direct` (a merge to the store), `volatile` (one on the disk or of a volatile part), `mutate`, `upload`."""
    partition_id: str
    part: str
    """Name of the result; of a mutation of several parts, of the first."""
    started_ms: int
    parts: int = 0
    """Active parts that go into it."""
    rows: int = 0
    rows_done: int = 0
    """0 while it is not known: of mutations, and of merges that Spark executes."""
    bytes: int = 0
    """Of the sources; of an upload, to send."""
    bytes_done: int = 0
    """Of an upload: bytes sent."""
    result: PartInfo | None = None
    """Set once the merge is planned: `watch` finds it by that."""
    volatile_id: str = ""

    def begin(self, task: MergeTask) -> None:
        """Take the numbers of a planned merge."""
        self.result, self.part = task.result, str(task.result)
        self.rows, self.bytes = task.rows, task.bytes_on_disk

    def merged(self, rows: int) -> None:
        """Note how many rows are merged, in all."""
        self.rows_done = min(rows, self.rows)

    def sent(self, size: int) -> None:
        """Note that bytes of an upload were sent."""
        self.bytes_done += size
        self.rows_done = self.rows * self.bytes_done // max(self.bytes, 1)


def running_of(action: LongWork, state: State, now_ms: int) -> Running:
    """What is known of an action when it begins."""
    if isinstance(action, Merge | Mutate):
        kind, infos = "direct" if isinstance(action, Merge) else "mutate", [part.info for part in action.sources]
        sources, volatile_id = action.sources, ""
    else:
        part = state.live(action.id)
        kind, volatile_id = "volatile" if isinstance(action, Build) else "upload", action.id
        infos = [part.info] if part is not None else []
        sources = leaves(state.partitions.get(infos[0].partition_id, ()), infos[0]) if infos else ()
    return Running(
        kind,
        infos[0].partition_id if infos else "",
        str(infos[0]) if infos else "",
        now_ms,
        len(sources),
        sum(source.manifest.rows for source in sources),
        bytes=sum(source.manifest.bytes_on_disk for source in sources),
        volatile_id=volatile_id,
    )


def work_key(action: LongWork) -> str:
    """Differs for any two actions that run in one table at a time."""
    if isinstance(action, Merge | Mutate):
        return action.sources[0].manifest.id
    return f"upload {action.id}" if isinstance(action, Upload) else action.id
