"""The map of the house, as text: wings, the rooms within each, and what they are for.

It is made from the contracts of import-linter in pyproject.toml and from the docstrings of the packages, so it says
what is checked. `tools/reference.py` writes it into README.md, CONTRIBUTING.md and design note 0001. Packages that only
keep a public path are left out.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "mergelake"
WIDTH = 120
PLANNED = {
    "api.server": "HTTP and ClickHouse's native protocol over one shared warehouse",
    "api.spark.catalog": "a Spark catalog, so that Spark SQL names tables",
    "jobs.transfer": "import, export, backups, copies to other buckets",
    "jobs.stream": "change feeds, materialized views, sinks",
    "store.tiers": "parts in several stores, by age and space",
    "store.cipher": "encryption of objects, below the cache",
}
"""Where what comes next will stand: rooms that no file has yet; those of contracts are in brackets there."""


def contracts() -> dict[str, list[list[str]]]:
    """The layers of each wing by its name, top first, each the names that stand beside each other; "" is the house."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return {
        contract["containers"][0].removeprefix("mergelake").removeprefix("."): [
            [name.strip() for name in layer.split("|")] for layer in contract["layers"]
        ]
        for contract in settings
        if contract["type"] == "layers"
    }


def purpose(package: str) -> str:
    """The first sentence of the docstring of a package, without its full stop."""
    module = SOURCE.joinpath(*package.split("."), "__init__.py")
    text = ast.get_docstring(ast.parse(module.read_text())) or ""
    return re.split(r"\.(?:\s|$)", text.replace("\n", " "), maxsplit=1)[0]


def rooms(wing: str, layers: list[list[str]]) -> str:
    """The rooms of a wing, lowest first: `a < b, c` says that b and c import a, and do not know each other.

    Modules beside the packages are left out where there are several packages.
    """
    packages = {path.parent.name for path in (SOURCE / wing).glob("*/__init__.py")}
    chosen = [[n for n in layer if n in packages or n.startswith("(") or len(packages) < 2] for layer in layers]
    return " < ".join(", ".join(layer) for layer in reversed(chosen) if layer)


def house() -> str:
    """The map, a block of Markdown."""
    found, lines = contracts(), []
    for layer in found[""]:
        wings = [wing for wing in layer if not purpose(wing).startswith("Public path")]
        for at, wing in enumerate(wings):
            mark = "" if at == 0 else "| "
            head = f"{mark + wing:<12}"
            lines += textwrap.wrap(purpose(wing), WIDTH, initial_indent=head, subsequent_indent=" " * 12)
            if wing in found:
                lines += textwrap.wrap(
                    rooms(wing, found[wing]), WIDTH, initial_indent=" " * 14, subsequent_indent=" " * 14
                )
    planned = "\n".join(f"- `{room}`: {what}" for room, what in PLANNED.items())
    return f"```\n{chr(10).join(lines)}\n```\n\nWhere what comes next will stand (in brackets above):\n\n{planned}"


def planned_in_contracts() -> set[str]:
    """The rooms in brackets of the contracts."""
    return {
        f"{wing}.{name.strip('()')}"
        for wing, layers in contracts().items()
        for layer in layers
        for name in layer
        if name.startswith("(")
    }


def main() -> None:
    """Print the map."""
    print(house())


if __name__ == "__main__":
    main()
