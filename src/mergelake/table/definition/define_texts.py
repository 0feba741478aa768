"""What a definition is made of, as it comes from Python: texts are texts, numbers are numbers, names are not empty.

The log would keep anything else as it is given, and no later statement could read the table.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any

from mergelake.core.base.errors import error

_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "str | None": (str, NoneType), "int": (int,), "bool": (bool,)}
"""Annotations of fields that are checked -> the types of their values; those of other fields are checked elsewhere."""
_NAMES = ("name", "new_name")


def check_texts(part: Any) -> None:
    """Check the fields of a frozen dataclass, and those of the dataclasses in it.

    TYPE_MISMATCH for a value of another type than the field has, BAD_ARGUMENTS for an empty name.
    """
    for field in fields(part):
        value, what = getattr(part, field.name), f"{field.name} of {type(part).__name__}"
        if field.type in _KINDS:
            _check(value, what, str(field.type))
            if field.name in _NAMES and not value:
                raise error("BAD_ARGUMENTS", f"The {what} is empty", "Give a name")
        elif field.type == "tuple[str, ...]":
            for each in value:
                _check(each, what, "str")
        elif field.init:
            for each in value if isinstance(value, tuple) else (value,):
                if is_dataclass(each):
                    check_texts(each)


def _check(value: object, what: str, kind: str) -> None:
    if not isinstance(value, _KINDS[kind]) or (kind == "int" and isinstance(value, bool)):
        wanted = {"int": "a whole number", "bool": "True or False"}.get(kind, "text")
        raise error("TYPE_MISMATCH", f"The {what} is {value!r}", f"Give {wanted}")
