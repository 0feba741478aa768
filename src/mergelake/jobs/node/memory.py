"""What a long-running process keeps of freed memory.

A merge frees nearly all that it allocates, but allocators keep pages for the threads that freed them: mimalloc, Arrow's
default, keeps those of threads that have ended, and glibc has up to eight arenas a core. So a node grew with the number
of its merges to several times of what it used. The pool of the system and two arenas hold it at a plateau, at no cost:
most of the work is serialized by the interpreter anyway.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Callable

import pyarrow as pa

_M_ARENA_MAX = -8
"""Of `mallopt`, in glibc's malloc.h."""
_ARENAS = 2


def bound_memory() -> None:
    """Choose allocators for a process that merges for a long time: call it once, before its threads begin."""
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)


def release_memory() -> None:
    """Return freed memory to the system; takes some milliseconds."""
    pa.default_memory_pool().release_unused()
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


@functools.cache
def _of_glibc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if platform.libc_ver()[0] == "glibc" else None
