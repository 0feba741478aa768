"""Several entries in one object of the bucket, so that copying keeps up with a faster sequencer.

An object is named after its first entry, and may hold entries that follow it::

    _log/…0064.json   entry 64
    _log/…0065.json   #batch [3601,3599,…]      entries 65 to 96, a line each
    _log/…0097.json   entry 97

So each object determines where the next one begins, and the objects of a log form one **chain**: each is created by
create-if-absent, whether it holds one entry or many, and a reader that follows the chain meets a free position only at
its end. A reader that begins in the middle (at a checkpoint, say) must not take an entry inside a batch for the end of
the log. It finds the batch without a listing, because batches are **aligned**: a batch of n entries, n a power of two
up to `BATCH_MAX`, begins right after a multiple of n. `starts` are the few positions at which an object with a given
entry can begin; the nearest of them that exists holds the entry, or none does. A checkpoint at a multiple of 64 always
ends a batch.

The first line holds the lengths, the last one marks the end of a batch: a batch with one damaged place is never taken
for a single entry, and is reported as `Damaged` for each position that it could hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from mergelake.core.base.json_load import loads

BATCH_MAX = 64
"""Entries in one object; a power of two."""
BATCH_BYTES = 4 << 20
"""Bytes of entries in one object, if it holds more than one."""
_HEAD, _TAIL = b"#batch ", b"\n#batch"


class Damaged(ValueError):
    """A batch that cannot be decoded."""


def starts(version: int) -> list[int]:
    """Where an object with this entry can begin, nearest first: at the entry itself, or at a batch around it.

    >>> starts(70), starts(65), starts(128)
    ([70, 69, 65], [65], [128, 127, 125, 121, 113, 97, 65])
    """
    positions, before, low = [version], version - 1, 1
    while low < BATCH_MAX:
        if before & low:
            before -= low
            positions.append(before + 1)
        low *= 2
    return positions


def longest(first: int, sizes: Sequence[int]) -> int:
    """How many entries the object at `first` may hold; `sizes` are the bytes of the entries from `first` on.

    >>> longest(65, [1] * 40), longest(69, [1] * 40), longest(69, [1, BATCH_BYTES]), longest(70, [1] * 40)
    (32, 4, 1, 1)
    """
    count = 1
    while 2 * count <= min(len(sizes), BATCH_MAX) and (first - 1) % (2 * count) == 0:
        if sum(sizes[: 2 * count]) > BATCH_BYTES:
            break
        count *= 2
    return count


def encode(entries: Sequence[bytes]) -> bytes:
    """The object's bytes; a single entry is stored unchanged."""
    if len(entries) == 1:
        return entries[0]
    lengths = ",".join(str(len(entry)) for entry in entries).encode()
    return b"\n".join([_HEAD + b"[" + lengths + b"]", *entries]) + _TAIL


def decode(first: int, data: bytes) -> list[bytes]:
    """The entries of the object at `first`; inverse of `encode`. Raises Damaged."""
    if not (data.startswith(_HEAD) or data.endswith(_TAIL)):
        return [data]
    head, _, body = data.partition(b"\n")
    try:
        lengths = [int(length) for length in loads(head.removeprefix(_HEAD))]
    except (ValueError, TypeError) as cause:
        raise Damaged(str(cause)) from cause
    count = len(lengths)
    sound = data.startswith(_HEAD) and data.endswith(_TAIL) and sum(lengths) + count - 1 == len(body) - len(_TAIL)
    if not sound or count not in (2, 4, 8, 16, 32, 64) or (first - 1) % count:
        raise Damaged("its first line does not fit")
    entries, at = [], 0
    for length in lengths:
        entries.append(body[at : at + length])
        at += length + 1
    return entries


def reach(first: int, data: bytes) -> int:
    """The last entry of the object at `first`; for a damaged batch, the last one that it could hold."""
    try:
        return first + len(decode(first, data)) - 1
    except Damaged:
        return first + (BATCH_MAX if first == 1 else min((first - 1) & (1 - first), BATCH_MAX)) - 1
