"""The names by which the fields of a value are stored: literals, whatever its class and fields are called in Python.

A field or a class may be renamed at any time, and what older releases wrote stays readable. A stored name never
changes, and is never used for anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


def stored(name: str, default: Any = msgspec.NODEFAULT, default_factory: Any = msgspec.NODEFAULT) -> Any:
    """A field of a `msgspec.Struct` by its stored name, with its default if there is one."""
    if default_factory is not msgspec.NODEFAULT:
        return msgspec.field(name=name, default_factory=default_factory)
    return msgspec.field(name=name) if default is msgspec.NODEFAULT else msgspec.field(name=name, default=default)


class StoredForm(Generic[T]):
    """The stored form of a dataclass: an object of JSON with a name for each field.

    >>> from mergelake.core.model.names import PartInfo
    >>> form = StoredForm(PartInfo, partition_id="p", min_block="low", max_block="high", level="l", mutation="m")
    >>> dict(form.items(PartInfo("all", 1, 2, 3)))
    {'p': 'all', 'low': 1, 'high': 2, 'l': 3, 'm': 0}
    >>> form.value({"p": "all", "low": 1, "high": 2, "l": 3})
    PartInfo(partition_id='all', min_block=1, max_block=2, level=3, mutation=0)
    """

    def __init__(self, kind: Callable[..., T], /, *, never: Collection[str] = (), **names: str) -> None:
        """`names`: the stored name by the name of the field; `never` are fields that are not stored.

        Raises TypeError if that is not every field, so a field that is added has to be thought of here.
        """
        declared = {each.name for each in fields(kind) if each.init}  # type: ignore[arg-type]
        if declared - set(never) != names.keys() or len(set(names.values())) < len(names):
            raise TypeError(
                f"the stored names of {kind} are not those of its fields: {sorted(declared ^ names.keys())}"
            )
        self.names: Mapping[str, str] = names
        self._kind = kind
        self._attributes = {stored: attribute for attribute, stored in names.items()}

    def items(self, value: T) -> Iterator[tuple[str, Any]]:
        """Stored names and values, in the order of the declaration."""
        return ((stored, getattr(value, attribute)) for attribute, stored in self.names.items())

    def value(self, raw: Mapping[str, Any]) -> T:
        """The value with these fields; missing ones have their defaults. KeyError for an unknown name, TypeError if a
        field without a default is missing.
        """
        return self._kind(**{self._attributes[stored]: value for stored, value in raw.items()})
