"""How a part lies, found from its file names and small files: Wide or Compact, kinds of marks, forms of columns.

====================  ========================================================
`.mrk`, `.cmrk`       Wide, granules of a fixed number of rows
`.mrk2`, `.cmrk2`     Wide; the default
`.mrk3`, `.cmrk3`     Compact, one mark a column
`.mrk4`, `.cmrk4`     Compact, one mark a stream (ClickHouse 25.8 and newer)
====================  ========================================================
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from mergelake.core.base.errors import CorruptDataError, error
from mergelake.core.types import types as t
from mergelake.format.files.marks import Marks, parse_marks
from mergelake.format.kernels.memory import Bytes
from mergelake.format.serializations.names import stream_file_name, streams_by_column
from mergelake.format.serializations.serialization import Serialization
from mergelake.format.serializations.serialization_json import (
    ColumnKind,
    SerializationInfo,
    decode_serialization,
    decode_substreams,
)
from mergelake.format.serializations.streams import shared_sizes_stream
from mergelake.format.serializations.tree import Form, build_serialization

_EXTENSIONS = ("mrk", "cmrk", "mrk2", "cmrk2", "mrk3", "cmrk3", "mrk4", "cmrk4")
_COMPACT = {"mrk3", "cmrk3", "mrk4", "cmrk4"}
_HASHED = re.compile(r"[0-9a-f]{32}\.bin").fullmatch


@dataclass(frozen=True, slots=True)
class Layout:
    """How the columns of one part lie. Make it with `detect_layout`, or `classic_layout` for our own parts."""

    mark_extension: str
    """With the dot: `.mrk2`, `.cmrk4`, …"""
    columns: Mapping[str, t.DataType]
    """The part's columns, in the order of `columns.txt`."""
    files: frozenset[str]
    info: SerializationInfo = field(default_factory=SerializationInfo)
    substreams: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Streams of each column, in `.mrk4` and `.cmrk4` in the order of the marks; read only where they are needed."""
    granularity: int = 8192
    """Rows of a granule where marks do not tell (`.mrk`, `.cmrk`)."""
    rows: int | None = None
    joined: bool = False
    """Whether several parts lie one behind the other (`parts.read.joined`), a granule each."""
    _stems: dict[tuple[str, t.DataType], dict[str, str]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """Results of `stems`, which is called several times for each column."""
    _file_streams: Mapping[str, Sequence[str]] = field(init=False, repr=False, compare=False)
    """Streams of each column of a Wide part, by the names of the files; only where types do not tell them all."""
    _hashed: Sequence[str] = field(init=False, repr=False, compare=False)
    """Streams whose names were too long: their files are named by a hash, which does not tell the column."""
    _spans: Mapping[str, tuple[int, int]] = field(init=False, repr=False, compare=False)
    """In marks of a Compact part: each column's first pair, and the pair after its last."""

    def __post_init__(self) -> None:
        mixed = any(t.holds(kind, t.Variant, t.Dynamic, t.Json) for kind in self.columns.values())
        file_streams = streams_by_column(self.files, self.columns) if mixed else {}
        hashed = [file[:-4] for file in self.files if _HASHED(file)] if mixed else []
        counts = dict.fromkeys(self.columns, 1)
        if self.mark_extension in (".mrk4", ".cmrk4"):
            counts = {name: len(streams) for name, streams in self.substreams.items()}
        ends = accumulate(counts.values())
        spans = {name: (end - count, end) for (name, count), end in zip(counts.items(), ends, strict=True)}
        for name, value in (("_file_streams", file_streams), ("_hashed", hashed), ("_spans", spans)):
            object.__setattr__(self, name, value)

    @property
    def compact(self) -> bool:
        """Whether all columns lie in one `data.bin`."""
        return self.mark_extension[1:] in _COMPACT

    def node(self, name: str, data_type: t.DataType) -> Serialization:
        """The serialiser of a column in this part."""
        kind = self.info.columns.get(name, ColumnKind())
        sizes = self.info.string_sizes, self.info.string_sizes_nested
        escaped = t.holds(data_type, t.Variant, t.Dynamic, t.Json) and self._escapes(name)
        return build_serialization(name, data_type, Form(*sizes, kind=kind, escaped=escaped))

    def _escapes(self, name: str) -> bool:
        """Whether names of the types of a Variant are escaped in the names of a column's streams."""
        streams = self.substreams.get(name) or self._file_streams.get(name, ())
        return not any("(" in stream for stream in streams)

    def _streams(self, name: str, data_type: t.DataType) -> list[str]:
        """The streams of a column of a Wide part, also those that only the part knows."""
        streams = list(self.node(name, data_type).streams())
        if not t.holds(data_type, t.Dynamic, t.Json):
            return streams
        known = self.substreams.get(name) or [*self._file_streams.get(name, ()), *self._hashed]
        sizes = shared_sizes_stream(name, data_type)
        return list(dict.fromkeys([*known, *([sizes] if sizes else [])]))

    def stem(self, stream: str) -> str:
        """The file name of a stream in this part, without extension: the plain name, else its hash."""
        if stream + ".bin" in self.files:
            return stream
        hashed = stream_file_name(stream)
        if hashed + ".bin" in self.files:
            return hashed
        raise CorruptDataError(f"The part has no file {stream}.bin", name="NO_FILE_IN_DATA_PART")

    def stems(self, name: str, data_type: t.DataType) -> dict[str, str]:
        """Stream -> file name without extension, for each stream of a column. Not to be changed."""
        known = self._stems.get((name, data_type))
        if known is None:
            if self.compact:
                known = dict.fromkeys(self.node(name, data_type).streams(), "data")
            else:
                known = {stream: self.stem(stream) for stream in self._streams(name, data_type)}
            self._stems[name, data_type] = known
        return known

    def data_files(self, name: str, data_type: t.DataType) -> tuple[str, ...]:
        """The `.bin` files of a column."""
        return tuple(dict.fromkeys(stem + ".bin" for stem in self.stems(name, data_type).values()))

    def mark_files(self, name: str, data_type: t.DataType) -> tuple[str, ...]:
        """The mark files of a column."""
        return tuple(dict.fromkeys(stem + self.mark_extension for stem in self.stems(name, data_type).values()))

    def parse_marks(self, file: str, data: Bytes) -> Marks:
        """The marks in a mark file of this part."""
        return parse_marks(file, data, streams=self.mark_pairs, granularity=self.granularity, rows=self.rows)

    @property
    def mark_pairs(self) -> int:
        """Pairs of positions in each record of a mark file."""
        if not self.compact:
            return 1
        if self.mark_extension in (".mrk4", ".cmrk4"):
            return sum(map(len, self.substreams.values()))
        return len(self.columns)

    def compact_span(self, name: str) -> tuple[int, int]:
        """In marks of a Compact part: the column's first pair, and the pair after its last."""
        if name not in self._spans:
            raise error("NO_SUCH_COLUMN_IN_TABLE", f"The part has no column {name}")
        return self._spans[name]


