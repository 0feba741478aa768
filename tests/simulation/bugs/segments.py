"""Mistakes in what checkpoints do not hold themselves."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np

from mergelake.log.commit.commit import Log
from mergelake.log.reading import truncate
from mergelake.log.reading.tail import LogReader
from mergelake.log.storage import layout, segments, stored
from mergelake.log.storage.segment import SegmentMember
from mergelake.log.storage.segment_objects import SegmentObjects
from tests.simulation.bugs.registry import bug


@bug
def a_sweep_of_segments_asks_the_newest_checkpoint_only():
    real = truncate._swept
    return mock.patch.object(truncate, "_swept", lambda reader, standing, *rest: real(reader, standing[-1:], *rest))


@bug
def a_sweep_of_segments_takes_those_of_a_checkpoint_that_is_being_written():
    real = truncate._swept
    return mock.patch.object(
        truncate, "_swept", lambda reader, standing, segments, base: real(reader, standing, segments, 1 << 60)
    )


@bug
def a_sweep_of_segments_takes_those_of_checkpoints_that_follow_an_emptied_one():
    """A collector that stood still since it listed them finds no names in checkpoints that were emptied meanwhile."""
    real = LogReader.layout
    nothing = layout.SegmentLayout()

    def careless(reader, standing, *rest):
        with mock.patch.object(LogReader, "layout", lambda self, version: real(self, version) or nothing):
            swept(reader, standing, *rest)

    swept = truncate._swept
    return mock.patch.object(truncate, "_swept", careless)


@bug
def a_segment_is_named_though_nobody_knows_that_it_is_there():
    def careless(self, name, data):
        self.store.create(self.key(name), data)

    return mock.patch.object(SegmentObjects, "create", careless)


@bug
def parts_of_a_segment_that_are_gone_come_back():
    real = layout.following

    def careless(base, partitions, changed, opened):
        after = real(base, partitions, changed, opened)
        members = {
            name: SegmentMember(each.ref, np.ones(each.ref.rows, np.bool_)) for name, each in after.members.items()
        }
        return replace(after, members=members)

    return mock.patch.object(segments, "following", careless)


@bug
def a_new_segment_lacks_the_parts_of_those_that_were_merged_into_it():
    real = segments.Segments._write
    return mock.patch.object(
        segments.Segments, "_write", lambda self, version, again, after, ids: real(self, version, (), after, ids)
    )


@bug
def who_writes_a_checkpoint_does_not_look_for_the_newest_one():
    def careless(self, known):
        return known, None, frozenset(self.beside_entries()[1])

    return mock.patch.object(LogReader, "_newest_layout", careless)


@bug
def what_changed_since_the_checkpoint_of_another_is_not_looked_at():
    def careless(partitions, version, base, lost):
        return real(partitions, max(version, partitions.since), base, lost)

    real = layout.changed_since
    return mock.patch.object(segments, "changed_since", careless)


@bug
def a_partition_that_changed_after_the_checkpoint_is_held_as_it_has_it():
    def careless(partitions, version, layout, source):
        return real(partitions, 1 << 60, layout, source)

    real = stored.adopted
    return mock.patch.object(segments, "adopted", careless)


@bug
def a_state_is_gone_on_from_though_what_it_has_yet_to_read_may_be_gone():
    return mock.patch.object(Log, "_usable", Log._is_head_fresh)


@bug
def a_file_table_whose_segment_was_swept_is_lost():
    return mock.patch.object(segments.Segments, "text", segments.Segments._text)


@bug
def rows_of_a_segment_are_known_by_their_blocks():
    def careless(base, partitions, changed, opened):
        def renamed(name):
            segment = opened(name)
            return _ByBlock(segment, partitions)

        return real(base, partitions, changed, renamed)

    real = layout.following
    return mock.patch.object(segments, "following", careless)


class _ByBlock:
    """A segment that takes any part for the one whose first block it has."""

    def __init__(self, segment, partitions):
        self._segment, self._partitions = segment, partitions

    def known(self, partition_id):
        start, end = self._segment.ranges.get(partition_id, (0, 0))
        blocks = self._segment.rows["min_block"].slice(start, end - start).to_pylist()
        rows = {block: row for row, block in enumerate(blocks, start)}
        parts = self._partitions.get(partition_id, ())
        same = {(p.manifest.id, p.added): rows[p.info.min_block] for p in parts if p.info.min_block in rows}
        left = set(rows.values()) - set(same.values())
        return {**same, **{("", -row): row for row in left}}


@bug
def a_log_is_cut_at_a_checkpoint_whose_segments_are_damaged():
    return mock.patch.object(LogReader, "sound", lambda self, version: self.checkpoint(version) is not None)


@bug
def segments_that_were_merged_into_another_are_deleted_at_once():
    real = segments.Segments._write

    def careless(self, version, again, after, ids):
        new = real(self, version, again, after, ids)
        self.delete([segment.ref.name for segment, _ in again])
        return new

    return mock.patch.object(segments.Segments, "_write", careless)
