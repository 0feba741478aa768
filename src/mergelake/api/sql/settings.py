"""Settings of a session, a call or a statement: validated before anything runs with them.

`query.statement.settings` says how each name is handled. Here ClickHouse is consulted too: whether it knows the name,
and which value a literal such as `'10Mi'` has. Some settings are mergelake's own (`OWN_SETTINGS`).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from mergelake.api.python.environment import is_strong_read
from mergelake.api.sql import statements as s
from mergelake.api.sql.clickhouse_reader import conversion_of, is_reading_setting
from mergelake.core.base.errors import error
from mergelake.core.base.text import quote_string
from mergelake.core.model.settings import kind_of_setting
from mergelake.query.embedded import engine
from mergelake.query.statement.settings import (
    READS_INSERTS,
    for_clickhouse,
    honoured,
    kind_of,
    plain_value,
    refuse_meaningless,
)
from mergelake.table.volatile.volatile_reads import volatile_mode


@dataclass(frozen=True, slots=True)
class OwnSetting:
    """A setting that ClickHouse does not have."""

    default: str
    """As a SQL literal."""
    description: str
    """For `system.settings` and the documentation: Markdown, one line."""


OWN_SETTINGS: Mapping[str, OwnSetting] = {
    "executor": OwnSetting(
        "'auto'",
        "Where a SELECT runs: `'local'` in this process, `'spark'` in Spark tasks, `'auto'` in tasks from 50 million "
        "rows to read if there is a Spark session",
    ),
    "dedup_token": OwnSetting("''", "The same as `insert_deduplication_token`, which counts if both are set"),
    "insert_conversion": OwnSetting(
        "'strict'",
        "What an INSERT does with a value that its column cannot hold: `'strict'` refuses it, `'clickhouse'` converts "
        "it as ClickHouse does",
    ),
    "max_staleness_ms": OwnSetting(
        "0",
        "Milliseconds during which a `strong` SELECT uses what this session last learned of a table instead of asking "
        "the store again",
    ),
    "query_log_length": OwnSetting(
        "1000",
        "How many of its last statements a connection keeps in memory for `system.query_log`, without those that run "
        "under `log_queries = 0`",
    ),
    "read_consistency": OwnSetting(
        "'strong'",
        "`'strong'`: a SELECT sees every commit acknowledged before it began; `'cached'`: it sees those that this "
        "process knows, and sends no request to learn of others",
    ),
    "read_volatile": OwnSetting(
        "'off'",
        "`'peers'`: volatile parts are read from the nodes that have them, where these answer, in place of the stored "
        "parts beneath ([docs](merging.md#reads-see-volatile-parts)); the absolute path of a directory: from the disks "
        "of nodes there (`--local`); `'off'`: stored parts are read",
    ),
    "skip_broken_parts": OwnSetting(
        "0", "1: parts with lost or damaged objects are left out of a SELECT; 0: such a part is an error"
    ),
}
"""mergelake's own settings, in addition to ClickHouse's."""
_READS = (
    s.Select, s.Explain, s.Set, s.Use, s.Describe, s.Exists, s.ShowColumns, s.ShowCreateTable, s.ShowDatabases,
    s.ShowTables, s.CheckTable,
)  # fmt: skip
_WRITES_ROWS = (s.Insert, s.Optimize)


def judged(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, validated, with the values that apply as literals; those that are `DEFAULT` stay as they are.

    Raises UNKNOWN_SETTING with the nearest name, NOT_IMPLEMENTED for a setting with an effect that is not supported,
    and what ClickHouse raises for an invalid value.
    """
    _check_own(settings)
    foreign = {name: value for name, value in settings.items() if name not in OWN_SETTINGS}
    for name in foreign:
        if kind_of(name) is None:
            raise _unknown(name)
    refuse_meaningless(foreign)
    explicit = {name: value for name, value in foreign.items() if value.upper() != "DEFAULT"}
    if explicit and engine.available():
        if theirs := for_clickhouse(explicit):
            engine.run("SELECT 1", settings=theirs)
        plain = engine.plain_values(honoured(explicit))
        return {**settings, **{name: engine.setting_literal(value) for name, value in plain.items()}}
    return dict(settings)


def _check_own(settings: Mapping[str, str]) -> None:
    executor = plain_value(settings.get("executor", "'auto'"))
    if executor not in ("auto", "local", "spark"):
        raise error("BAD_ARGUMENTS", f"There is no executor '{executor}'", "It is 'auto', 'local' or 'spark'")
    if plain_value(settings.get("skip_broken_parts", "0")) not in ("0", "1"):
        raise error("CANNOT_PARSE_BOOL", f"skip_broken_parts cannot be {settings['skip_broken_parts']}", "It is 0 or 1")
    conversion_of(settings)
    staleness_ms(settings)
    log_length(settings)
    if "read_consistency" in settings:
        is_strong_read(plain_value(settings["read_consistency"]))
    if "read_volatile" in settings and settings["read_volatile"].upper() != "DEFAULT":
        volatile_mode(plain_value(settings["read_volatile"]))


