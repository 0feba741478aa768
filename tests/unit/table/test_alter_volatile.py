"""Columns change while merged parts lie on the disk of a node: those are read, built and uploaded with their own."""

from __future__ import annotations

import pytest

from mergelake.core.types.types import parse_type
from mergelake.jobs.node.actions import PublishVolatile, Upload
from mergelake.log.model.conflict import check
from mergelake.log.model.operations import AddVolatile, MergeRecipe
from mergelake.table.definition.columns import AddColumn, ColumnDefinition, DropColumn, RenameColumn
from mergelake.table.definition.commit import alter
from mergelake.table.definition.modify_column import ClearColumn, ModifyColumn
from mergelake.table.volatile.volatile_reads import OFF
from tests.helpers.nodes import Lake, TinyNode
from tests.helpers.peer_reads import Reader, serving
from tests.helpers.peers import Network


def column(name, kind=None, default=""):
    return ColumnDefinition(name, parse_type(kind) if kind else None, (), "DEFAULT" if default else "", default)


class World:
    """A table of five parts, merged on the disk of the node `a`, and a reader."""

    def __init__(self, before=(), *, build=True):
        self.lake = Lake(max_bytes_to_merge_volatile=10_000_000, write_amplification_target=1.0001)
        self.lake.insert(3)
        if before:
            alter(self.lake.handle, before)
        self.lake.insert(2)
        self.node = TinyNode(self.lake)
        self.node.rest() if build else self.node.step()
        network = Network()
        serving(network, self.lake, self.node)
        self.reader = Reader(self.lake, network)

    def live(self):
        return [part for held in self.lake.handle.refresh().volatile.values() for part in held]

    def same(self, *columns, volatile=1):
        """The rows with volatile parts and without them."""
        found = self.reader.rows(columns=columns)
        assert found == self.reader.rows(columns=columns, mode=OFF)
        assert len(self.live()) == volatile
        return found


CHANGES = {
    "add": ([AddColumn(column("z", "Int8", "5"))], ("k", "v", "z")),
    "drop": ([DropColumn("v")], ("k",)),
    "rename": ([RenameColumn("v", "w"), AddColumn(column("v", "Int8", "7"))], ("k", "v", "w")),
    "wrap": ([ModifyColumn(column("v", "UInt8"))], ("k", "v")),
    "text": ([ModifyColumn(column("v", "String"))], ("k", "v")),
    "clear": ([ClearColumn("v")], ("k", "v")),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("build", [True, False])
def test_what_was_merged_with_older_columns_is_read_and_uploaded_as_it_is(change, build):
    commands, columns = CHANGES[change]
    world = World(build=build)
    assert len(world.live()) == 1
    alter(world.lake.handle, commands)
    rows = world.same(*columns)
    world.node.rest()
    assert world.same(*columns) == rows
    for held in world.live():
        world.node.worker.perform(Upload("t", held.id))
        world.node.worker.perform(PublishVolatile("t", held.id))
    assert not world.live()
    assert world.reader.rows(columns=columns) == rows
    assert world.reader.rows(columns=columns, mode=OFF) == rows


@pytest.mark.parametrize(
    "change",
    [
        ModifyColumn(column("z", default="v * 3")),
        ModifyColumn(column("v", "UInt8")),
        ClearColumn("v"),
        RenameColumn("v", "w"),
    ],
)
def test_a_merge_with_defaults_of_before_goes_with_the_change(change):
    world = World([AddColumn(column("z", "UInt32", "v * 2"))])
    assert len(world.live()) == 1
    rows = world.same("k", "z")
    alter(world.lake.handle, [AddColumn(column("y", "Int8", "1"))])
    assert world.same("k", "z") == rows
    alter(world.lake.handle, [change])
    after = world.same("k", "z", volatile=0)
    world.node.rest()
    assert world.same("k", "z", volatile=len(world.live())) == after


def test_the_intention_to_merge_is_of_the_newest_schema():
    world = World(build=False)
    (live,) = world.live()
    state = world.lake.handle.log.state
    world.lake.insert(5)
    state = world.lake.handle.refresh()
    new = [part.manifest.id for part in state.parts() if part.info.min_block > live.info.max_block]
    op = AddVolatile("f" * 32, "all", tuple(new), MergeRecipe(state.schema_version, 0), "b")
    assert check(state, op) is None
    alter(world.lake.handle, [AddColumn(column("z", "Int8"))])
    assert check(world.lake.handle.refresh(), op).kind == "conflict"
