"""docs/reference.md shows every public name and every public member; mkdocs takes their text from the docstrings."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import mergelake as ml
from mergelake.core.base import errors

PAGE = (Path(__file__).parents[2] / "docs/reference.md").read_text()
SHOWN = {
    found[1]: None if found[2] is None else found[2].split(", ")
    for found in re.finditer(r"^::: ([\w.]+)$(?:\n    options:\n      members: \[(.*)\]$)?", PAGE, re.MULTILINE)
}
"""Name -> its members on the page; None for all."""
OF_OTHER_ROOMS = {
    "Database": {
        "context", "engine_settings", "full_name", "known_table", "open", "resolver", "select", "source_of",
        "table_names", "under",
    },
    "Result": {"formatted_as", "metered_by", "query_result"},
    "Scan": {"of"},
    "Table": {"alter", "snapshot", "state"},
    "TableSchema": {"from_json", "of_new_table", "to_json", "with_settings"},
    "Column": {"changed_since", "from_json", "to_json"},
    "Warehouse": {"handles", "nodes", "opened"},
}  # fmt: skip
"""Members that other rooms use, and that take or return values which are not public."""


@pytest.mark.parametrize("name", ml.__all__)
def test_every_public_name_is_on_the_page(name: str) -> None:
    thing = getattr(ml, name)
    if inspect.isclass(thing) and issubclass(thing, errors.MergelakeError):
        assert "mergelake.core.errors" in SHOWN
    else:
        assert f"mergelake.{name}" in SHOWN


@pytest.mark.parametrize("name", OF_OTHER_ROOMS)
def test_every_public_member_is_on_the_page(name: str) -> None:
    kind = getattr(ml, name)
    members = {
        member
        for base in kind.__mro__
        if base.__module__.startswith("mergelake.")
        for member, value in vars(base).items()
        if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, (property, staticmethod)))
    }
    listed = set(SHOWN[f"mergelake.{name}"] or ())
    assert members - listed == OF_OTHER_ROOMS[name]
    attributes = listed - members
    documented = inspect.getsource(kind)
    for attribute in attributes:
        assert re.search(rf"\b{attribute}\b\s*[:=]", documented), attribute
