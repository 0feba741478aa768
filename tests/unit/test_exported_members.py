"""The public surface: nothing leaks, everything is explained, and the error tree is the one that is drawn."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mergelake
from mergelake.core.base import errors

SOURCE = Path(mergelake.__file__)


def test_nothing_leaks_into_the_package() -> None:
    """In a process that has only imported it: what tests import later adds its submodules."""
    script = "import mergelake; print(*sorted(n for n in vars(mergelake) if not n.startswith('_')))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert set(found.stdout.split()) <= {"annotations", "importlib", "TYPE_CHECKING"}
    assert not re.search(r"import \*", SOURCE.read_text())


def test_importing_the_package_loads_no_engine() -> None:
    engines = {"llvmlite", "chdb", "pyspark", "pandas", "pyarrow", "obstore"}
    script = f"import sys, mergelake; print(*{engines} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.split() == []


def test_type_checkers_see_what_is_exported() -> None:
    """The names imported for type checkers are those of __all__, from the modules that they come from at run time."""
    tree = ast.parse(SOURCE.read_text())
    (guard,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module for node in guard.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert set(imported) == set(mergelake.__all__)
    for name, module in imported.items():
        assert getattr(mergelake, name) is getattr(sys.modules[str(module)], name)
    with pytest.raises(AttributeError, match="nosuch"):
        _ = mergelake.nosuch


@pytest.mark.parametrize("name", mergelake.__all__)
def test_each_public_name_and_its_public_members_have_a_docstring(name: str) -> None:
    thing = getattr(mergelake, name)
    assert inspect.getdoc(thing), name
    assert thing.__doc__ is not object.__doc__
    if not inspect.isclass(thing):
        return
    for member, value in vars(thing).items():
        if member.startswith("_") or not (inspect.isfunction(value) or isinstance(value, (property, staticmethod))):
            continue
        assert inspect.getdoc(value), f"{name}.{member}"


def test_the_error_tree_is_the_one_in_the_docstring() -> None:
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    real = [cls.__name__ for cls in errors.MergelakeError.__subclasses__()]
    assert drawn == real
    assert set(real) <= set(mergelake.__all__)
    assert len({cls.kind for cls in errors.MergelakeError.__subclasses__()}) == len(real)
    assert issubclass(errors.NotFoundError, KeyError)
    assert issubclass(errors.InvalidInputError, ValueError)


@pytest.mark.parametrize("cls", [errors.MergelakeError, *errors.MergelakeError.__subclasses__()])
def test_errors_survive_pickling_with_their_story(cls: type[errors.MergelakeError]) -> None:
    made = cls("It broke", name="BAD_ARGUMENTS", hint="Mend it")
    back = pickle.loads(pickle.dumps(made))
    assert type(back) is cls
    assert str(back) == str(made) == "Code: 36. It broke. Mend it (BAD_ARGUMENTS)"
    assert (back.code, back.name, back.hint, back.message) == (36, "BAD_ARGUMENTS", "Mend it", "It broke")


def test_every_error_name_that_is_raised_has_a_code() -> None:
    """`error("NAME", …)` and `name="NAME"` anywhere in the source are in the table of codes."""
    used: set[str] = set()
    for path in SOURCE.parent.rglob("*.py"):
        used |= set(re.findall(r"""(?:(?<!\.)\berror\(\s*|\bname=)"([A-Z][A-Z0-9_]{4,})\"""", path.read_text()))
    assert used - set(errors.CLICKHOUSE_CODES) == set()
