"""Public paths of what PySpark needs: `merge_into`, and `session.session`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mergelake.api.python.merge_into import merge_into

__all__ = ["merge_into"]


def __getattr__(name: str) -> object:  # `session` is imported by processes that need no table
    if name not in __all__:
        raise AttributeError(f"module 'mergelake.spark' has no attribute '{name}'")
    from mergelake.api.python.merge_into import merge_into

    return merge_into
