"""Numbers of a state that cannot be: negative extents, sizes that do not add up, versions that do not exist. Pure.

What is committed is judged by its writer. These are the states that no writer makes: of a log that was tampered with,
or written by something else.
"""

from __future__ import annotations

from collections.abc import Iterator

from mergelake.core.errors import CorruptDataError, MergelakeError, NotFoundError
from mergelake.core.manifest import PartManifest
from mergelake.log.state import State
from mergelake.store.keys import check_key


def absurd_parts(state: State) -> Iterator[tuple[str, str]]:
    """(part, what is wrong with what the log says of it) of active and detached parts."""
    held = [(part.name, part.manifest) for part in state.parts()]
    held += [(str(part.info), part.manifest) for part in state.detached]
    for name, manifest in held:
        for problem in (*_counts(manifest, state), *_files(manifest)):
            yield name, problem


def absurd_state(state: State) -> Iterator[str]:
    """What is wrong with the table's own numbers."""
    highest = max((part.info.max_block for part in state.parts()), default=0)
    if highest > state.block_counter:
        yield f"block {highest} is used, and only {state.block_counter} have been given"
    if max(state.history, state.fence - 1) > state.version:
        yield f"history begins at version {state.history} and the fence is {state.fence}, of {state.version} versions"
    ahead = [name for name, version in state.tags.items() if not 1 <= version <= state.version]
    ahead += [node for node, lease in state.leases.items() if not 0 <= lease.version <= state.version]
    if ahead:
        yield f"tags or leases of versions that do not exist: {', '.join(ahead)}"


def _counts(manifest: PartManifest, state: State) -> Iterator[str]:
    if manifest.marks > max(manifest.rows, 1):
        yield f"{manifest.rows} rows in {manifest.marks} granules"
    schema = state.schemas.get(manifest.schema_version)
    if schema is None:
        yield f"schema version {manifest.schema_version} is not known"
    elif strange := set(manifest.columns) - {column.id for column in schema.columns}:
        yield f"columns {sorted(strange)} are not in schema version {manifest.schema_version}"
    if manifest.born > state.version:
        yield f"it was begun at version {manifest.born}, which does not exist yet"
    ends = [text for pair in manifest.minmax.values() for text in pair]
    try:
        for text in (manifest.partition, *manifest.key_range, *ends):
            bytes.fromhex(text)
    except (ValueError, TypeError):
        yield "a key, minimum or partition value is not hexadecimal"


def _files(manifest: PartManifest) -> Iterator[str]:
    try:
        files = manifest.file_table().values()
    except (CorruptDataError, NotFoundError) as broken:
        yield str(broken)
        return
    total = 0
    for file in files:
        total += file.size
        held = sum(extent.length for extent in file.extents)
        if held != file.size:
            yield f"{file.name} has {file.size} bytes in extents of {held}"
        for extent in file.extents:
            try:
                check_key(extent.key.removeprefix("/"))
            except MergelakeError:
                yield f"{file.name} lies in '{extent.key}', which is no key"
    if total != manifest.bytes_on_disk:
        yield f"its files have {total} bytes, and it should have {manifest.bytes_on_disk}"
