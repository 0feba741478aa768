from __future__ import annotations

import doctest
import sys

import pytest

import mergelake

MODULES = sorted({getattr(mergelake, name).__module__ for name in mergelake.__all__})


def test_all_is_sorted_and_every_name_is_there_and_nothing_else_is_shown() -> None:
    assert mergelake.__all__ == sorted(mergelake.__all__, key=lambda name: (name[0].islower(), name))
    assert dir(mergelake) == sorted(mergelake.__all__)
    for name in mergelake.__all__:
        assert getattr(mergelake, name) is not None


def test_the_example_in_the_docstring_runs() -> None:
    assert doctest.testmod(mergelake).failed == 0


@pytest.mark.chdb
@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_of_public_names_run(module: str) -> None:
    pytest.importorskip("chdb", reason="the extra `sql` (chdb) is not installed")
    assert doctest.testmod(sys.modules[module]).failed == 0
