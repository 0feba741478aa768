"""The lock file covers what `pyproject.toml` asks for."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def test_every_dependency_is_locked_to_a_version_that_fits() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    locked = {canonicalize_name(name): text for name, _, text in (line.partition("==") for line in lines)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    for requirement in map(Requirement, asked):
        name = canonicalize_name(requirement.name)
        if name != "mergelake":
            assert name in locked, f"run `make lock`: {name} is in pyproject.toml alone"
            assert locked[name] in requirement.specifier, f"run `make lock`: {requirement} and {locked[name]}"