def staleness_ms(settings: Mapping[str, str]) -> int:
    """Milliseconds for which a `strong` SELECT uses what its session knows before it looks for new versions."""
    return _whole_number(settings, "max_staleness_ms")


def log_length(settings: Mapping[str, str]) -> int:
    """How many statements a connection keeps for `system.query_log`."""
    length = _whole_number(settings, "query_log_length")
    return 0 if plain_value(settings.get("log_queries", "1")) in ("0", "false") else length


def _whole_number(settings: Mapping[str, str], name: str) -> int:
    """The value of an own setting that is a number."""
    default = plain_value(OWN_SETTINGS[name].default)
    text = plain_value(settings.get(name, default))
    if text.upper() == "DEFAULT":
        return int(default)
    if not (text.isascii() and text.isdecimal()):
        raise error("CANNOT_PARSE_NUMBER", f"{name} cannot be {text}", "It is a whole number, 0 or more")
    return int(text)


def _unknown(name: str) -> Exception:
    known = engine.setting_names() if engine.available() else []
    if name in known:
        message = f"The setting {name}, of a newer ClickHouse, is not known here"
        return error("NOT_IMPLEMENTED", message, "Leave it at its default")
    near = difflib.get_close_matches(name, [*known, *OWN_SETTINGS], n=1)
    hint = f"Maybe you meant {near[0]}" if near else "system.settings lists what there is"
    return error("UNKNOWN_SETTING", f"Unknown setting '{name}'", hint)


def check_of_statement(settings: Mapping[str, object]) -> None:
    """Validate the settings of a CREATE TABLE that are not a table's: ClickHouse must know them as a statement's."""
    check_known(settings)
    judged({name: engine.setting_literal(value) for name, value in settings.items()})


def check_known(names: Collection[str]) -> None:
    """Raise UNKNOWN_SETTING, with the nearest name, for one that is no setting of a statement."""
    known = set(engine.setting_names()) if names and engine.available() else set()
    for name in names:
        if name not in known:
            kind_of_setting(name)


def merged(settings: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """`settings` with the (judged) changes applied; DEFAULT removes a setting."""
    out = {**settings, **changes}
    return {name: value for name, value in out.items() if value.upper() != "DEFAULT"}


def plain(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with their values as plain text instead of literals."""
    return {name: plain_value(value) for name, value in settings.items()}


def check_permitted(statement: s.Statement, settings: Mapping[str, str]) -> None:
    """Raise READONLY or QUERY_IS_PROHIBITED for a statement that the settings `readonly` and `allow_ddl` forbid."""
    held = plain(settings)
    level = held.get("readonly", "0")
    if level != "0" and not isinstance(statement, _READS):
        raise error("READONLY", "Cannot execute query in readonly mode", "The session's setting readonly forbids it")
    if isinstance(statement, s.Set):
        check_changes(statement.settings, settings)
    elif held.get("allow_ddl", "1") == "0" and not isinstance(statement, (*_READS, *_WRITES_ROWS)):
        raise error("QUERY_IS_PROHIBITED", "Cannot execute query. DDL queries are prohibited for the user")


def check_changes(names: Iterable[str], settings: Mapping[str, str]) -> None:
    """Raise READONLY for settings that `readonly` does not let a statement change."""
    level = plain(settings).get("readonly", "0")
    for name in names:
        if level == "1" or (level != "0" and name == "readonly"):
            raise error("READONLY", f"Cannot modify '{name}' setting in readonly mode", "Begin another session")


def check_reading(settings: Mapping[str, str]) -> None:
    """Raise NOT_IMPLEMENTED for a setting that changes how the data of an INSERT is read and is not honoured here."""
    unsupported = {
        name: value
        for name, value in settings.items()
        if name.startswith(READS_INSERTS) and not is_reading_setting(name)
    }
    if not unsupported:
        return
    names = ", ".join(map(quote_string, unsupported))
    text = f"SELECT name FROM system.settings WHERE name IN ({names}) AND value != default AND (name, value) != {_UTC}"
    for name in engine.run(text, settings=unsupported).table()["name"].to_pylist():
        raise error(
            "NOT_IMPLEMENTED",
            f"The setting {name} = {unsupported[name]} is not supported for the data of an INSERT",
            "INSERT … SELECT * FROM format(…) reads data as ClickHouse does",
        )


_UTC = "('session_timezone', 'UTC')"
