"""ALTER TABLE … MODIFY SETTING a = 1, … and RESET SETTING a, …."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mergelake.api.sql import statements as s
from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.ddl import settings_list
from mergelake.table.definition.command import SchemaCommand
from mergelake.table.definition.settings import ModifySettings, ResetSettings


def _modify(cursor: Cursor, name: s.Name) -> ModifySettings:
    return ModifySettings(settings_list(cursor))


def _reset(cursor: Cursor, name: s.Name) -> ResetSettings:
    names = [cursor.identifier("the name of a setting")]
    while cursor.at(",") and cursor.peek(1).is_name:
        cursor.next()
        names.append(cursor.identifier("the name of a setting"))
    return ResetSettings(tuple(names))


COMMANDS: Mapping[str, Callable[[Cursor, s.Name], SchemaCommand]] = {"MODIFY SETTING": _modify, "RESET SETTING": _reset}
