"""Checks the PROJECTION declarations of a table, for `table.definition.define`.

Source: ClickHouse, `ProjectionsDescription.cpp`, `MergeTreeData::checkProperties`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.model.schema import Projection, TableSchema
from mergelake.core.model.settings import TableSettings

MODE = "deduplicate_merge_projection_mode"
LIGHTWEIGHT_MODE = "lightweight_mutation_projection_mode"
_MODES = ("rebuild", "throw", "drop", "ignore")
_LIGHTWEIGHT_MODES = ("throw", "drop", "rebuild")
PROJECTIONS_MAX = 25
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def check_mode(schema: TableSchema) -> None:
    """Refuse projections where merges remove or combine rows, unless a setting says what becomes of them then."""
    mode = projection_mode(schema)
    if mode not in _MODES:
        raise error("BAD_ARGUMENTS", f"Unexpected value of {MODE}: '{mode}'", f"It is one of {', '.join(_MODES)}")
    lightweight = lightweight_mode(schema)
    if lightweight not in _LIGHTWEIGHT_MODES:
        hint = f"It is one of {', '.join(_LIGHTWEIGHT_MODES)}"
        raise error("BAD_ARGUMENTS", f"Unexpected value of {LIGHTWEIGHT_MODE}: '{lightweight}'", hint)
    if not schema.projections:
        return
    if len(schema.projections) > PROJECTIONS_MAX:
        message = f"Maximum limit of {PROJECTIONS_MAX} projection(s) exceeded"
        raise error("LIMIT_EXCEEDED", message)
    if mode == "ignore":
        message = f"{MODE} = 'ignore' keeps projections that no longer fit the rows"
        raise error("NOT_IMPLEMENTED", message, "Set it to 'drop' or 'rebuild'")
    if schema.engine != "MergeTree" and mode == "throw":
        message = f"Projections are not supported for {schema.engine} with {MODE} = throw"
        raise error("SUPPORT_IS_DISABLED", message, f"Set {MODE} to 'drop' or 'rebuild'")


def projection_mode(schema: TableSchema) -> str:
    """`deduplicate_merge_projection_mode`: what a merge that removes rows does with projections."""
    return TableSettings(schema.settings).text(MODE)


def lightweight_mode(schema: TableSchema) -> str:
    """`lightweight_mutation_projection_mode`: what a lightweight DELETE does with projections."""
    return TableSettings(schema.settings).text(LIGHTWEIGHT_MODE)


@contextmanager
def projection_errors(projection: Projection) -> Iterator[None]:
    """Errors name the projection. NOT_IMPLEMENTED for a name that is no plain word, as it names a directory."""
    try:
        if not _NAME.fullmatch(projection.name):
            raise error("NOT_IMPLEMENTED", "The name of a projection is one word of letters, digits and _")
        yield
    except MergelakeError as refused:
        refused.message = f"{refused.message}: in projection {projection.name}"
        raise
