"""ALTER TABLE … MODIFY SETTING: one entry with the table's schema, with other settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from mergelake.core.errors import error
from mergelake.core.settings import TableSettings, is_table_setting
from mergelake.log.operations import AlterMetadata, TableOp
from mergelake.log.state import State
from mergelake.table.handle import TableHandle

READONLY = ("index_granularity", "index_granularity_bytes", "enable_mixed_granularity_parts")
"""Settings that parts rely on. Source: ClickHouse, `MergeTreeSettings::isReadonlySetting`."""


def modify_settings(
    handle: TableHandle, changes: Mapping[str, str | int | float | bool], reset: Collection[str] = ()
) -> int:
    """Change settings, or set them to their defaults (`reset`); returns the version that has them.

    Raises UNKNOWN_SETTING, READONLY_SETTING, and BAD_ARGUMENTS for an invalid value.
    """
    from mergelake.table.define import check_schema  # loads kernels that opening a table does not need

    new_texts = TableSettings(changes).as_text()
    for name in reset:
        if not is_table_setting(name):
            message = f"Cannot reset setting '{name}' because it doesn't exist for MergeTree engines family"
            raise error("BAD_ARGUMENTS", message)
    for name in (*new_texts, *reset):
        if name in READONLY:
            message = f"Setting '{name}' is readonly for storage '{handle.schema.engine}'"
            raise error("READONLY_SETTING", message, "Create another table, and insert into it")

    def build(state: State) -> Sequence[TableOp]:
        old = state.schema.settings
        settings = {name: text for name, text in {**old, **new_texts}.items() if name not in reset}
        if settings == dict(old):
            return ()
        schema = check_schema(state.schema.with_settings(settings))
        return (AlterMetadata(replace(schema, version=state.schema_version + 1)),)

    return handle.log.commit(build).version
