"""`source_parts.dat` of a patch part: which parts ClickHouse read when a lightweight UPDATE or DELETE wrote it.

u8 format; in format 1 the table's sorting key; u64 number of parts; for each its name, and the least and the greatest
version (u64) of the values that the patch part has for it. ClickHouse's builds write the sorting key in three ways: as
one text, as a list of texts, as its number of expressions. Nothing tells which, but only one of them fits the file.

Source: ClickHouse, `src/Storages/MergeTree/PatchParts/SourcePartsSetForPatch.cpp`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mergelake.core.base.errors import CorruptDataError, error
from mergelake.core.model.names import PartInfo
from mergelake.core.types.varuint import read_varuint

SOURCE_PARTS = "source_parts.dat"


@dataclass(frozen=True, slots=True)
class SourceParts:
    """The parts that a patch part changes."""

    of_rows: bool
    """Whether rows are those of the named parts only (format 0, sorted by part and offset)."""
    sorting_key: tuple[str, ...]
    """Texts of the sorting key of format 1, as far as the file has them."""
    versions: Mapping[PartInfo, tuple[int, int]]
    """The least and the greatest version of the values for each part."""

    def concern(self, part: PartInfo) -> bool:
        """Whether the patch part has newer values for `part`: for it, or for parts from which it was made."""
        return any(newest > part.data_version and part.covers(info) for info, (_, newest) in self.versions.items())


def decode_source_parts(data: bytes) -> SourceParts:
    """The content of the file. `CorruptDataError` for invalid bytes, NOT_IMPLEMENTED for an unknown format."""
    if not data:
        raise CorruptDataError("The list of source parts is empty", offset=0)
    if data[0] > 1:
        raise error(
            "NOT_IMPLEMENTED",
            f"Patch parts of format {data[0]} are not supported",
            "Let ClickHouse write them into the parts: ALTER TABLE … APPLY PATCHES",
        )
    problems = []
    for read_key in _KEYS if data[0] else [_no_key]:
        try:
            key, at = read_key(data, 1)
            return SourceParts(not data[0], key, _versions(data, at))
        except CorruptDataError as problem:
            problems.append(problem)
    raise problems[0]


def _no_key(_: bytes, at: int) -> tuple[tuple[str, ...], int]:
    return (), at


def _one_text(data: bytes, at: int) -> tuple[tuple[str, ...], int]:
    text, at = _text(data, at)
    return (text,), at


def _list_of_texts(data: bytes, at: int) -> tuple[tuple[str, ...], int]:
    count, at = read_varuint(data, at)
    texts = []
    for _ in range(min(count, len(data))):
        text, at = _text(data, at)
        texts.append(text)
    return tuple(texts), at


def _count_of_expressions(data: bytes, at: int) -> tuple[tuple[str, ...], int]:
    _, at = _numbers(data, at, 1)
    return (), at


_KEYS: list[Callable[[bytes, int], tuple[tuple[str, ...], int]]] = [_one_text, _list_of_texts, _count_of_expressions]


def _versions(data: bytes, at: int) -> dict[PartInfo, tuple[int, int]]:
    (count,), at = _numbers(data, at, 1)
    out: dict[PartInfo, tuple[int, int]] = {}
    for _ in range(min(count, len(data))):
        start = at
        name, at = _text(data, at)
        (least, greatest), at = _numbers(data, at, 2)
        info = PartInfo.try_parse(name)
        if info is None or least > greatest:
            raise CorruptDataError("A source part has no valid name or versions", offset=start, found=name[:100])
        out[info] = (least, greatest)
    if len(out) != count or at != len(data):
        raise CorruptDataError(
            "The list of source parts has another length", offset=at, expected=f"{count} parts", found=f"{len(out)}"
        )
    return out


def _text(data: bytes, at: int) -> tuple[str, int]:
    size, at = read_varuint(data, at)
    if at + size > len(data):
        raise CorruptDataError("A text of the list of source parts is cut", offset=at)
    try:
        return data[at : at + size].decode(), at + size
    except UnicodeDecodeError:
        raise CorruptDataError("A text of the list of source parts is not UTF-8", offset=at) from None


def _numbers(data: bytes, at: int, count: int) -> tuple[tuple[int, ...], int]:
    if at + 8 * count > len(data):
        raise CorruptDataError("The list of source parts is cut", offset=at)
    return struct.unpack_from(f"<{count}Q", data, at), at + 8 * count
