"""Settings that change what a statement means, not just how fast it runs.

ClickHouse gets the rewritten statement with all its settings, so most of them simply work. Two kinds do not:

- `final`, `additional_table_filters` and the like change what a *table* gives, and the tables are ours: refused.
- `session_timezone`, `transform_null_in` and the like change what a *condition* means. Our scans judge conditions as
  ClickHouse does by default, so under any setting not known to be harmless nothing is pushed down to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mergelake.core.errors import error
from mergelake.query.outline import Occurrence, Outline

_OF_TABLES = {
    "final": "Write FINAL after the table's name",
    "additional_table_filters": "Write the condition in WHERE",
}
_HARMLESS = (
    "allow_",
    "compile_",
    "distributed_",
    "extremes",
    "final",
    "force_",
    "group_by_",
    "join_",
    "local_filesystem_",
    "log_",
    "max_",
    "min_",
    "optimize_",
    "output_format_",
    "prefer_",
    "priority",
    "query_",
    "temporary_",
    "timeout_",
    "union_",
    "use_",
)
"""How the names of settings begin that leave a condition's meaning alone."""


def statement_settings(plan: Outline) -> dict[str, str]:
    """The SETTINGS of the statement and its subqueries: name -> literal."""
    out = {}
    for scope in plan.scopes:
        first, end = scope.clauses.get("SETTINGS", (0, 0))
        for at in range(first, end - 2):
            if plan.tokens[at].is_name and plan.tokens[at + 1].text == "=":
                out[plan.tokens[at].name] = plan.tokens[at + 2].text
    return out


def keeps_conditions(names: Iterable[str]) -> bool:
    """Whether a scan may judge conditions under these settings."""
    return all(name.startswith(_HARMLESS) for name in names)


def check_meaning(plan: Outline, ours: Iterable[Occurrence], settings: Mapping[str, str]) -> None:
    """NOT_IMPLEMENTED for what would change the rows that our tables give, `ours` being where they are named."""
    found = list(ours)
    if not found:
        return
    for name, value in {**settings, **statement_settings(plan)}.items():
        if name in _OF_TABLES and value.strip("'").lower() not in ("0", "false", ""):
            raise error("NOT_IMPLEMENTED", f"The setting {name} is not supported", _OF_TABLES[name])
    for occurrence in found:
        if occurrence.final and "PREWHERE" in plan.scope_of[id(occurrence)].clauses:
            raise error(
                "NOT_IMPLEMENTED",
                "PREWHERE with FINAL, which filters before rows are replaced, is not supported",
                "Write WHERE, which filters afterwards",
            )
