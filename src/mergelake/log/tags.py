"""States of tagged versions, kept when the log no longer goes back that far: `_log/tags/<20 digits>.arrow`.

They are no checkpoints: a reader that begins at one of those goes on from there, and must never take the end of what
was cut for the head.
"""

from __future__ import annotations

from mergelake.core.errors import NotFoundError
from mergelake.log.checkpoint import decode_checkpoint, encode_checkpoint
from mergelake.log.state import State
from mergelake.store.protocol import Store


def tag_key(prefix: str, version: int) -> str:
    """Key of a tagged version's state; `prefix` is the log's."""
    return f"{prefix}/tags/{version:020d}.arrow"


def written_tags(store: Store, prefix: str) -> set[int]:
    """The versions whose states were written down, by one LIST."""
    return {int(meta.key.rpartition("/")[2].partition(".")[0]) for meta in store.list(f"{prefix}/tags")}


def write_tag(store: Store, prefix: str, state: State) -> None:
    """Write a state down. It is the same whoever writes it."""
    store.put(tag_key(prefix, state.version), encode_checkpoint(state))


def read_tag(store: Store, prefix: str, version: int) -> State | None:
    """The state of a version that was written down; None if it was not."""
    key = tag_key(prefix, version)
    try:
        return decode_checkpoint(store.get(key), key)
    except NotFoundError:
        return None
