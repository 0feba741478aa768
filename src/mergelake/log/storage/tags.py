"""States of tagged versions, kept after the log before them was cut: `_log/tags/<20 digits>.arrow`.

They are not checkpoints: a reader goes on from a checkpoint to the head, and the entries after a tag may be deleted.
"""

from __future__ import annotations

from mergelake.core.base.errors import NotFoundError
from mergelake.log.model.state import State
from mergelake.log.storage.checkpoint import decode_checkpoint, encode_checkpoint
from mergelake.store.interface.protocol import Store


def tag_key(prefix: str, version: int) -> str:
    """Key of a tagged version's state; `prefix` is the log's."""
    return f"{prefix}/tags/{version:020d}.arrow"


def written_tags(store: Store, prefix: str) -> set[int]:
    """The versions whose states were written, by one LIST."""
    return {int(meta.key.rpartition("/")[2].partition(".")[0]) for meta in store.list(f"{prefix}/tags")}


def write_tag(store: Store, prefix: str, state: State) -> None:
    """Write the state of a tagged version. Every writer writes the same bytes."""
    store.put(tag_key(prefix, state.version), encode_checkpoint(state))


def read_tag(store: Store, prefix: str, version: int) -> State | None:
    """The written state of a version; None if there is none."""
    key = tag_key(prefix, version)
    try:
        return decode_checkpoint(store.get(key), key)
    except NotFoundError:
        return None
