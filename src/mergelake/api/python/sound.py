"""Reading a table without its broken parts, with the setting `skip_broken_parts`.

A part is broken if an object of it is missing, or if any byte is damaged. Every part is verified completely before the
first row is read: so a query sees all rows of a part or none, regardless of what it reads. Parts are immutable, so each
is verified once in a process; later damage is an error, as without the setting.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from mergelake.api.python.environment import Environment
from mergelake.log.model.part_map import Partitions
from mergelake.log.model.parts import ActivePart
from mergelake.parts.tools.verify import check_part
from mergelake.scan.read.source import open_part
from mergelake.store.cache.cached import beneath
from mergelake.table.handle.handle import TableHandle
from mergelake.table.handle.snapshot import Snapshot

_logger = logging.getLogger("mergelake.lake")


def without_broken(handle: TableHandle, snapshot: Snapshot, env: Environment) -> Snapshot:
    """The snapshot without its broken parts, each of which is logged."""
    sound: dict[str, list[ActivePart]] = {}
    for part in snapshot.parts:
        manifest = part.manifest
        if manifest.id not in env.sound:
            reader = open_part(beneath(handle.store), handle.directory, manifest, snapshot.schema, None)
            problems = check_part(reader)
            if problems:
                message = "skip_broken_parts: part %s of %s is left out, %d rows: %s"
                _logger.warning(message, part.name, handle.directory, manifest.rows, problems[0])
                continue
            env.sound.add(manifest.id)
        sound.setdefault(part.info.partition_id, []).append(part)
    return replace(snapshot, partitions=Partitions.of(sound))
