"""Parts on disk for the tests of the byte half: read a column of a part directory, or write and read it in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from mergelake.core.types.types import DataType
from mergelake.format.codecs.codec import CODEC_LZ4, Codec
from mergelake.format.columns.reader import ColumnReader
from mergelake.format.columns.wide import ColumnWriter, stream_files
from mergelake.format.files.columns_txt import decode_columns
from mergelake.format.files.layout import Layout, classic_layout, detect_layout

CLASSIC_SETTINGS = """min_bytes_for_wide_part=0, serialization_info_version='basic',
string_serialization_version='single_stream', propagate_types_serialization_versions_to_nested_types=0,
ratio_of_defaults_for_sparse_serialization=1, compress_marks=0, compress_primary_key=0,
write_marks_for_substreams_in_compact_parts=0, packed_skip_index_max_bytes=0, auto_statistics_types='',
compute_exact_num_defaults_for_sparse_columns=0, use_compact_variant_discriminators_serialization=0"""
"""MergeTree settings with which ClickHouse writes the classic profile."""


def written(
    name: str, data_type: DataType, array: pa.Array, rows: object, codec: Codec = CODEC_LZ4
) -> dict[str, bytes]:
    """The files of one column, from one append."""
    writer = ColumnWriter(name, data_type, codec)
    writer.append(array, np.asarray(rows))
    files = dict.fromkeys(stream_files(name, data_type), b"")
    for file, data in writer.finish():
        files[file] += data
    return files


def reader(name: str, data_type: DataType, files: Mapping[str, bytes], layout: Layout | None = None) -> ColumnReader:
    """A reader over files in memory."""
    layout = layout or classic_layout({name: data_type}, files)
    marks = {file: layout.parse_marks(file, files[file]) for file in layout.mark_files(name, data_type)}
    sizes = {file: len(files[file]) for file in layout.data_files(name, data_type)}
    return ColumnReader(name, data_type, layout, marks, sizes)


def read(column: ColumnReader, files: Mapping[str, bytes], first: int = 0, end: int | None = None) -> pa.Array:
    """Granules [first, end) through exactly the bytes that the reader asks for."""
    end = len(column.granule_rows) if end is None else end
    ranges = column.byte_ranges(first, end)
    found = column.decode(first, end, {file: files[file][start:stop] for file, (start, stop) in ranges.items()})
    found.validate(full=True)
    return found


class PartDirectory:
    """A part that ClickHouse wrote."""

    def __init__(self, path: str, rows: int | None = None, granularity: int = 8192) -> None:
        self.files = {file.name: file.read_bytes() for file in Path(path).iterdir() if file.is_file()}
        self.columns = decode_columns(self.files["columns.txt"])
        self.layout = detect_layout(set(self.files), self.files, self.columns, rows=rows, granularity=granularity)

    def reader(self, name: str) -> ColumnReader:
        """The reader of a column."""
        return reader(name, self.columns[name], self.files, self.layout)
