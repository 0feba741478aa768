"""MODIFY SETTING and RESET SETTING."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mergelake.core.base.errors import error
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings, is_table_setting

READONLY = ("index_granularity", "index_granularity_bytes", "enable_mixed_granularity_parts")
"""Settings that parts rely on. Source: ClickHouse, `MergeTreeSettings::isReadonlySetting`."""


@dataclass(frozen=True, slots=True)
class ModifySettings:
    """MODIFY SETTING a = 1, …: settings get new values."""

    changes: Mapping[str, str | int | float | bool]

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises UNKNOWN_SETTING, READONLY_SETTING, and the errors of an invalid value."""
        texts = TableSettings(self.changes).as_text()
        _check_writable(texts, schema)
        return schema.with_settings({**schema.settings, **texts})


@dataclass(frozen=True, slots=True)
class ResetSettings:
    """RESET SETTING a, …: settings get their defaults."""

    names: tuple[str, ...]

    def applied(self, schema: TableSchema) -> TableSchema:
        """Raises BAD_ARGUMENTS for an unknown name, and READONLY_SETTING."""
        for name in self.names:
            if not is_table_setting(name):
                message = f"Cannot reset setting '{name}' because it doesn't exist for MergeTree engines family"
                raise error("BAD_ARGUMENTS", message)
        _check_writable(self.names, schema)
        return schema.with_settings({name: text for name, text in schema.settings.items() if name not in self.names})


def _check_writable(names: Mapping[str, str] | tuple[str, ...], schema: TableSchema) -> None:
    for name in names:
        if name in READONLY:
            message = f"Setting '{name}' is readonly for storage '{schema.engine}'"
            raise error("READONLY_SETTING", message, "Create another table, and insert into it")
