"""Statements that only ClickHouse supports: refused by name with NOT_IMPLEMENTED, never as a SYNTAX_ERROR.

Our grammar is smaller than ClickHouse's. What it rejects is passed to ClickHouse's own parser: only what that rejects
too is a mistake of the user's.
"""

from __future__ import annotations

from mergelake.core.base.errors import MergelakeError, UnexpectedTokenError, error
from mergelake.core.base.lexer import next_token
from mergelake.core.base.text import quote_string
from mergelake.query.embedded import engine

_ASKED_MAX = 100_000
"""Length of the longest statement that is passed to ClickHouse's parser, in characters."""
_PERMISSIONS = "The bucket's own permissions decide who may do what"
_TABLES = "There are databases, MergeTree tables, views, and Merge over tables"
_VIEWS = "CREATE VIEW computes its rows at each SELECT; INSERT INTO … SELECT writes them down"
_COMMIT = "Every statement is one commit"
_SYSTEM = "Look into `system`, or SELECT from it with conditions of your own"
HINTS: dict[str, str] = {
    "ALTER": "docs/schema.md, docs/mutations.md and docs/partitions.md list the commands of ALTER TABLE",
    "ALTER DATABASE": "RENAME DATABASE is",
    "ATTACH": "read_part reads a part of ClickHouse's, Table.append takes its rows; UNDROP TABLE brings a table back",
    "BACKUP": "A warehouse is its objects: copy them",
    "BEGIN": _COMMIT,
    "CHECK GRANT": _PERMISSIONS,
    "COMMIT": _COMMIT,
    "CREATE": _TABLES,
    "CREATE LIVE VIEW": _VIEWS,
    "CREATE MATERIALIZED VIEW": _VIEWS,
    "CREATE WINDOW VIEW": _VIEWS,
    "DELETE": "DELETE FROM t [IN PARTITION p] WHERE … is",
    "DESCRIBE": "DESCRIBE TABLE and DESCRIBE (SELECT …) are",
    "DETACH": "DROP removes, RENAME hides",
    "DROP": _TABLES,
    "EXCHANGE": "EXCHANGE TABLES is",
    "EXECUTE": _PERMISSIONS,
    "EXISTS": "EXISTS TABLE, VIEW and DATABASE are",
    "EXPLAIN": "EXPLAIN of a SELECT is, as PLAN, indexes = 1, SYNTAX or AST",
    "GRANT": _PERMISSIONS,
    "INSERT": "INSERT INTO t [(a, b)] VALUES, FORMAT or SELECT is",
    "KILL": "KILL MUTATION is; Ctrl-C ends a statement, and so does Database.cancel from another thread",
    "MOVE": _PERMISSIONS,
    "OPTIMIZE": "OPTIMIZE TABLE t [PARTITION …] [FINAL] is",
    "RENAME": "RENAME TABLE a TO b and RENAME DATABASE a TO b are",
    "REPLACE": _TABLES,
    "RESTORE": "A warehouse is its objects: copy them",
    "REVOKE": _PERMISSIONS,
    "ROLLBACK": _COMMIT,
    "SET": "SET name = value is",
    "SHOW": _SYSTEM,
    "SHOW CREATE": "SHOW CREATE TABLE and SHOW CREATE VIEW are",
    "START": _COMMIT,
    "SYSTEM": "A table here has no server to command; merges run in `mergelake node` or by OPTIMIZE",
    "TABLE": "Write SELECT * FROM the table",
    "UPDATE": "UPDATE t SET a = x, … [IN PARTITION p] WHERE … is",
    "VALUES": "Write SELECT * FROM values(…)",
    "WATCH": "There are no live views",
}
"""First words of a statement -> hint; the longest match counts."""
_ANYWHERE = {
    "ON CLUSTER": "Leave ON CLUSTER out: every process sees the warehouse at once",
    "PARALLEL WITH": "Write one statement after the other",
    "TEMPORARY": "There are no temporary tables",
    "IF EMPTY": "Look with SELECT count() first",
}
_NAMED = frozenset(
    (
        "TABLE", "TABLES", "DATABASE", "DATABASES", "VIEW", "VIEWS", "DICTIONARY", "DICTIONARIES", "FUNCTION",
        "FUNCTIONS", "USER", "ROLE", "QUOTA", "PROFILE", "SETTINGS", "ROW", "POLICY", "MASKING", "NAMED", "COLLECTION",
        "WORKLOAD", "RESOURCE", "INDEX", "UNIQUE", "OR", "REPLACE", "TEMPORARY", "MATERIALIZED", "LIVE", "WINDOW",
        "FULL", "CREATE", "CHANGED", "GRANT", "TRANSACTION", "CURRENT", "QUERY", "FILESYSTEM", "CACHE", "CACHES",
        "MUTATION", "AS", "SETTING",
    )
)  # fmt: skip
"""Words after the first that belong to the name of a statement."""


def refused(text: str, start: int = 0) -> MergelakeError:
    """NOT_IMPLEMENTED for the statement that begins at `start`, by its first words."""
    words = _first_words(text, start)
    named = " ".join(words)
    return error("NOT_IMPLEMENTED", f"{named} is not supported", _hint(words, text[start:]))


def judged_syntax(text: str, failure: MergelakeError) -> MergelakeError:
    """The SYNTAX_ERROR of a statement; NOT_IMPLEMENTED in its place if ClickHouse can read it."""
    if not isinstance(failure, UnexpectedTokenError) or len(text) > _ASKED_MAX or not engine.available():
        return failure
    try:
        engine.run(f"SELECT formatQuery({quote_string(text)})", settings={"implicit_select": "0"})
    except MergelakeError:
        return failure
    words = _first_words(text, 0)
    what = f"This form of {' '.join(words)} is not supported (at {failure.found})"
    return error("NOT_IMPLEMENTED", what, _hint(words, text))


def _first_words(text: str, at: int) -> list[str]:
    words: list[str] = []
    while True:
        token = next_token(text, at)
        if not token.upper.isalpha() or (words and token.upper not in _NAMED):
            return words or [token.text[:40]]
        words.append(token.upper)
        at = token.end


def _hint(words: list[str], text: str) -> str:
    spaced = " ".join(text.upper().split())
    for phrase, hint in _ANYWHERE.items():
        if f" {phrase} " in f"{spaced} ":
            return hint
    beginnings = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    return next((HINTS[words] for words in beginnings if words in HINTS), "SELECT, CREATE, INSERT, SHOW, … are")
