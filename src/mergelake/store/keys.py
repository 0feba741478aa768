"""Keys: which ones are possible, how a listing selects them. Pure; every store uses these."""

from __future__ import annotations

from mergelake.core.errors import InvalidInputError

LIST_PAGE = 1000
"""Keys of one listing or delete request. Source: Amazon S3 API, ListObjectsV2 and DeleteObjects."""


def check_key(key: str) -> str:
    """`key` itself if it can name an object in every store, else `InvalidInputError`."""
    if not key or any(segment in ("", ".", "..") for segment in key.split("/")) or "\0" in key or "\\" in key:
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
