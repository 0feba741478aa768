"""Skip indexes and projections of a part for `mergelake part inspect`, by its files alone.

A part names its indexes but not their types: minmax is recognized by its extension, `text` by its files; the others
cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from mergelake.core.base.errors import MergelakeError
from mergelake.format.indexes.skip_files import PACKED
from mergelake.format.indexes.skip_types import Bloom, MinMax
from mergelake.parts.read.index_reader import find_index, packed_files
from mergelake.parts.read.listing import projection_names
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.adopt import open_directory

_PREFIX = "skp_idx_"


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """One skip index."""

    name: str
    type: str
    """`minmax`, `text`, or empty if it cannot be recognized."""
    granules: int
    size: int
    """Bytes of its files."""
    packed: bool
    """Whether it is in `skp_idx.packed`."""


@dataclass(frozen=True, slots=True)
class ProjectionFacts:
    """One projection, which is a part inside the part."""

    name: str
    rows: int
    columns: tuple[str, ...]
    size: int
    """Bytes of its files."""


def index_facts(reader: PartReader) -> Iterator[IndexFacts]:
    """Every index, by name."""
    apart = {name: file.size for name, file in reader.files.items() if name.startswith(_PREFIX)}
    packed = {name: size for name, (_, size) in packed_files(reader).items()} if PACKED in reader.files else {}
    files_by_stem: dict[str, dict[str, int]] = {}
    for name, size in (packed | apart).items():
        stem, _, extension = name.removeprefix(_PREFIX).partition(".")
        files_by_stem.setdefault(stem, {})[extension] = size
    for stem, files in sorted(files_by_stem.items()):
        kind = "minmax" if "idx2" in files else "text" if "dct.idx" in files else ""
        name = unquote(stem)
        index = find_index(reader, name, MinMax() if kind == "minmax" else Bloom(1, 1))
        yield IndexFacts(
            name,
            kind,
            index.granules if index else 0,
            sum(files.values()),
            any(n.startswith(f"{_PREFIX}{stem}.") for n in packed),
        )


def projection_facts(reader: PartReader, name: str) -> Iterator[ProjectionFacts]:
    """Every projection of the part in directory `name`; one that cannot be opened has -1 rows."""
    for projection in projection_names(reader.files):
        inside = f"{projection}.proj"
        size = sum(file.size for file_name, file in reader.files.items() if file_name.startswith(f"{inside}/"))
        place = "/".join(part for part in (reader.directory, name, inside) if part)
        try:
            opened = open_directory(reader.store, place)
        except MergelakeError:
            yield ProjectionFacts(projection, -1, (), size)
        else:
            yield ProjectionFacts(projection, opened.manifest.rows, tuple(opened.columns), size)
