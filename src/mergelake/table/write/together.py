"""Encodes all small parts of an insert together, so that the number of calls does not grow with the parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.engines.order.keys import TableKeys
from mergelake.format.codecs.codec import parse_codec
from mergelake.format.columns.many import Encoded, encode_keys, encode_parts
from mergelake.format.files.columns_txt import encode_columns
from mergelake.format.files.extremes import extremes_each
from mergelake.format.files.profile import Profile
from mergelake.parts.read.default_codec import default_codec


@dataclass(frozen=True, slots=True)
class Together:
    """The encoded columns of one part."""

    encoded: Encoded
    sorting: list[pa.Array]
    """Values of the sorting key."""


def encode_together(
    blocks: Sequence[pa.Table], schema: TableSchema, keys: TableKeys, settings: TableSettings
) -> list[Together] | None:
    """The result for each of the sorted blocks that become parts; None if there is only one, or they are too large."""
    rows = np.array([block.num_rows for block in blocks], np.int64)
    if len(blocks) < 2 or rows.max() > settings.integer("index_granularity"):
        return None
    rows_together = pa.concat_tables(blocks).combine_chunks()
    if rows_together.nbytes > settings.integer("max_shared_object_bytes"):
        return None
    ends, profile = np.cumsum(rows), Profile(settings.text("part_profile") == "modern", compact=False)
    block_max = min(map(settings.integer, ("min_compress_block_size", "max_compress_block_size")))
    default = default_codec(settings)
    columns = {}
    for column in schema.stored:
        codec = parse_codec(column.codec, default)
        array = rows_together.column(column.name).chunk(0)
        encoded_files = encode_parts(column.name, column.type, codec, array, ends, profile, block_max=block_max)
        if encoded_files is not None:
            columns[column.name] = encoded_files
    sorting = [key.values(rows_together) for key in keys.sorting]
    sources = keys.partition_sources
    minmax = [extremes_each(source.evaluate(rows_together), source.type, ends) for source in sources]
    listed = encode_columns({column.name: column.type for column in schema.stored})
    types = [key.type for key in keys.sorting[: keys.primary_length]]
    out = []
    for at, ends_of_key in enumerate(encode_keys(sorting[: len(types)], types, ends)):
        begin, count = int(ends[at] - rows[at]), int(rows[at])
        encoded = Encoded(
            ends_of_key,
            {name: files[at] for name, files in columns.items()},
            {source.text: each[at] for source, each in zip(sources, minmax, strict=True)},
            listed,
        )
        out.append(Together(encoded, [array.slice(begin, count) for array in sorting]))
    return out
