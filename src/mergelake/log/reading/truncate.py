"""Deletes the beginning of a log that no reader needs any more. Two steps, with a grace period between them.

::

    checkpoints   64      128      192      256          retire_checkpoints(before=200) keeps 192 and
                  (empty) (empty)                         empties those before it
    entries       1 … 64 … 128 … 191 192 193 … 256 257    truncate(192), much later, deletes 1 … 191

1. `retire_checkpoints` finds the newest checkpoint that is not after the oldest version that is kept, reads it back
   (its digest and its state hash are compared), and **empties** those before it: no reader begins there any more.
2. After `head_freshness.GRACE_MIN_S` seconds, every reader that had begun there has finished, or no longer believes
   what it read: `truncate` deletes the entries before the checkpoint.

An emptied checkpoint stays as an empty object, because a checkpoint is created only where there is none: so a writer
that slept cannot restore it. Both steps may be repeated, and may be interrupted anywhere.

Some checkpoints *after* the oldest kept version are emptied too, so that the checkpoints of a large table do not take
many times the space of its entries (`is_kept`): near the head all stay, further back fewer and fewer, down to one for
as many entries as have its bytes. A reader of an old version then begins further back. Collectors that sleep at any
point do no harm, though no process waits for them:

- Whether a checkpoint is kept depends only on its version, its size and the head, and one that is not kept is never
  kept later. The log is cut at one that is kept, so never at one that a collector with an older state wants to empty.
- A collector with a newer state knows that history has passed that checkpoint: it empties those after its history, and
  those before the checkpoint at which it cuts itself.

Members in the intake for positions that were taken long ago are deleted with the cut (`intake`).

So are segments of checkpoints: those written for a checkpoint before the cut that no checkpoint after it names. A
writer names a segment only if it has written it itself, or if the newest checkpoint names it; and it creates no
checkpoint once its knowledge is older than `head_freshness.HEAD_FRESHNESS_S`. So a deleted segment is never named
again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mergelake.core.base.errors import CorruptDataError, InternalError
from mergelake.log.reading.tail import LogReader
from mergelake.log.storage.segment import written_for
from mergelake.store.interface.protocol import Store

ENTRY_BYTES = 4096
"""Assumed size of an entry: checkpoints further apart than their size in entries would save nothing."""
DENSITY = 8
"""Approximate number of checkpoints between a distance from the head and twice that distance."""


def is_kept(version: int, size: int, head: int) -> bool:
    """Whether the checkpoint of a version, of `size` bytes, is kept while versions around it are.

    >>> [version for version in range(64, 2561, 64) if is_kept(version, 1 << 20, 2560)]
    [256, 512, 768, 1024, 1280, 1536, 1664, 1792, 1920, 2048, 2112, 2176, 2240, 2304, 2368, 2432, 2496, 2560]
    """
    apart = min((head - version) // DENSITY, size // ENTRY_BYTES)
    return version & -version >= apart


def retire_checkpoints(store: Store, reader: LogReader[Any], before: int, head: int, history: int) -> int:
    """Empty the checkpoints that versions from `before` on do not need; returns the version of the oldest one left.

    `head` and `history` are those of one committed state: after `history`, checkpoints that are not `is_kept` are
    emptied too.

    Returns 0 if there is no sound checkpoint: nothing may be truncated. One LIST, the GETs of one checkpoint and of the
    hint, which is corrected, and one PUT for each that is emptied.
    """
    checkpoints = [(version, size) for version, size in reader.checkpoints() if size]
    standing = [version for version, size in checkpoints if version <= before and is_kept(version, size, head)]
    while standing and not reader.sound(standing[-1]):
        standing.pop()  # damaged: the entries from the checkpoint before it on are needed
    base = standing[-1] if standing else 0
    thinned = [v for v, size in checkpoints if v > max(before, history) and not is_kept(v, size, head)]
    hint = reader.hint() if base or thinned else 0
    if hint < base:
        # Without a hint a reader would begin at the first entry.
        store.put(reader.hint_key, json.dumps({"version": base}).encode())
    for version in (*(v for v, _ in checkpoints if v < base), *(v for v in thinned if v < hint)):
        store.put(reader.checkpoint_key(version), b"")
    return base


def truncate(reader: LogReader[Any], base: int, history: int, sweep: bool) -> int:
    """Delete the entries before checkpoint `base`, which `retire_checkpoints` gave at least a grace period ago.

    With `sweep`, segments are deleted too: then no process may read an older version, as a state in memory refers to
    file tables in them. `history` is the oldest version that the newest state keeps (`AdvanceGcHorizon`). Returns how
    many entries were deleted: 0 if another collector has cut the log further on and retired this checkpoint, or if
    there is an older checkpoint (again), of a late writer, from which a reader may begin: it has to be retired first.
    Raises CorruptDataError if the checkpoint cannot be read.
    """
    if base > history:
        raise InternalError(f"Version {history} is kept: entries up to {base} must stay")
    whole = reader.sound(base)
    listed, segments = reader.beside_entries()  # listed last: another collector may retire this one too, at any time
    sizes = dict(listed)
    if sizes.get(base) == 0 or any(size and version < base for version, size in sizes.items()):
        return 0
    if not whole:
        raise CorruptDataError("The log cannot be cut at a damaged checkpoint", object_key=reader.checkpoint_key(base))
    gone = reader.backend.truncate(base)
    reader.sweep_intake(history)
    if sweep:
        _swept(reader, [version for version, size in listed if size], segments, base)
    return gone


def _swept(reader: LogReader[Any], standing: Sequence[int], segments: Sequence[str], base: int) -> None:
    """Delete those of `segments` that were written for a checkpoint before `base` and that no checkpoint names.

    One GET for each checkpoint in `standing`, if there are such segments. Deletes nothing if one of them cannot be
    read, since the segments it names are unknown, or was emptied since the listing, since newer checkpoints may name
    its segments.
    """
    old = [name for name in segments if written_for(name) < base]
    named: set[str] = set()
    for version in standing if old else ():
        try:
            layout = reader.layout(version)
        except CorruptDataError:
            return
        if layout is None:
            return
        named.update(layout.names)
    if unnamed := [name for name in old if name not in named]:
        reader.segments.delete(unnamed)
