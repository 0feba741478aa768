"""What an INSERT leaves in a new table with a key `k`: in ClickHouse, and here."""

from __future__ import annotations

from collections.abc import Sequence

import mergelake
from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.storage import to_storage
from mergelake.core.types import types as t
from mergelake.format.serializations.values import decode_values
from mergelake.query.embedded.engine import translate
from tests.helpers.oracle import oracle


def held_by_clickhouse(columns: str, kinds: Sequence[t.DataType], data: str, count: int) -> list[str] | str:
    """What ClickHouse holds, a text for each column, or the name of its error; `data` is what follows the table."""
    session = oracle()
    try:
        session.query("SET allow_suspicious_low_cardinality_types = 1, session_timezone = 'UTC'")
        session.query("DROP TABLE IF EXISTS inserted")
        session.query(f"CREATE TABLE inserted {columns} ENGINE = MergeTree ORDER BY k")
        session.query(f"INSERT INTO inserted {data}")
        raw = session.query("SELECT * FROM inserted ORDER BY k", "RowBinary").bytes()
    except Exception as failure:
        return translate(str(failure)).name
    return [repr(column.to_pylist()) for column in decode_values(raw, kinds, count)]


def shown_by_clickhouse(format_name: str) -> str:
    """The rows that `held_by_clickhouse` left, as text in a format."""
    return str(oracle().query("SELECT * FROM inserted ORDER BY k", format_name))


def shown_here(format_name: str) -> str:
    """The rows that `held_here` left, likewise."""
    return mergelake.connect("memory://inserted").sql("SELECT * FROM inserted ORDER BY k").text(format_name)


def held_here(
    columns: str, kinds: Sequence[t.DataType], data: str, *, external: bool = False
) -> list[str] | MergelakeError:
    """The same here; `external`: files may be read."""
    db = mergelake.connect("memory://inserted", allow_external_access=external)
    db.sql("DROP TABLE IF EXISTS inserted")
    db.sql(f"CREATE TABLE inserted {columns} ENGINE = MergeTree ORDER BY k")
    try:
        db.sql(f"INSERT INTO inserted {data}")
    except MergelakeError as failure:
        return failure
    table = db.table("inserted").scan().arrow().sort_by("k")
    return [repr(to_storage(table[i], kind).to_pylist()) for i, kind in enumerate(kinds)]
