"""Keys: which are valid, and how a listing selects them. Pure; used by every store."""

from __future__ import annotations

import re

from mergelake.core.base.errors import InvalidInputError

LIST_PAGE = 1000
"""Keys of one listing or delete request. Source: Amazon S3 API, ListObjectsV2 and DeleteObjects."""

_SEGMENT = r"(?!\.\.?(?:/|\Z))[^/\\\0]+"
_KEY = re.compile(f"{_SEGMENT}(?:/{_SEGMENT})*")


def check_key(key: str) -> str:
    """`key` itself if it can name an object in every store, else `InvalidInputError`."""
    if _KEY.fullmatch(key) is None:
        raise InvalidInputError(
            f"'{key}' cannot be the key of an object",
            name="BAD_ARGUMENTS",
            hint="Keys are relative, without empty, '.' or '..' segments",
        )
    return key


def directory_prefix(prefix: str) -> str:
    """`prefix` as the text that keys below that directory start with; "" for all keys."""
    stripped = prefix.strip("/")
    return check_key(stripped) + "/" if stripped else ""
