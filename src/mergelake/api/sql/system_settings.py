"""`system.settings` and `system.merge_tree_settings`: ClickHouse's own rows, with the values that hold here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mergelake.api.sql.settings import OWN_SETTINGS
from mergelake.core.model.accepted_settings import ACCEPTED, REFUSED
from mergelake.core.model.settings import TABLE_SETTINGS
from mergelake.query.embedded import engine
from mergelake.query.statement.settings import Kind, in_force, kind_of, plain_value

if TYPE_CHECKING:
    from mergelake.api.sql.session import Session

COLUMNS: Mapping[str, str] = {
    "name": "String", "value": "String", "changed": "UInt8", "description": "String", "readonly": "UInt8",
    "type": "String", "default": "String", "alias_for": "String", "is_obsolete": "UInt8", "handling": "String",
}  # fmt: skip
"""ClickHouse's columns, and `handling`: how the setting is handled here."""
TABLE_COLUMNS: Mapping[str, str] = {name: kind for name, kind in COLUMNS.items() if name != "alias_for"}
_SESSION_OF_OURS = ("output_format_arrow_compression_method", "output_format_arrow_low_cardinality_as_dictionary")


def settings(db: Session) -> Iterator[tuple[Any, ...]]:
    """Every setting of a statement: the value in force, and how it is handled here."""
    held = {name: plain_value(literal) for name, literal in db.settings.items()}
    for name, own in OWN_SETTINGS.items():
        default = plain_value(own.default)
        yield name, held.get(name, default), int(name in held), own.description, 0, "String", default, "", 0, "own"
    names = "name, value, description, readonly, type, default, alias_for, is_obsolete"
    text = f"SELECT {names} FROM system.settings ORDER BY name"
    for row in engine.run(text, settings=db.engine_settings()).table().to_pylist():
        name, kind = row["name"], kind_of(row["name"])
        value = row["value"]
        if kind in (Kind.HONOURED, Kind.REFUSED):
            forced = in_force(name)
            value = held.get(name, row["default"] if forced is None else forced)
        elif name in _SESSION_OF_OURS and name not in held:
            value = row["default"]
        yield (
            name, value, int(name in held), row["description"], row["readonly"], row["type"], row["default"],
            row["alias_for"], row["is_obsolete"], "unknown" if kind is None else kind.value,
        )  # fmt: skip


def merge_tree_settings(_: Session) -> Iterator[tuple[Any, ...]]:
    """Every setting of a table: its default here, and how it is handled."""
    names = "name, value, description, type, is_obsolete"
    rows = engine.run(f"SELECT {names} FROM system.merge_tree_settings ORDER BY name").table().to_pylist()
    theirs = {row["name"]: row for row in rows}
    for name, setting in TABLE_SETTINGS.items():
        default = str(int(setting.default) if isinstance(setting.default, bool) else setting.default)
        kind = theirs.get(name, {}).get("type") or {int: "UInt64", float: "Float"}.get(type(setting.default), "String")
        handling = "accepted" if setting.description.startswith("Accepted") else "honoured"
        yield name, default, 0, setting.description, 0, kind, default, 0, handling if name in theirs else "own"
    for name, row in theirs.items():
        if name in REFUSED:
            value, handling = REFUSED[name][0], "refused"
        elif name in ACCEPTED:
            value, handling = row["value"], "accepted"
        elif name in TABLE_SETTINGS:
            continue
        else:
            value, handling = row["value"], "unknown"
        yield name, value, 0, row["description"], 0, row["type"], value, row["is_obsolete"], handling
