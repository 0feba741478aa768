"""Listing a table without its log.

Whatever lies beside the parts begins with an underscore (`__meta/`, `__root/`, `_gc/`, `_log/`), which sorts behind the
digits and before the letters: a listing stops there and goes on behind it, and never turns a page of the log.
"""

from __future__ import annotations

from collections.abc import Iterator

from mergelake.table.collect_notes import FOLDER
from mergelake.table.handle import TableHandle

_BEHIND = chr(ord("_") + 1)


def parts_listed(handle: TableHandle) -> Iterator[tuple[str, int]]:
    """All objects of the table but those in folders that begin with an underscore: keys below the table, and sizes."""
    return _without(handle, f"{handle.directory}/_")


def all_but_log(handle: TableHandle) -> Iterator[tuple[str, int]]:
    """The same of all but those of its log and the notes of collectors."""
    return _without(handle, f"{handle.directory}/{FOLDER}/")


def _without(handle: TableHandle, first: str) -> Iterator[tuple[str, int]]:
    """In order of key; from the first that is not before `first`, nothing that begins with an underscore."""
    behind, cut = f"{handle.directory}/{_BEHIND}", len(handle.directory) + 1
    for meta in handle.store.list(handle.directory):
        if first <= meta.key < behind:
            break
        yield meta.key[cut:], meta.size
    else:
        return
    for meta in handle.store.list(handle.directory, after=behind):
        yield meta.key[cut:], meta.size
