"""Reading a table without its broken parts, where a setting asks for it (`skip_broken_parts`).

A part is broken if an object of it is lost, or if any byte is not what was written. Every part is verified as a whole
before the first row is read: so all rows of a part are there or none, whatever the query needs of it. Parts never
change, so each is verified once in a process; what breaks later is an error, as it is without the setting.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from mergelake.lake.environment import Environment
from mergelake.log.part_map import Partitions
from mergelake.log.state import ActivePart
from mergelake.parts.verify import check_part
from mergelake.scan.source import open_part
from mergelake.store.cached import beneath
from mergelake.table.handle import Snapshot, TableHandle

_logger = logging.getLogger("mergelake.lake")


def without_broken(handle: TableHandle, snapshot: Snapshot, env: Environment) -> Snapshot:
    """The snapshot without its broken parts, each of which is told to the log."""
    sound: dict[str, list[ActivePart]] = {}
    for part in snapshot.parts:
        manifest = part.manifest
        if manifest.id not in env.sound:
            reader = open_part(beneath(handle.store), handle.directory, manifest, snapshot.schema, None)
            problems = check_part(reader)
            if problems:
                told = "skip_broken_parts: part %s of %s is left out, %d rows: %s"
                _logger.warning(told, part.name, handle.directory, manifest.rows, problems[0])
                continue
            env.sound.add(manifest.id)
        sound.setdefault(part.info.partition_id, []).append(part)
    return replace(snapshot, partitions=Partitions.of(sound))
