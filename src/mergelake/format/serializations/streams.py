"""Names of the streams of a column, and which of them it shares with others.

Walk down the type from the escaped column name: Nullable adds the stream `.null`, an Array at depth d `.size<d>`,
a Tuple element `%2E<name>`, LowCardinality the stream `.dict`, a String with size stream `.size`. A column whose name
holds a dot shares its outermost sizes with its siblings: `nest.a` and `nest.b` both use `nest.size0`.

Source: ClickHouse, `src/DataTypes/Serializations/ISerialization.cpp` (`getFileNameForStream`).
"""

from __future__ import annotations

from mergelake.core.types import types as t
from mergelake.format.serializations.names import escape_for_file_name


def shared_sizes_stream(name: str, data_type: t.DataType) -> str | None:
    """The stream of array sizes that column `name` shares with its Nested siblings, or None.

    >>> shared_sizes_stream("nest.a", t.Array(t.STRING))
    'nest.size0'
    """
    dot = name.find(".", 1)
    if dot > 0 and isinstance(data_type, (t.Array, t.Map)):
        return escape_for_file_name(name[:dot]) + ".size0"
    return None
