"""Listing a table without its log.

All folders beside the parts begin with an underscore (`__meta/`, `__root/`, `_gc/`, `_log/`), which sorts after the
digits and before the letters: a listing stops there and resumes after it, and never lists the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice, takewhile
from operator import gt
from typing import TypeVar

from mergelake.store.interface.keys import LIST_PAGE
from mergelake.store.interface.protocol import ObjectMeta
from mergelake.table.handle.handle import TableHandle
from mergelake.table.partitions.gc_notes import FOLDER

T = TypeVar("T")
_BEHIND = chr(ord("_") + 1)


def parts_listed(handle: TableHandle) -> Iterator[list[ObjectMeta]]:
    """All objects of the table, except those in folders that begin with an underscore."""
    return _without(handle, f"{handle.directory}/_")


def all_but_log(handle: TableHandle) -> Iterator[list[ObjectMeta]]:
    """All objects of the table, except those of its log and the notes of collectors."""
    return _without(handle, f"{handle.directory}/{FOLDER}/")


def _without(handle: TableHandle, first: str) -> Iterator[list[ObjectMeta]]:
    """Objects in order of key, without those from key `first` on in folders that begin with an underscore."""
    before = takewhile(partial(gt, (first,)), handle.store.list(handle.directory))  # tuples, compared by their keys
    yield from pages(before)
    yield from pages(handle.store.list(handle.directory, after=f"{handle.directory}/{_BEHIND}"))


def pages(listing: Iterable[T]) -> Iterator[list[T]]:
    """A listing in pages, as large as those of a request."""
    listing = iter(listing)
    while page := list(islice(listing, LIST_PAGE)):
        yield page