def detect_layout(
    file_names: Collection[str],
    small_files: Mapping[str, bytes],
    columns: Mapping[str, t.DataType],
    *,
    granularity: int = 8192,
    rows: int | None = None,
) -> Layout:
    """The layout of a part with these files. `small_files` holds `serialization.json` and `columns_substreams.txt` if
    the part has them; `columns` is `columns.txt`. `granularity` and `rows` are for parts with `.mrk` marks only.

    Raises CorruptDataError for a part without marks, NOT_IMPLEMENTED for forms that we do not know.
    """
    present = {name.rsplit(".", 1)[-1] for name in file_names if "/" not in name and not name.startswith("skp_idx_")}
    compact = "data.bin" in file_names and any(f"data.{e}" in file_names for e in _COMPACT)
    extensions = [e for e in _EXTENSIONS if e in present and (e in _COMPACT) == compact]
    if not extensions:
        raise CorruptDataError("The part has no mark files", name="NO_FILE_IN_DATA_PART")
    substreams: Mapping[str, tuple[str, ...]] = {}
    extension = extensions[-1]
    mixed = any(t.holds(kind, t.Variant, t.Dynamic, t.Json) for kind in columns.values())
    if "columns_substreams.txt" in small_files and (mixed or extension in {"mrk4", "cmrk4"}):
        substreams = decode_substreams(small_files["columns_substreams.txt"])
    elif extension in {"mrk4", "cmrk4"}:
        raise CorruptDataError("A Compact part lacks columns_substreams.txt", name="NO_FILE_IN_DATA_PART")
    info = decode_serialization(small_files.get("serialization.json"))
    return Layout("." + extension, columns, frozenset(file_names), info, substreams, granularity, rows)


def classic_layout(columns: Mapping[str, t.DataType], file_names: Collection[str]) -> Layout:
    """The layout of a part that `ColumnWriter` wrote."""
    return Layout(".mrk2", columns, frozenset(file_names))
