"""Impossible numbers in a state: negative extents, sizes that do not add up, versions that do not exist. Pure.

Writers check what they commit, so such a state comes from a log that was tampered with, or written by another program.
"""

from __future__ import annotations

from collections.abc import Iterator

from mergelake.core.base.errors import CorruptDataError, MergelakeError, NotFoundError
from mergelake.core.model.manifest import PartManifest, file_rows
from mergelake.log.model.state import State
from mergelake.store.interface.keys import check_key


def absurd_part(manifest: PartManifest, state: State) -> Iterator[str]:
    """Impossible metadata of a part, apart from its files."""
    if manifest.marks > max(manifest.rows, 1):
        yield f"{manifest.rows} rows in {manifest.marks} granules"
    schema = state.schemas.get(manifest.schema_version)
    if schema is None:
        yield f"schema version {manifest.schema_version} is not known"
    elif unknown := set(manifest.columns) - {column.id for column in schema.columns}:
        yield f"columns {sorted(unknown)} are not in schema version {manifest.schema_version}"
    if manifest.base_version > state.version:
        yield f"it was begun at version {manifest.base_version}, which does not exist yet"
    ends = [text for pair in manifest.minmax.values() for text in pair]
    try:
        for text in (manifest.partition, *manifest.key_range, *ends):
            bytes.fromhex(text)
    except (ValueError, TypeError):
        yield "a key, minimum or partition value is not hexadecimal"


def look_at_files(manifest: PartManifest) -> tuple[list[str], dict[str, int]]:
    """Problems of the file table of a part, and the bytes that each of its objects must have, by key."""
    try:
        keys, rows = file_rows(manifest.files.text)
    except (CorruptDataError, NotFoundError) as broken:
        return [str(broken)], {}
    problems = []
    total, ends = 0, [0] * len(keys)
    for name, size, _, _, _, *places in rows:
        total += size
        if (in_extents := sum(places[2::3])) != size:
            problems.append(f"{name} has {size} bytes in extents of {in_extents}")
        for key, offset, length in zip(places[::3], places[1::3], places[2::3], strict=True):
            ends[key] = max(ends[key], offset + length)
    for key in keys:
        try:
            check_key(key.removeprefix("/"))
        except MergelakeError:
            problems.append(f"files lie in '{key}', which is no key")
    if total != manifest.bytes_on_disk:
        problems.append(f"its files have {total} bytes, and it should have {manifest.bytes_on_disk}")
    return problems, dict(zip(keys, ends, strict=True))


def absurd_state(state: State) -> Iterator[str]:
    """Impossible numbers of the table itself."""
    highest = max((part.info.max_block for part in state.parts()), default=0)
    if highest > state.block_counter:
        yield f"block {highest} is used, and only {state.block_counter} have been given"
    if max(state.history, state.fence - 1) > state.version:
        yield f"history begins at version {state.history} and the fence is {state.fence}, of {state.version} versions"
    ahead = [name for name, version in state.tags.items() if not 1 <= version <= state.version]
    ahead += [node for node, lease in state.leases.items() if not 0 <= lease.version <= state.version]
    if ahead:
        yield f"tags or leases of versions that do not exist: {', '.join(ahead)}"
