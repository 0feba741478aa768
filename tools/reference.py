"""Tables of the documentation that are made from the code: `python -m tools.reference` (`make format`) rewrites them.

A page of docs/, README.md or CONTRIBUTING.md has a table between two comments, `<!-- from the code: NAME -->` and
`<!-- end -->`; `TABLES` makes what stands there. `tests/unit/test_reference.py` fails where a page is not what this
would write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mergelake.api.spark.options import READ_OPTIONS, WRITE_OPTIONS, Option
from mergelake.api.sql.settings import OWN_SETTINGS
from mergelake.core.model.accepted_settings import ACCEPTED, REFUSED
from mergelake.core.model.settings import GIB, MIB, TABLE_SETTINGS, Setting
from mergelake.query.statement.settings import HONOURED, REFUSED_SETTINGS, RULES, Kind
from tools.house import house

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
DAY = 86400
RETENTION = ("history_retention_seconds", "retention_max_bytes", "retention_max_ratio", "gc_grace_seconds")
MERGING = (
    "merge_upload_policy", "max_bytes_to_merge_volatile", "write_amplification_target", "volatile_upload_age_seconds",
    "parts_to_upload_volatile", "volatile_lease_seconds", "volatile_peer_reads", "min_bytes_for_zstd",
    "min_bytes_to_split_merge", "merge_slice_bytes",
)  # fmt: skip
_TABLE = re.compile(r"(<!-- from the code: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewritten(page: str) -> str:
    """The text of a page with each of its tables made anew; KeyError for a name that is not in `TABLES`."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", page)


def names_in(page: str) -> list[str]:
    """Names of the tables of a page."""
    return [found[2] for found in _TABLE.finditer(page)]


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def code(text: str) -> str:
    """A word or a value; an empty text as two quotes."""
    return f"`{text or repr('')}`"


def names(given: Iterable[str]) -> str:
    """A list of names, sorted."""
    return ", ".join(map(code, sorted(given)))


def options(given: Iterable[Option]) -> str:
    """Options of Spark."""
    shown = ((", ".join(map(code, (option.name, *option.aliases))), option.description) for option in given)
    return table(("Option", "Meaning"), shown)


def shown_default(setting: Setting) -> str:
    """The default of a table setting: sizes in binary units, flags as 1 and 0, days beside seconds."""
    default = setting.default
    if isinstance(default, str):
        return code(repr(default))
    if isinstance(default, int) and not isinstance(default, bool):
        if setting.name.endswith("_seconds") and default and default % DAY == 0:
            return f"{code(str(default))} ({default // DAY} d)"
        for unit, name in ((GIB, "Gi"), (MIB, "Mi")):
            if default and default % unit == 0:
                return code(repr(f"{default // unit}{name}"))
    return code(str(int(default) if isinstance(default, bool) else default))


def table_settings(chosen: Iterable[str] = ()) -> str:
    """Table settings that have a default here: those that are chosen, or all."""
    found = [TABLE_SETTINGS[name] for name in chosen] or list(TABLE_SETTINGS.values())
    rows = ((code(each.name), shown_default(each), each.description) for each in found)
    return table(("Setting", "Default", "Meaning"), rows)


def refused(given: Mapping[str, tuple[str, str]]) -> str:
    """Settings of which one value is taken."""
    rows = ((code(name), code(taken), hint) for name, (taken, hint) in sorted(given.items()))
    return table(("Setting", "Value taken", "Hint of the error for other values"), rows)


def of_kind(kind: Kind) -> str:
    """Names, or beginnings of names, of ClickHouse's settings of this kind."""
    return names(rule for rule, each in RULES.items() if each is kind)


TABLES: Mapping[str, Callable[[], str]] = {
    "read-options": lambda: options(READ_OPTIONS),
    "write-options": lambda: options(WRITE_OPTIONS),
    "own-settings": lambda: table(
        ("Setting", "Default", "Meaning"),
        ((code(name), code(own.default), own.description) for name, own in OWN_SETTINGS.items()),
    ),
    "honoured-settings": lambda: table(
        ("Setting", "Meaning"), ((code(name), text) for name, text in sorted(HONOURED.items()))
    ),
    "reading-settings": lambda: of_kind(Kind.READING),
    "meaning-settings": lambda: of_kind(Kind.MEANING),
    "shape-settings": lambda: of_kind(Kind.SHAPE),
    "speed-settings": lambda: of_kind(Kind.SPEED),
    "refused-settings": lambda: refused({name: (each.taken[0], each.hint) for name, each in REFUSED_SETTINGS.items()}),
    "table-settings": table_settings,
    "retention-settings": lambda: table_settings(RETENTION),
    "merging-settings": lambda: table_settings(MERGING),
    "refused-table-settings": lambda: refused(REFUSED),
    "accepted-table-settings": lambda: names(ACCEPTED),
    "house": house,
}
"""Name of a table -> what makes it."""


def main() -> None:
    """Rewrite the tables of all pages."""
    for path in PAGES:
        text = path.read_text()
        if (new := rewritten(text)) != text:
            path.write_text(new)
            print(f"{path.relative_to(ROOT)} is new")


if __name__ == "__main__":
    main()
