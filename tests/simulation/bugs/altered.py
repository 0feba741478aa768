"""Mistakes about columns that change while parts of before are read, merged and published."""

from __future__ import annotations

from unittest import mock

from mergelake.parts.read import reader
from mergelake.parts.read.reader import PartReader
from tests.simulation.bugs.registry import bug


@bug
def columns_of_parts_are_found_by_their_names():
    def by_name(self):
        held = self.layout.columns
        return {column.id: name for name, column in self.columns.items() if name in held}

    return mock.patch.object(PartReader, "_load_names", by_name)


@bug
def values_are_taken_for_those_of_the_newest_type():
    return mock.patch.object(reader, "converted", lambda array, stored, wanted, changes=(): array)
