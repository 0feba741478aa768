"""Running a partial statement in a task, whose ClickHouse reads its share of the parts by itself.

Shares are the same for every statement on a version, so a long-lived worker has its share attached already. Parts that
ClickHouse refuses are scanned.
"""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4  # noqa: TID251  a name within this process

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import TableSchema
from mergelake.log.model.parts import ActivePart
from mergelake.parts.read.cache import of_tasks
from mergelake.query.attach import attached
from mergelake.query.attach.attaching import NotAttachedError
from mergelake.query.embedded import engine
from mergelake.query.part_set import PartSet
from mergelake.query.spread.broadcast import Broadcast
from mergelake.store.interface.protocol import StoreSpec
from mergelake.store.metering.meter import counted, current_tally

TABLE = "_mergelake.\ue003"
"""Placeholder in a partial statement for the attached table."""
CONDITION = "\ue005"
"""Placeholder in a partial statement for the condition of its share."""
FOLDER = "\ue006"
"""Placeholder in a partial statement for the folder that it writes into."""
TASKS_A_CORE = 2
"""Shares per concurrent task: more than one, because some are read faster than others."""


@dataclass(frozen=True, slots=True)
class Share:
    """Some parts of a table for one task, and the items of a scan of them."""

    parts: tuple[ActivePart, ...]
    items: tuple[Any, ...]
    condition: str = "1"
    """Additional condition on its rows, which replaces `CONDITION`."""


@dataclass(frozen=True, slots=True)
class Partial:
    """A statement that returns a task's partial result, as Native."""

    sql: str
    settings: Mapping[str, str]
    broadcast: Broadcast
    """The other tables that it reads."""
    folder: str = ""
    """Folder into which it writes its result; empty if it returns it."""

    def text(self) -> str:
        """The statement for the ClickHouse of this process; the spread table is still a placeholder."""
        sql = self.broadcast.placed(self.sql)
        if self.folder:
            directory = Path(self.folder) / uuid4().hex
            directory.mkdir()
            sql = sql.replace(FOLDER, str(directory))
        return sql

    def take_back(self) -> None:
        """Remove the files that it has written."""
        for directory in Path(self.folder).iterdir() if self.folder else ():
            shutil.rmtree(directory)


@dataclass(frozen=True, slots=True)
class ScannedTask:
    """Runs a partial statement on a scan. Picklable and idempotent."""

    read: Callable[[Any], Iterator[pa.RecordBatch]]
    schema: pa.Schema
    object_name: str
    """`Python(object_name)` reads the scan."""
    partial: Partial

    def __call__(self, item: Any) -> tuple[list[bytes], int, int]:
        """(partial results as Native, rows scanned, bytes scanned) of one item."""
        seen, batches = [0, 0], counted(current_tally(), self.read(item))

        def noted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                seen[0] += batch.num_rows
                seen[1] += batch.nbytes
                yield batch

        reader = pa.RecordBatchReader.from_batches(self.schema, noted())
        answer = engine.run(
            self.partial.text(), {self.object_name: reader}, output="Native", settings=self.partial.settings
        )
        return [answer.data.to_pybytes()], seen[0], seen[1]

    def writing(self, folder: str) -> ScannedTask:
        """The task with a statement that writes into a folder."""
        return replace(self, partial=replace(self.partial, folder=folder))


@dataclass(frozen=True, slots=True)
class AttachedTask:
    """Runs a partial statement on attached parts. Picklable and idempotent."""

    spec: StoreSpec
    directory: str
    schema: TableSchema
    partial: Partial
    """The statement over `TABLE`."""
    scanned: ScannedTask | None
    """The task on a scan, if the parts cannot be attached; None if a scan is not equivalent."""
    viewed: bool = False
    """Whether the statement applies mutations that the parts lack."""

    def __call__(self, share: Share) -> tuple[list[bytes], int, int] | None:
        """(partial results as Native, rows read, bytes read) of a share; None if it is not readable."""
        parts = PartSet(self.spec.open(), self.directory, self.schema, share.parts, of_tasks())
        try:
            with attached.SETS.using(parts, exact=True) as reading:
                ((name, _),) = reading.tables
                sql = self.partial.text().replace(TABLE, name).replace(CONDITION, share.condition)
                answer = engine.run(sql, output="Native", settings=self.partial.settings)
            return [answer.data.to_pybytes()], answer.rows_read, answer.bytes_read
        except NotAttachedError:
            pass
        except MergelakeError as failure:
            if not attached.scan_differs(failure, viewed=self.viewed and self.scanned is not None):
                raise
        self.partial.take_back()
        if self.scanned is None:
            return None
        answers = [self.scanned(item) for item in share.items]
        partial_answers = [data for each, _, _ in answers for data in each]
        return partial_answers, sum(r for _, r, _ in answers), sum(b for _, _, b in answers)

    def writing(self, folder: str) -> AttachedTask:
        """The task with a statement that writes into a folder."""
        scanned = None if self.scanned is None else self.scanned.writing(folder)
        return replace(self, partial=replace(self.partial, folder=folder), scanned=scanned)


def shares(parts: Sequence[ActivePart], items: Sequence[tuple[Any, ...]], count: int) -> list[Share]:
    """Distribute parts to at most `count` shares of about equally many bytes, and the items of a scan to these.

    The distribution depends on the parts alone. Shares without items are omitted.
    """
    heap = [(0, at) for at in range(min(count, len(parts)))]
    chosen: dict[str, int] = {}
    for part in sorted(parts, key=lambda part: (-part.manifest.bytes_on_disk, part.manifest.id)):
        size, at = heapq.heappop(heap)
        chosen[part.manifest.id] = at
        heapq.heappush(heap, (size + part.manifest.bytes_on_disk, at))
    assigned: list[tuple[list[ActivePart], list[Any]]] = [([], []) for _ in heap]
    for part in parts:
        assigned[chosen[part.manifest.id]][0].append(part)
    for item in items:
        assigned[chosen[item[0].manifest.id]][1].append(item)
    return [Share(tuple(some), tuple(pieces)) for some, pieces in assigned if pieces]
