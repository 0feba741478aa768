"""PySpark, which only this room imports: sessions, tasks, scans, writes, merges, and the data source `mergelake`.

Spark makes no decisions: what to read, write or merge is a value from the rooms below, a task calls their plain
functions on it, and the caller commits the results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mergelake.api.spark.upsert import merge_into

__all__ = ["merge_into"]


def __getattr__(name: str) -> object:  # a data source imports this package in short processes that need no more
    if name not in __all__:
        raise AttributeError(f"module 'mergelake.api.spark' has no attribute '{name}'")
    from mergelake.api.spark.upsert import merge_into

    return merge_into
