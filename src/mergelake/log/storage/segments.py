"""The segments of a log's checkpoints (`segment`): reading them, and writing those of the next checkpoint.

1. Opening a log reads the newest checkpoint. The rows of its segments are read with it, if they are small
   (`EAGER_BYTES`); otherwise when a partition in them is first used (`stored`). They stay in memory as columns.
2. File tables are read when a part is read, one frame at a time, and cached.
3. The writer of a checkpoint reads the newest one first, which is mostly its own: then only the partitions that have
   changed since are processed (`layout`). Parts that others have put into segments are not written again.
4. The state that was written is held in memory in the form of the checkpoint from then on: rows instead of objects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from weakref import WeakValueDictionary

import cachetools
import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import CorruptDataError, NotFoundError
from mergelake.core.base.ids import IdSource
from mergelake.core.model.manifest import FileTable
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.retired import memory_runs
from mergelake.log.model.state import State
from mergelake.log.storage import layout, stored_runs
from mergelake.log.storage.at_once import at_once
from mergelake.log.storage.layout import SegmentLayout, changed_since, cuts, following, size_of, spilled, to_merge
from mergelake.log.storage.part_rows import rows_of
from mergelake.log.storage.segment import (
    OpenSegment,
    SegmentMember,
    SegmentRef,
    StoredFiles,
    decode_frame,
    decode_segment,
    encode_segment,
    segment_name,
)
from mergelake.log.storage.segment_objects import SegmentObjects
from mergelake.log.storage.stored import Home, StoredPartition, adopted
from mergelake.log.storage.stored_runs import RunRef, Runs
from mergelake.store.interface.protocol import Store

CACHE_BYTES = 32 << 20
"""Characters of cached file tables."""
FRAMES_AHEAD = 8
"""Frames that one request reads if the frame before them was read already."""
EAGER_BYTES = 4 << 20
"""Bytes of segments' rows that are read when a log is opened: those of some 50,000 parts."""
MADE_MAX = 100_000
"""Decoded parts of stored partitions that are cached."""


