"""Types of skip indexes: what the text after TYPE means.

| text | what a granule holds |
| --- | --- |
| `minmax` | least and greatest value of each expression |
| `set(n)` | the distinct values, or nothing if there are more than n (0: no limit) |
| `bloom_filter(p)` | a Bloom filter of whole values, false positives about p |
| `tokenbf_v1(bytes, hashes, seed)` | a Bloom filter of words |
| `ngrambf_v1(n, bytes, hashes, seed)` | a Bloom filter of runs of n characters |

Source: ClickHouse, `MergeTreeIndices.cpp`, `MergeTreeIndexSet.cpp`, `MergeTreeIndexBloomFilter.cpp`,
`MergeTreeIndexBloomFilterText.cpp`, `BloomFilterHash.h` (`calculationBestPractices`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mergelake.core.base.errors import error
from mergelake.core.types import types as t

FILTER_BYTES_MAX = 1 << 30
"""Largest Bloom filter that is believed."""
HASHES_MAX = 15
"""Seeds that `bloom_filter` has."""


@dataclass(frozen=True, slots=True)
class MinMax:
    """Least and greatest value."""

    name = "minmax"


@dataclass(frozen=True, slots=True)
class ValueSet:
    """The distinct values (tuples of them, for several expressions)."""

    rows_max: int
    """With more values than this a granule says nothing; 0 is no limit."""
    name = "set"


@dataclass(frozen=True, slots=True)
class Bloom:
    """A Bloom filter of whole values, its size by the number of distinct ones."""

    bits: int
    """Bits for each distinct value."""
    hashes: int
    name = "bloom_filter"


@dataclass(frozen=True, slots=True)
class TextBloom:
    """A Bloom filter of pieces of strings, of one size."""

    ngram: int
    """Characters of a piece; 0: pieces are words."""
    size: int
    """Bytes of a filter."""
    hashes: int
    seed: int

    @property
    def name(self) -> str:
        """As ClickHouse calls it."""
        return "ngrambf_v1" if self.ngram else "tokenbf_v1"


IndexType: TypeAlias = MinMax | ValueSet | Bloom | TextBloom

_LATER = ("text", "vector_similarity", "sparse_grams")
_KNOWN = "bloom_filter, tokenbf_v1, ngrambf_v1, set, minmax"


def parse_index_type(text: str) -> IndexType:
    """The type that `text` (`set(100)`) means.

    Raises INCORRECT_QUERY for an unknown type and for arguments of `set`, BAD_ARGUMENTS or
    NUMBER_OF_ARGUMENTS_DOESNT_MATCH for those of the others, ILLEGAL_INDEX for `hypothesis`, NOT_IMPLEMENTED for types
    that only ClickHouse has.
    """
    match = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if match is None:
        raise error("SYNTAX_ERROR", f"Cannot read the index type '{text}'", "Write it as in bloom_filter(0.01)")
    name = match.group(1)
    arguments = [part.strip() for part in (match.group(2) or "").split(",") if part.strip()]
    match name:
        case "minmax":
            return MinMax()
        case "set":
            return _value_set(arguments)
        case "bloom_filter":
            return _bloom(arguments)
        case "tokenbf_v1" | "ngrambf_v1":
            return _text_bloom(name, arguments)
        case "hypothesis":
            raise error("ILLEGAL_INDEX", "Index of type 'hypothesis' is no longer supported", "Leave it out")
        case _ if name in _LATER:
            raise error("NOT_IMPLEMENTED", f"Indexes of type {name} are not supported yet", f"There are {_KNOWN}")
    raise error("INCORRECT_QUERY", f"Unknown Index type '{name}'. Available index types: {_KNOWN}")


def _value_set(arguments: Sequence[str]) -> ValueSet:
    if len(arguments) != 1:
        raise error("INCORRECT_QUERY", "Set index must have exactly one argument")
    if not arguments[0].isdigit():
        raise error("INCORRECT_QUERY", "Set index argument must be positive integer")
    return ValueSet(int(arguments[0]))


def _bloom(arguments: Sequence[str]) -> Bloom:
    if len(arguments) > 1:
        raise error("NUMBER_OF_ARGUMENTS_DOESNT_MATCH", "BloomFilter index cannot have more than one parameter")
    chance = 0.025
    if arguments:
        # An integer is not a double for ClickHouse: 1 is refused, 1.0 is not.
        if not re.fullmatch(r"(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|\d+[eE][+-]?\d+", arguments[0]):
            raise error("BAD_ARGUMENTS", "The BloomFilter false positive must be a double number between 0 and 1")
        chance = float(arguments[0])
        if not 0 <= chance <= 1:
            raise error("BAD_ARGUMENTS", "The BloomFilter false positive must be a double number between 0 and 1")
    return Bloom(*bloom_shape(chance))


def _text_bloom(name: str, arguments: Sequence[str]) -> TextBloom:
    wanted = 4 if name == "ngrambf_v1" else 3
    if len(arguments) != wanted:
        raise error("BAD_ARGUMENTS", f"`{name[:-3]}` index must have exactly {wanted} arguments")
    if wanted == 4 and arguments[0] == "0":
        raise error("BAD_ARGUMENTS", "ngram length must be at least 1")
    if not all(argument.isdigit() for argument in arguments):
        raise error("BAD_ARGUMENTS", "All parameters to *bf_v1 index must be unsigned integers")
    ngram, size, hashes, seed = (int(argument) for argument in ("0", *arguments)[-4:])
    if size == 0:
        raise error("BAD_ARGUMENTS", "The size of bloom filter cannot be zero")
    if hashes == 0:
        raise error("BAD_ARGUMENTS", "The number of hash functions for bloom filter cannot be zero")
    if size > FILTER_BYTES_MAX:
        raise error("BAD_ARGUMENTS", f"The size of bloom filter cannot be more than {FILTER_BYTES_MAX}")
    if seed >= 1 << 64 or hashes > 1 << 16 or ngram > 1 << 16:
        raise error("BAD_ARGUMENTS", f"The parameters of {name} are too large")
    return TextBloom(ngram, size, hashes, seed)


_BEST = (0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 8, 9, 10, 10, 11, 12, 12, 13)
"""For 1, 2, … bits a value the number of hash functions with the fewest false positives."""


def bloom_shape(chance: float) -> tuple[int, int]:
    """(bits for each value, hash functions) for a chance of false positives.

    >>> bloom_shape(0.025), bloom_shape(0.01)
    ((8, 4), (10, 5))
    """
    if chance >= 0.283:
        return 2, 2
    for bits, best in enumerate(_BEST, 1):
        if best and _chance(bits, best) <= chance:
            for hashes in range(best, 0, -1):
                if _chance(bits, hashes) > chance:
                    return bits, hashes + 1
    return 19, 13


def _chance(bits: int, hashes: int) -> float:
    """False positives of a Bloom filter, rounded as in ClickHouse's table: to three significant digits."""
    exact = 1.0 if bits == 1 else (1 - math.exp(-hashes / bits)) ** hashes
    return float(f"{exact:.3g}")


