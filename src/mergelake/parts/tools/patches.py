"""Finding the patch parts that change a part: what ClickHouse's lightweight UPDATE and DELETE wrote beside it.

A patch part lies in the directory of its table, as `patch-<hash>-<partition>_<min>_<max>_<level>_<version>`. It has a
row for each changed one, with the new values of some columns (0 as `_row_exists` for deleted rows), the version of the
change, and the row's `_block_number` and `_block_offset`, which tell the row also after merges. A part lacks the
changes with versions above its own data version.

Source: ClickHouse, `src/Storages/MergeTree/PatchParts/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.names import PartInfo, patched_partition
from mergelake.core.model.schema import Column
from mergelake.core.types.types import DataType
from mergelake.expr.nodes import ColumnRef, walk
from mergelake.expr.parser import parse_list
from mergelake.format.files.source_parts import SourceParts
from mergelake.parts.read.evolve import can_evolve
from mergelake.parts.read.reader import BLOCK_NUMBER, BLOCK_OFFSET, ROW_EXISTS, PartReader
from mergelake.parts.tools.adopt import open_directory
from mergelake.store.interface.protocol import ObjectMeta, Store
from mergelake.store.metering.meter import Pool

PART, VERSION = "_part", "_part_data_version"
"""Columns of a patch part: the part from which a row was read, and the version of its new values."""
_OPENED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class PatchPart:
    """An opened patch part."""

    name: str
    sources: SourceParts
    reader: PartReader

    @property
    def updated(self) -> dict[str, DataType]:
        """The columns whose values it changes, by name."""
        others = {PART, "_part_offset", VERSION, BLOCK_NUMBER, BLOCK_OFFSET, *_key_columns(self.sources.sorting_key)}
        return {name: column.type for name, column in self.reader.columns.items() if name not in others}


def _key_columns(texts: Sequence[str]) -> set[str]:
    """The columns of a sorting key, which a patch part repeats and never changes; none if a text cannot be read."""
    try:
        nodes = [node for text in texts for node in parse_list(text)]
    except MergelakeError:
        return set()
    return {part.name for node in nodes for part in walk(node) if isinstance(part, ColumnRef)}


def find_patches(
    store: Store, directory: str, part: PartInfo, *, granularity: int = 8192, threads: int = 1
) -> list[PatchPart]:
    """The patch parts in a table's directory that change `part`, by one listing and reads of their small files.

    Raises the errors of `adopt.open_directory` with the name of the patch part.
    """
    listed = _listed(store, directory)
    infos = [info for info in map(PartInfo.try_parse, listed) if info is not None]
    lacking = [
        info
        for info in active(infos)
        if patched_partition(info.partition_id) == part.partition_id and info.data_version > part.data_version
    ]

    def opened(info: PartInfo) -> PatchPart:
        name = str(info)
        place = f"{directory}/{name}" if directory else name
        with naming(name):
            found = open_directory(store, place, granularity=granularity, listed=listed[name])
        assert found.sources is not None
        reader = PartReader(
            store, found.directory, found.manifest, found.columns, threads=threads, granularity=granularity
        )
        return PatchPart(name, found.sources, reader)

    if len(lacking) > 1:
        with Pool(_OPENED_AT_ONCE) as pool:
            patches = list(pool.map(opened, lacking))
    else:
        patches = list(map(opened, lacking))
    return [patch for patch in patches if patch.reader.manifest.rows and patch.sources.concern(part)]


def active(infos: Sequence[PartInfo]) -> list[PartInfo]:
    """The parts that are covered by none of the others, in order."""
    out: list[PartInfo] = []
    for info in sorted(infos, key=lambda i: (i.partition_id, i.min_block, -i.max_block, -i.level, -i.mutation)):
        if not out or not out[-1].covers(info):
            out.append(info)
    return out


def _listed(store: Store, directory: str) -> dict[str, dict[str, ObjectMeta]]:
    """The files of each patch part in a directory."""
    start = f"{directory}/" if directory else ""
    out: dict[str, dict[str, ObjectMeta]] = {}
    for meta in store.list(directory, f"{start}patch-", f"{start}patch."):
        name, _, file = meta.key[len(start) :].partition("/")
        if file:
            out.setdefault(name, {})[file] = meta
    return out


def unknown_columns(patches: Sequence[PatchPart], columns: Mapping[str, Column]) -> dict[str, str]:
    """The changed columns that are not among the part's `columns`, each with the name of a patch part that has it."""
    return {
        name: patch.name for patch in patches for name in patch.updated if name not in columns and name != ROW_EXISTS
    }


def widened(columns: Mapping[str, Column], patches: Sequence[PatchPart]) -> dict[str, Column]:
    """A part's columns with types that hold the values of patch parts too, such as an Enum that has got more values."""
    out = dict(columns)
    for patch in patches:
        for name, kind in patch.updated.items():
            if name in out and can_evolve(out[name].type, kind):
                out[name] = replace(out[name], type=kind)
    return out


@contextmanager
def naming(patch: str) -> Iterator[None]:
    """Add the name of a patch part to errors."""
    try:
        yield
    except MergelakeError as problem:
        if patch not in str(problem):
            problem.message = f"The patch part {patch} cannot be applied: {problem.message}"
        raise