class Segments:
    """The segments under `<prefix>/checkpoints`, as known to this process. Threads may share it."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        *,
        threads: int,
        newest: Callable[[int], tuple[int, SegmentLayout | None, frozenset[str]]],
        elsewhere: Callable[[str, int], Iterator[FileTable]],
        without: Callable[[int, frozenset[str]], State | None],
    ) -> None:
        """`newest` returns the version of the newest checkpoint, its layout unless its version is the one given, and
        the names of all segments; `elsewhere` returns other sources of a part's file table, by its id and the version
        of the entry that added it; `without` returns the state of a version, computed without some segments.
        """
        self._objects = SegmentObjects(store, prefix)
        self._threads = threads
        self._newest = newest
        self._elsewhere = elsewhere
        self._without = without
        self._base: tuple[int, SegmentLayout] = (0, SegmentLayout())  # of the newest checkpoint that is known here
        self._checked: set[SegmentRef | RunRef] = set()
        self._lock = threading.Lock()
        self._homes: WeakValueDictionary[str, Home] = WeakValueDictionary()
        self._kept: dict[str, Home] = {}  # of the newest checkpoint
        self._fresh: list[Home] = []  # of the checkpoint that is being written
        self._made_partitions = _MadePartitions(MADE_MAX)
        self.runs = Runs(self._objects, without)
        """The segments with retired parts."""
        self._frames: cachetools.LRUCache[tuple[str, int], list[str]] = cachetools.LRUCache(
            CACHE_BYTES, lambda texts: sum(map(len, texts)) + 1
        )

    def key(self, name: str) -> str:
        """Key of a segment."""
        return self._objects.key(name)

    def remember(self, version: int, checkpoint: SegmentLayout) -> None:
        """Note the layout of a checkpoint that was read or written."""
        kept = {ref.name: self.home(ref) for ref in checkpoint.refs}
        with self._lock:
            if version > self._base[0]:
                self._base, self._kept = (version, checkpoint), kept
                self._fresh.clear()

    def open_eagerly(self, refs: Collection[SegmentRef]) -> list[OpenSegment]:
        """Read the rows of segments, if they are small."""
        if sum(ref.hot_bytes for ref in refs) > EAGER_BYTES:
            return []
        return self.open([self.home(ref) for ref in refs])

    def home(self, ref: SegmentRef) -> Home:
        """See `stored.SegmentSource`."""
        with self._lock:
            home = self._homes.get(ref.name)
            if home is None or home.ref != ref:
                home = self._homes[ref.name] = Home(ref)
            return home

    def open(self, homes: Collection[Home]) -> list[OpenSegment]:
        """See `stored.SegmentSource`. A GET each, by several threads."""
        missing = [home for home in homes if home.segment is None]
        for home, segment in zip(missing, at_once(self._read, missing, self._threads), strict=True):
            home.segment = segment
        return [home.segment for home in homes if home.segment is not None]

    def complete(self, state: State) -> bool:
        """Whether all parts of a state are in memory."""
        if state.retired.in_memory < len(state.retired):
            return False  # rows of stored runs are only cached
        homes = map(self._homes.get, state.partitions.segments)
        return all(home is not None and home.segment is not None for home in homes)

    def instead(self, partition_id: str, version: int) -> tuple[ActivePart, ...]:
        """See `stored.SegmentSource`."""
        state = self._without(version, frozenset(self._objects.bad))
        return state.partitions.get(partition_id, ()) if state is not None else ()

    def keep_made(self, partition: StoredPartition) -> None:
        """See `stored.SegmentSource`."""
        with self._lock, suppress(ValueError):  # larger than the cache
            self._made_partitions[id(partition)] = partition

    def text(self, place: StoredFiles) -> str:
        """The file table at a place; its frame is cached."""
        try:
            return self._text(place)
        except (NotFoundError, CorruptDataError):  # merged into another segment and deleted, or damaged
            for table in self._elsewhere(place.part_id, place.added):
                with suppress(NotFoundError, CorruptDataError):
                    stored = None if table.in_memory else table.place
                    return self._text(stored) if isinstance(stored, StoredFiles) else table.text
            raise

    def _text(self, place: StoredFiles) -> str:
        segment, name = place.segment, place.segment.ref.name
        number, row = divmod(place.row, segment.frame_rows)
        with self._lock:
            texts = self._frames.get((name, number))
            ahead = FRAMES_AHEAD if (name, number - 1) in self._frames else 1
        if texts is None:
            wanted = segment.frames[number : number + ahead]
            start, end = wanted[0][0], wanted[-1][0] + wanted[-1][1]
            data = bytes(self._objects.store.get_range(self.key(name), start, end - start))
            for at, (offset, length, _) in enumerate(wanted, number):
                frame = decode_frame(segment, at, data[offset - start : offset - start + length], self.key(name))
                with self._lock, suppress(ValueError):  # larger than the cache
                    self._frames[name, at] = frame
                texts = texts or frame
        assert texts is not None
        return texts[row]

    def lay_out(self, state: State, ids: IdSource) -> SegmentLayout | None:
        """The layout of a checkpoint of a state; writes new segments.

        None if there is a checkpoint of it, or of a newer state, already. No request for a table that has no segments
        and needs none.
        """
        if not self._base[1].names and _is_small(state):
            return SegmentLayout(inline=dict(state.partitions.items()), runs=tuple(memory_runs(tuple(state.retired))))
        while True:
            version, newest, names = self._newest(self._base[0])
            if version >= state.version:
                return None
            base = newest if newest is not None else self._base[1]
            # Other processes write checkpoints and delete segments, too. Missing or damaged ones are written again.
            lost = {name for name in base.names if name not in names or name in self._objects.bad}
            base = replace(base, members={name: each for name, each in base.members.items() if name not in lost})
            try:
                after = self._laid_out(state, version, base, lost, ids)
                return replace(after, runs=self.runs.laid_out(state, base.runs, lost, ids))
            except _Unreadable as segment:
                self._objects.bad.add(segment.name)

    def adopt(self, state: State, version: int, written: SegmentLayout) -> State:
        """The same state, in the form of the checkpoint of `version`, which is its own or an earlier one."""
        self.remember(version, written)
        partitions = adopted(state.partitions, version, written, self)
        stored = self.runs.stored(version, written.runs)
        retired = state.retired.held_as(stored) if stored else state.retired
        return replace(state, partitions=partitions, retired=retired)

    def delete(self, names: Iterable[str]) -> None:
        """Remove segments that no checkpoint names."""
        self._objects.store.delete([self.key(name) for name in names])

    def check(self, ref: SegmentRef | RunRef) -> None:
        """Read a whole segment, once per process; CorruptDataError, and not used again, if it is damaged."""
        if ref in self._checked:
            return
        if isinstance(ref, RunRef):
            self.runs.check(ref)
        else:
            self._check_files(ref)
        self._checked.add(ref)

    def _check_files(self, ref: SegmentRef) -> None:
        key = self.key(ref.name)
        with self._objects.noted(ref.name):
            data = self._objects.store.get(key)
            segment = decode_segment(ref, data[: ref.hot_bytes], self, key)
            digests = [FileTable(text).digest for text in segment.texts(data, key)]
            if digests != segment.rows["files_digest"].to_pylist():
                raise CorruptDataError("A file table in a segment is not the one that was written", object_key=key)

    def _read(self, home: Home) -> OpenSegment:
        ref = home.ref

        def load(key: str) -> OpenSegment:
            return decode_segment(ref, bytes(self._objects.store.get_range(key, 0, ref.hot_bytes)), self, key)

        return self._objects.read(ref.name, load)

    def _laid_out(
        self, state: State, version: int, base: SegmentLayout, lost: Collection[str], ids: IdSource
    ) -> SegmentLayout:
        homes = [self.home(ref) for ref in base.refs]  # keeps the rows that are read in memory until the end

        def opened(name: str) -> OpenSegment:
            with _unreadable(name):
                return self.open([home for home in homes if home.ref.name == name])[0]

        changed = changed_since(state.partitions, version, base, lost)
        known = base
        if lost:
            fewer = {
                name: replace(each, names=tuple(n for n in each.names if n not in lost))
                for name, each in base.placed.items()
                if name in changed
            }
            known = replace(base, placed={**base.placed, **fewer})
        state.partitions.read(changed)
        after = following(known, state.partitions, changed, opened)
        if after.inline_bytes <= layout.INLINE_MAX:
            return after
        merged = {name: opened(name) for name in to_merge(after.members.values())}
        self._fresh.clear()
        new = self._write(state.version, [(merged[name], after.members[name]) for name in merged], after, ids)
        return spilled(after, state.partitions, merged, new)

    def _write(
        self, version: int, again: Collection[tuple[OpenSegment, SegmentMember]], after: SegmentLayout, ids: IdSource
    ) -> list[OpenSegment]:
        """Write segments with the parts of merged segments (`again`) and the inline ones, by partition and block."""
        fresh = [part for parts in after.inline.values() for part in parts]
        tables, texts = [rows_of(fresh)], [part.manifest.files.text for part in fresh]
        sizes = [size_of(part) for part in fresh]
        for segment, member in again:
            alive = np.flatnonzero(member.live)
            tables.append(segment.rows.take(pa.array(alive)))
            every = self._texts(segment)
            texts += [every[row] for row in alive.tolist()]
            sizes += [segment.ref.size // segment.ref.rows] * len(alive)
        rows = pa.concat_tables(tables).unify_dictionaries()
        order = pa.compute.sort_indices(rows, [("partition_id", "ascending"), ("min_block", "ascending")])
        rows, by_row = rows.take(order).combine_chunks(), order.to_pylist()
        written = []
        for cut in cuts([sizes[row] for row in by_row]):
            chosen = [texts[row] for row in by_row[cut]]
            name = segment_name(version, ids.new_id())
            segment, data = encode_segment(name, rows.slice(cut.start, len(chosen)), chosen, self)
            self._objects.create(name, data)
            written.append(segment)
            self._fresh.append(self.home(segment.ref))
            self._fresh[-1].segment = segment
        return written

    def _texts(self, segment: OpenSegment) -> list[str]:
        """The file tables of a segment; one GET, or from other sources if it is damaged or gone."""
        key = self.key(segment.ref.name)
        try:
            return list(segment.texts(self._objects.store.get(key), key))
        except (NotFoundError, CorruptDataError):
            with _unreadable(segment.ref.name):
                parts = segment.parts(np.arange(segment.ref.rows))
                return [part.manifest.files.text for part in parts]


def _is_small(state: State) -> bool:
    """Whether a checkpoint can hold all parts itself."""
    if len(state.retired) > stored_runs.INLINE_PARTS_MAX:
        return False
    if state.part_count * layout.FACTS_BYTES > layout.INLINE_MAX:
        return False
    return sum(map(size_of, state.parts())) <= layout.INLINE_MAX


class _Unreadable(Exception):
    """A segment is unreadable, and has to be written again from other sources."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class _unreadable:  # noqa: N801
    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, failure: object, trace: object) -> None:
        if isinstance(failure, (NotFoundError, CorruptDataError)):
            raise _Unreadable(self._name) from failure


class _MadePartitions(cachetools.LRUCache[int, StoredPartition]):
    """Partitions with decoded parts, least recently used first; by identity."""

    def __init__(self, parts_max: int) -> None:
        super().__init__(parts_max, len)

    def popitem(self) -> tuple[int, StoredPartition]:
        """Evict the least recently used partition."""
        key, partition = super().popitem()
        partition.forget()
        return key, partition
