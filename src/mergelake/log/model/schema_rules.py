"""What a change of a table's schema means for work that began before it. Pure.

Parts are read by the ids of their columns, so nearly everything that was planned with an older schema stays right.
Three things do not: values of columns that parts lack are computed by the newest schema until a merge writes them down,
a merge removes what has expired by the TTL of its time, and ClickHouse's text of a mutation is read with the schema of
its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mergelake.core.model.engines import COMBINING
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.log.model.state import State
from mergelake.log.model.volatile import leaves


def keeps_columns(old: TableSchema, new: TableSchema) -> bool:
    """Whether every column of `old` is one of `new` with the same type and default: columns were only added.

    Also those that are not stored: defaults may read them.
    """
    kept = {(c.id, c.name, c.type, c.changes, c.default_kind, c.default) for c in new.columns}
    return all((c.id, c.name, c.type, c.changes, c.default_kind, c.default) in kept for c in old.columns)


def outdated_default(state: State, part: PartManifest, sources: Iterable[PartManifest]) -> bool:
    """Whether a part merged of `sources` holds values that are others by now: of columns that a source lacks.

    Or those that an engine has computed from several rows, in the types of before.
    """
    if part.schema_version == state.schema_version or part.schema_version not in state.schemas:
        return False
    held = set(part.columns)
    if all(held <= set(source.columns) for source in sources) and state.schema.engine not in COMBINING:
        return False
    return not keeps_columns(state.schemas[part.schema_version], state.schemas[state.schema_version])


def outdated_ttl(state: State, part: PartManifest) -> bool:
    """Whether a merge may have removed rows or values by a TTL that is another one by now."""
    if part.schema_version == state.schema_version or part.schema_version not in state.schemas:
        return False
    old, new = _ttls(state.schemas[part.schema_version]), _ttls(state.schemas[state.schema_version])
    return bool(old) and old != new


def _ttls(schema: TableSchema) -> list[tuple[int, str]]:
    """The TTL of the table, and those of columns by their ids."""
    return [*((-1, text) for text in schema.ttl), *((c.id, c.ttl) for c in schema.columns if c.ttl)]


def outdated_merges(state: State, after: TableSchema) -> Iterator[str]:
    """Ids of the Live volatile parts that hold, or will hold, values of columns that `after` computes otherwise."""
    for partition_id, held in state.volatile.items():
        parts = state.partitions.get(partition_id, ())
        for volatile in held:
            schema = state.schemas[volatile.recipe.schema_version]
            ids = {column.id for column in schema.stored}
            whole = all(ids <= set(part.manifest.columns) for part in leaves(parts, volatile.info))
            if not (whole and schema.engine not in COMBINING) and not keeps_columns(schema, after):
                yield volatile.id
