"""The one door to skip indexes: a builder for a type of index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mergelake.core.types.types import DataType
from mergelake.format.indexes.skip_bloom import BloomBuilder
from mergelake.format.indexes.skip_builder import GranuleBuilder
from mergelake.format.indexes.skip_minmax import MinMaxBuilder
from mergelake.format.indexes.skip_set import SetBuilder
from mergelake.format.indexes.skip_text import TextBuilder
from mergelake.format.indexes.skip_types import Bloom, IndexType, MinMax, TextBloom, ValueSet


def granule_builder(kind: IndexType, types: Sequence[DataType], granularity: int) -> GranuleBuilder[Any]:
    """Builds the granules of an index over expressions of these types, GRANULARITY granules of the part each."""
    match kind:
        case MinMax():
            return MinMaxBuilder(types, granularity)
        case ValueSet():
            return SetBuilder(kind, types, granularity)
        case Bloom():
            return BloomBuilder(kind, types, granularity)
        case TextBloom():
            return TextBuilder(kind, granularity)
