"""`Prices`: what a store bills, to tell requests and bytes as money."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mergelake.core.base.errors import error
from mergelake.store.interface.protocol import Counters

GB = 1 << 30
"""Bytes of a GB in S3's bills."""
_PRICE_MAX = 1e9
VARIABLE = "MERGELAKE_PRICES"
"""The variable of the environment with the path of a TOML file of prices."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a store, in one currency. The defaults are list prices of S3 Standard in us-east-1."""

    put: float = 0.005
    """For 1,000 writes: PUT, and the requests of a multipart upload."""
    get: float = 0.0004
    """For 1,000 reads."""
    list: float = 0.005
    """For 1,000 pages of listings."""
    head: float = 0.0004
    """For 1,000 looks at the size of an object."""
    delete: float = 0.0
    """For 1,000 delete requests."""
    storage: float = 0.023
    """For a GB (2^30 bytes) stored for a month."""
    egress: float = 0.0
    """For a GB read: nothing within a region; 0.09 is S3's list price of what leaves for the Internet."""
    currency: str = "USD"
    name: str = "S3 Standard, us-east-1, list prices"
    """What they are, for people."""

    def cost(self, used: Counters) -> float:
        """What requests, and the bytes that they read, cost."""
        requests = (
            used.put * self.put
            + used.get * self.get
            + used.list * self.list
            + used.head * self.head
            + used.delete * self.delete
        )
        return requests / 1000 + used.bytes_get / GB * self.egress

    def month(self, size: int) -> float:
        """What it costs to keep so many bytes for a month."""
        return size / GB * self.storage

    @staticmethod
    def of(given: Mapping[str, Any], name: str = "given prices") -> Prices:
        """Prices by field, the default ones where one is missing. BAD_ARGUMENTS for a name or a value that is none.

        >>> Prices.of({"put": 0.0054}).put, Prices.of({"put": 0.0054}).get
        (0.0054, 0.0004)
        """
        kinds = {field.name: type(field.default) for field in fields(Prices)}
        for key, value in given.items():
            kind = kinds.get(key)
            if kind is None:
                raise error("BAD_ARGUMENTS", f"There is no price {key!r}", f"There are {', '.join(kinds)}")
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (isinstance(value, str) if kind is str else is_number and 0 <= value < _PRICE_MAX):
                hint = "Give text" if kind is str else "Give a number of 0 or more"
                raise error("BAD_ARGUMENTS", f"The price {key} is {value!r}", hint)
        return Prices(**{"name": name, **given})


def is_bucket(url: str) -> bool:
    """Whether the store at a URL is a bucket, which bills by the request.

    >>> is_bucket("s3://bucket/lake"), is_bucket("/data/lake"), is_bucket("memory://lake")
    (True, False, False)
    """
    return "://" in url and not url.startswith("memory:")


def prices_of(given: Prices | Mapping[str, Any] | str | os.PathLike[str] | None) -> Prices:
    """The prices of a user: as they are, by field, or the path of a TOML file with the fields of `Prices`.

    None: those of the file that the variable `MERGELAKE_PRICES` names, or else the default ones.
    """
    if isinstance(given, Prices):
        return given
    if isinstance(given, Mapping):
        return Prices.of(given)
    path = os.environ.get(VARIABLE, "") if given is None else os.fspath(given)
    if not path:
        return Prices()
    import tomllib

    try:
        with Path(path).open("rb") as file:
            return Prices.of(tomllib.load(file), Path(path).name)
    except (OSError, tomllib.TOMLDecodeError) as problem:
        raise error("BAD_ARGUMENTS", f"The prices in {path} cannot be read: {problem}") from None
