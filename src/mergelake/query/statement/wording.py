"""Translation of ClickHouse's errors for the rewritten statement to the user's statement."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from mergelake.core.base.errors import MergelakeError, error, there_are
from mergelake.core.base.lexer import syntax_error
from mergelake.core.base.text import quote_string
from mergelake.query.embedded import engine
from mergelake.query.source import Source
from mergelake.query.statement.parsed_select import ParsedSelect
from mergelake.scan.prune.request import NOT_GIVEN, VIRTUAL_COLUMNS

_EXPECTED_MAX = 160
"""Maximum characters of the list of expected tokens in an error."""


def in_words(failure: MergelakeError, parsed: ParsedSelect, sources: Sequence[Source]) -> MergelakeError:
    """ClickHouse's error; for an unknown column with the most similar one."""
    if failure.name == "UNKNOWN_IDENTIFIER" and not failure.hint:
        virtual = re.search(r"[`'.](_\w+)[`']", failure.message)
        if virtual is not None and virtual[1] in NOT_GIVEN:
            what = f"The virtual column {virtual[1]} is not supported"
            return error(
                "NOT_IMPLEMENTED", what, f"There are {', '.join(VIRTUAL_COLUMNS)}; system.parts tells of parts"
            )
        known = [column for source in sources for column in (*source.columns, *source.computed)]
        match = re.search(r"`([^`]+)`", failure.message)
        name = match.group(1).rsplit(".", 1)[-1] if match else ""
        near = difflib.get_close_matches(name, (each for each in known if each != name), n=1)
        failure.hint = f"Maybe you meant {near[0]}" if near else there_are("columns", known) if known else ""
    elif failure.name == "SYNTAX_ERROR" and not failure.message.startswith("Syntax error at"):
        return in_own_words(parsed)
    return failure


def without_moments(parsed: ParsedSelect) -> str:
    """The user's text with blanks in place of AS OF …, which ClickHouse does not support."""
    text = parsed.text
    for start, end in (o.as_of_at for o in parsed.references if o.as_of_at is not None):
        text = text[:start] + " " * len(text[start:end]) + text[end:]
    return text


def check_syntax(parsed: ParsedSelect) -> None:
    """Raise the SYNTAX_ERROR of a statement that ClickHouse cannot read."""
    try:
        engine.run(f"SELECT formatQuery({quote_string(without_moments(parsed))})")
    except MergelakeError:
        raise in_own_words(parsed) from None


def in_own_words(parsed: ParsedSelect) -> MergelakeError:
    """The syntax error with its position in the user's text rather than in the rewritten one."""
    text = without_moments(parsed)
    try:
        engine.run(f"SELECT formatQuery({quote_string(text)})")
    except MergelakeError as told:
        place = re.search(
            r"failed at position (\d+)(?: \((.*?)\))?(?: \(line \d+, col \d+\))?:", told.message, re.DOTALL
        )
        wanted = re.search(r"(?:Expected one of|Unmatched parentheses): .*", told.message, re.DOTALL)
        if place is not None:
            at = len(text.encode()[: int(place[1]) - 1].decode(errors="ignore"))
            rest = wanted.group() if wanted is not None else ""
            if len(rest) > _EXPECTED_MAX:
                rest = rest[:_EXPECTED_MAX].rpartition(",")[0] + ", …"
            return syntax_error(parsed.text, at, f"unexpected {place[2] or 'text'}. {rest}".rstrip(". "))
    what = "ClickHouse cannot read the statement once its tables are replaced by scans"
    inserts = any(token.upper == "INSERT" for token in parsed.tokens)
    return error("NOT_IMPLEMENTED", what, "Write INSERT INTO t WITH … SELECT" if inserts else "")