def check_index_types(kind: IndexType, types: Sequence[t.DataType]) -> None:
    """Refuse expressions of types that the index cannot hold, with ClickHouse's codes."""
    for data_type in types:
        match kind:
            case Bloom() if not _hashable(data_type):
                nested = isinstance(data_type, t.Array) and isinstance(data_type.inner, t.Array)
                name = "BAD_ARGUMENTS" if nested else "ILLEGAL_COLUMN"
                raise error(name, f"Unexpected type {data_type} of bloom filter index")
            case TextBloom() if not _is_text(data_type):
                raise error(
                    "BAD_ARGUMENTS",
                    "Ngram and token bloom filter indexes can only be used with column types `String`, `FixedString`, "
                    "`LowCardinality(String)`, `LowCardinality(FixedString)`, `Array(String)` or `Array(FixedString)`",
                )
            case MinMax() | ValueSet() if isinstance(
                t.inner_type(data_type), (t.Array, t.Tuple, t.BFloat16, *t.UNORDERED)
            ):
                raise error("NOT_IMPLEMENTED", f"A {kind.name} index of type {data_type} is not supported yet")


def _hashable(data_type: t.DataType) -> bool:
    if isinstance(data_type, t.Array):
        return not isinstance(data_type.inner, (t.Nullable, t.Array)) and _hashable(data_type.inner)
    plain = t.inner_type(data_type)
    return isinstance(
        plain,
        (t.Int, t.Bool, t.String, t.FixedString, t.Float, t.Date, t.DateTime, t.DateTime64, t.Enum, t.UUID, t.IPv4,
         t.IPv6),
    )  # fmt: skip


def _is_text(data_type: t.DataType) -> bool:
    if isinstance(data_type, (t.Array, t.LowCardinality)):
        data_type = data_type.inner
    return isinstance(data_type, (t.String, t.FixedString))
