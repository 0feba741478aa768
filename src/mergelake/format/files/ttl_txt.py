"""`ttl.txt`: when the rows of a part expire.

::

    ttl format version: 1
    {"columns":[{"name":"x","min":…,"max":…,"finished":0}],"table":{"min":…,"max":…,"finished":0},
     "recompression":[{"expression":"d + toIntervalDay(1)","min":…,"max":…,"finished":0}],"group_by":[…],
     "rows_where":[…]}

(on two lines; `moves` comes before `recompression`). A group without elements is left out, and the table's own TTL if
its `min` is 0; a part without any has no file. Elements are in the order of the bytes of their names.

Source: ClickHouse, `MergeTreeDataPartTTLInfos::write`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.base.json_load import loads
from mergelake.core.base.text import double_quote
from mergelake.core.model.ttl import TtlInfo

TTL_FILE = "ttl.txt"
_HEAD = b"ttl format version: 1\n"
_NAMED = ("moves", "recompression", "group_by", "rows_where")


@dataclass(frozen=True, slots=True)
class TtlFile:
    """The contents of a `ttl.txt`."""

    table: TtlInfo = field(default_factory=TtlInfo)
    columns: Mapping[str, TtlInfo] = field(default_factory=dict)
    """By the name of the column."""
    moves: Mapping[str, TtlInfo] = field(default_factory=dict)
    """By the expression, as the following."""
    recompression: Mapping[str, TtlInfo] = field(default_factory=dict)
    group_by: Mapping[str, TtlInfo] = field(default_factory=dict)
    rows_where: Mapping[str, TtlInfo] = field(default_factory=dict)


def encode_ttl(file: TtlFile) -> bytes:
    """The bytes of the file; empty if there is nothing to say."""
    groups = []
    if file.columns:
        groups.append(_group("columns", "name", file.columns))
    if file.table.min:
        groups.append(f'"table":{{{_times(file.table)}}}')
    groups += [_group(name, "expression", getattr(file, name)) for name in _NAMED if getattr(file, name)]
    return _HEAD + f"{{{','.join(groups)}}}".encode() if groups else b""


def _group(name: str, key: str, infos: Mapping[str, TtlInfo]) -> str:
    ordered = sorted(infos.items(), key=lambda item: item[0].encode())
    each = (f'{{"{key}":{double_quote(text)},{_times(info)}}}' for text, info in ordered)
    return f'"{name}":[{",".join(each)}]'


def _times(info: TtlInfo) -> str:
    return f'"min":{info.min},"max":{info.max},"finished":{int(info.finished)}'


def decode_ttl(data: bytes) -> TtlFile:
    """Inverse of `encode_ttl`. Raises CorruptDataError."""
    if not data:
        return TtlFile()
    try:
        if not data.startswith(_HEAD):
            raise ValueError("another version")  # noqa: TRY301
        raw = loads(data[len(_HEAD) :])
        columns = {item["name"]: _info(item) for item in raw.get("columns", ())}
        named = {name: {item["expression"]: _info(item) for item in raw.get(name, ())} for name in _NAMED}
        table = _info(raw["table"]) if "table" in raw else TtlInfo()
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise CorruptDataError("The part's ttl.txt is not readable", found=str(cause)) from cause
    return TtlFile(table, columns, **named)


def _info(raw: Mapping[str, int]) -> TtlInfo:
    return TtlInfo(int(raw["min"]), int(raw["max"]), bool(raw["finished"]))
