"""Cutting the beginning off a log that nobody needs any more. Two steps, with a grace period between them.

::

    checkpoints   64      128      192      256          retire_checkpoints(before=200) keeps 192 and
                  (empty) (empty)                         empties those before it
    entries       1 … 64 … 128 … 191 192 193 … 256 257    truncate(192), much later, deletes 1 … 191

1. `retire_checkpoints` finds the newest checkpoint that is not after the oldest version that is kept, reads it back
   (its digest and its state hash are compared), and **empties** those before it: nobody begins there any more.
2. Whoever had begun there is through, or no longer believes what it read (`trust`), once `trust.GRACE_MIN_S` have
   passed: `truncate` deletes the entries before the checkpoint.

An emptied checkpoint stays as an empty object, for a checkpoint is created only where there is none: so a writer that
slept cannot bring it back. Both steps may be repeated, and may stop anywhere.

Of those *after* the oldest kept version some are emptied too, so that the checkpoints of a large table do not take many
times what its entries do (`is_kept`): near the head all stay, further back fewer and fewer, down to one for as many
entries as have its bytes. Who reads an old version then begins further back. Collectors that sleep at any point do no
harm, though nobody waits for them:

- Whether one is kept depends on its version, its size and the head alone, and a checkpoint that is once not kept never
  is again. The log is cut at one that is kept, so at none that a collector with an older state wants to empty.
- A collector with a newer state knows that history has passed that checkpoint: it empties what lies behind history, and
  what lies before the checkpoint at which it cuts itself.

What is left in the intake for positions that were taken long ago goes with the cut (`intake`).

Segments of checkpoints go with the cut: those written for a checkpoint before it that none behind it names. A
writer names a segment that it has written itself, or that the newest checkpoint names; and creates no checkpoint once
its knowledge is older than `trust.HEAD_FRESHNESS_S`. So none comes to be named again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mergelake.core.errors import CorruptDataError, InternalError
from mergelake.log.segment import written_for
from mergelake.log.tail import LogReader
from mergelake.store.protocol import Store

ENTRY_BYTES = 4096
"""What an entry is taken to have: checkpoints further apart than their size in entries would save nothing."""
DENSITY = 8
"""Checkpoints between the head and twice as far from it, about."""


def is_kept(version: int, size: int, head: int) -> bool:
    """Whether the checkpoint of a version, of so many bytes, stays where versions around it are kept.

    >>> [version for version in range(64, 2561, 64) if is_kept(version, 1 << 20, 2560)]
    [256, 512, 768, 1024, 1280, 1536, 1664, 1792, 1920, 2048, 2112, 2176, 2240, 2304, 2368, 2432, 2496, 2560]
    """
    apart = min((head - version) // DENSITY, size // ENTRY_BYTES)
    return version & -version >= apart


def retire_checkpoints(store: Store, reader: LogReader[Any], before: int, head: int, history: int) -> int:
    """Empty the checkpoints that the versions from `before` on do not need; the version of the one that remains.

    `head` and `history` are of one state that is in the log: after `history`, those that are not `is_kept` go too.

    0 if there is none that could be relied on: nothing may be truncated. One LIST, the GETs of one checkpoint and of
    the hint, which is put right, and a PUT for each that is emptied.
    """
    found = [(version, size) for version, size in reader.checkpoints() if size]
    standing = [version for version, size in found if version <= before and is_kept(version, size, head)]
    while standing and not reader.sound(standing[-1]):
        standing.pop()  # damaged: the entries behind the one before it are needed
    base = standing[-1] if standing else 0
    thinned = [v for v, size in found if v > max(before, history) and not is_kept(v, size, head)]
    hint = reader.hint() if base or thinned else 0
    if hint < base:
        # Without a hint one would begin at the first entry: that beginning is retired by giving another.
        store.put(reader.hint_key, json.dumps({"version": base}).encode())
    for version in (*(v for v, _ in found if v < base), *(v for v in thinned if v < hint)):
        store.put(reader.checkpoint_key(version), b"")
    return base


def truncate(reader: LogReader[Any], base: int, history: int, sweep: bool) -> int:
    """Delete the entries before checkpoint `base`, which `retire_checkpoints` gave at least a grace period ago.

    Segments too, where `sweep` says that nobody reads a version of before: a state in memory leads to file tables in
    them. `history` is the oldest version that the newest state keeps, as `AdvanceGcHorizon` said. Returns how many
    entries went: none if another collector has cut here, and retired this checkpoint in its turn, or if one before it
    stands (again): a late writer's, from which somebody may begin. Retire it, and wait once more. Raises
    CorruptDataError if the checkpoint cannot be read.
    """
    if base > history:
        raise InternalError(f"Version {history} is kept: entries up to {base} must stay")
    whole = reader.sound(base)
    listed, segments = reader.beside_entries()  # listed last: another collector may retire this one too, at any time
    found = dict(listed)
    if found.get(base) == 0 or any(size and version < base for version, size in found.items()):
        return 0
    if not whole:
        raise CorruptDataError("The log cannot be cut at a damaged checkpoint", object_key=reader.checkpoint_key(base))
    gone = reader.backend.truncate(base)
    reader.sweep_intake(history)
    if sweep:
        _swept(reader, [version for version, size in listed if size], segments, base)
    return gone


def _swept(reader: LogReader[Any], standing: Sequence[int], segments: Sequence[str], base: int) -> None:
    """Delete those of `segments` that were written for a checkpoint before `base`, and that none that stands names.

    A GET for each checkpoint, if there are such. Nothing if one of them cannot be read: what it names is not known,
    until the log is cut behind it. The same if one of them was emptied since they were listed: others may have been
    written since, which name what it named.
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
