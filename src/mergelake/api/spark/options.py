"""Parsing of the options of `format("mergelake")` (pure).

Spark passes options with lower-case names and text values, unchecked. Unknown names are refused here, with the most
similar known one; case and underscores are ignored (`dedup_token` is `dedupToken`), and Delta's names for time travel
are accepted too. Options with the prefix `store.` go to the object store, which validates them when it is opened.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.lexer import BACK_QUOTED
from mergelake.core.base.text import unescape
from mergelake.core.model.settings import truth
from mergelake.scan.prune.request import ScanRequest
from mergelake.table.handle.handle import epoch_ms
from mergelake.table.volatile.volatile_reads import OFF, volatile_mode

STORE = "store."
"""What the names of options of the object store begin with."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of `format("mergelake")`."""

    name: str
    description: str
    """For the documentation: Markdown, one line."""
    aliases: tuple[str, ...] = ()
    """Other names that are taken."""


_PATH = Option("path", "URL or absolute path of the table, `<warehouse>/<database>.<table>`; `load` and `save` set it")
READ_OPTIONS = (
    _PATH,
    Option(
        "version", "The version to read: its number, or the name of a tag (default: the newest one)", ("versionAsOf",)
    ),
    Option("tag", "The version to read, by the name of a tag"),
    Option(
        "timestamp",
        "The version to read, as of a time such as `2026-01-31 12:00:00`; UTC unless it has a zone",
        ("timestampAsOf",),
    ),
    Option("timestampMs", "The version to read, as of a time in milliseconds since 1970-01-01 UTC"),
    Option(
        "columns",
        "Names of the columns to read, separated by commas; a name with a comma is written in back-quotes "
        "(default: all columns)",
    ),
    Option("where", "A ClickHouse expression: only rows for which it is true are read; parts and granules are pruned"),
    Option("final", "`true`: rows as if all parts were merged, as by FINAL (default: `false`)"),
    Option(
        "readVolatile",
        "`peers`, or a directory of the disks of nodes: as the setting `read_volatile` of SQL, "
        "[volatile parts are read](merging.md#reads-see-volatile-parts) (default: `off`)",
    ),
    Option(
        "pushdown",
        "`true`: Spark's filters are pushed down, [for frames that are used once](design/0006-spark-filters.md) "
        "(default: `false`)",
    ),
)
"""Options for reading. One of `version`, `tag`, `timestamp` and `timestampMs` may be given."""
WRITE_OPTIONS = (
    _PATH,
    Option(
        "dedupToken",
        "A text that identifies this write: a later write with the same token adds nothing and succeeds "
        "([what is remembered](retention.md#inserts-that-are-repeated))",
    ),
    Option(
        "mergeSchema",
        "`true`: columns of the frame that the table lacks are added, in the same commit, and numbers made wider "
        "([how](spark.md#frames-with-more-columns)) (default: `false`)",
    ),
    Option(
        "replaceWhere",
        'With `mode("overwrite")`: a ClickHouse expression; the rows for which it is true are replaced, and all new '
        "ones must satisfy it ([overwriting](partitions.md#overwriting))",
    ),
    Option(
        "partitionOverwriteMode",
        'With `mode("overwrite")`: `static` replaces the whole table, `dynamic` the partitions of which the frame has '
        "rows (default: `static`)",
    ),
)
"""Options for writing."""
_STORE_WORDS = re.compile(
    r"(aws|google|azure|s3|fs)[._].*|.*(access_?key|secret|session_?token|endpoint|region|credential|signature).*"
    r"|log|sync|allow_http|(connect_)?timeout_s|max_retries|coalesce_gap|chunk_size|skip_signature|cache_(dir|bytes)",
    re.IGNORECASE,
)
_COLUMN = re.compile(rf"\s*(?:({BACK_QUOTED})|([^,`]+?))\s*(?:,|$)")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


_READ = tuple(option.name for option in READ_OPTIONS)
_WRITE = tuple(option.name for option in WRITE_OPTIONS)
_ALIASES = {_plain(alias): _plain(option.name) for option in READ_OPTIONS for alias in option.aliases}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of `spark.read`."""

    path: str
    store: Mapping[str, str]
    request: ScanRequest
    version: int | str | None = None
    """A version or a tag."""
    timestamp_ms: int | None = None
    pushdown: bool = False
    read_volatile: str = OFF


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of `df.write`."""

    path: str
    store: Mapping[str, str] = field(default_factory=dict)
    dedup_token: str | None = None
    merge_schema: bool = False
    replace_where: str | None = None
    dynamic: bool = False
    """`partitionOverwriteMode` is `dynamic`."""


def read_options(written: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a read. Raises UNKNOWN_SETTING for an unknown name, BAD_ARGUMENTS for an invalid value."""
    options, store = _known(written, _READ, _WRITE, "reading")
    moments = [name for name in ("version", "tag", "timestamp", "timestampMs") if name in options]
    if len(moments) > 1:
        raise _bad(f"The options {' and '.join(moments)} both say which version is meant", "Give one of them")
    request = ScanRequest(
        _columns(options["columns"]) if "columns" in options else None,
        options.get("where"),
        final=truth(options["final"], "The option final") if "final" in options else False,
    )
    if request.where is not None and not request.where.strip():
        raise _bad("The option where is empty", "Leave it out to read all rows")
    return ReadOptions(
        _path(options),
        store,
        request,
        _version(options),
        _moment(options),
        truth(options["pushdown"], "The option pushdown") if "pushdown" in options else False,
        volatile_mode(options.get("readVolatile", OFF)),
    )


def write_options(written: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a write. Errors: those of `read_options`."""
    options, store = _known(written, _WRITE, _READ, "writing")
    token = options.get("dedupToken")
    if token is not None and not token:
        raise _bad("The option dedupToken is empty", "Give each load a token of its own, or leave it out")
    merge = truth(options["mergeSchema"], "The option mergeSchema") if "mergeSchema" in options else False
    mode = options.get("partitionOverwriteMode", "static").lower()
    if mode not in ("static", "dynamic"):
        raise _bad(f"The option partitionOverwriteMode is '{mode}'", "It is static or dynamic")
    return WriteOptions(_path(options), store, token, merge, options.get("replaceWhere"), mode == "dynamic")


def _known(
    raw: Mapping[str, str], names_known: tuple[str, ...], other_names: tuple[str, ...], doing: str
) -> tuple[dict[str, str], dict[str, str]]:
    """(options by the names of `names_known`, options of the object store)."""
    names = {_plain(name): name for name in names_known}
    options: dict[str, str] = {}
    store: dict[str, str] = {}
    for spelling, value in raw.items():
        if spelling.lower().startswith(STORE):
            store[spelling[len(STORE) :].lower()] = str(value)
            continue
        plain = _plain(spelling)
        name = names.get(_ALIASES.get(plain, plain))
        if name is None:
            raise _unknown(spelling, names_known, other_names, doing)
        if name in options:
            raise _bad(f"The option {name} is given twice, once as {spelling}", "Give it once")
        options[name] = str(value)
    return options, store


def _unknown(written: str, known: tuple[str, ...], others: tuple[str, ...], doing: str) -> MergelakeError:
    plain = _plain(written)
    if plain == "paths":
        return _bad("Several paths are given", "Load each table by itself, and union the frames")
    if _ALIASES.get(plain, plain) in map(_plain, others):
        other = "writing" if doing == "reading" else "reading"
        return _bad(f"The option {written} is one for {other}, not for {doing}", f"Options are {', '.join(known)}")
    near = difflib.get_close_matches(plain, [*map(_plain, known), *_ALIASES], n=1)
    if _STORE_WORDS.fullmatch(written):
        hint = f"Options of the object store begin with {STORE}, as in {STORE}{written}"
    elif near:
        names = {_plain(name): name for name in known}
        hint = f"Maybe you meant {names.get(_ALIASES.get(near[0], near[0]), near[0])}"
    else:
        hint = f"Options are {', '.join(known)}, and those of the object store behind {STORE}"
    return error("UNKNOWN_SETTING", f"There is no option {written} for {doing}", hint)


def _bad(message: str, hint: str) -> MergelakeError:
    return error("BAD_ARGUMENTS", message, hint)


def _path(options: Mapping[str, str]) -> str:
    if not options.get("path"):
        raise _bad(
            "No path given",
            'Write .load or .save("<warehouse>/<database>.<table>"). Spark does not hand the path of a catalog table '
            "over: make a view of it, CREATE TEMPORARY VIEW … USING mergelake OPTIONS (path '…')",
        )
    return options["path"]


def _columns(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of names; names with commas or back-quotes are in back-quotes."""
    names: list[str] = []
    at = 0
    while at < len(text):
        match = _COLUMN.match(text, at)
        if match is None:
            raise _bad(f"The option columns is '{text}', not a list of names", "Write columns as a, b, `c,d`")
        names.append(unescape(match.group(1)) if match.group(1) else match.group(2))
        at = match.end()
    if not names or text.rstrip().endswith(","):
        raise _bad(f"The option columns is '{text}', not a list of names", "Leave it out to read all columns")
    return tuple(names)


def _version(options: Mapping[str, str]) -> int | str | None:
    for name in ("version", "tag"):
        text = options.get(name)
        if text is None:
            continue
        if not text.strip():
            raise _bad(f"The option {name} is empty", "Leave it out to read the newest version")
        return int(text) if name == "version" and text.isdecimal() else text
    return None


def _moment(options: Mapping[str, str]) -> int | None:
    if "timestamp" in options:
        return epoch_ms(options["timestamp"])
    text = options.get("timestampMs")
    if text is not None and not (text.isascii() and text.isdecimal()):
        raise _bad(
            f"The option timestampMs is '{text}', not milliseconds since 1970-01-01 UTC",
            "Write a time as timestamp '2026-01-31 12:00:00'",
        )
    return None if text is None else int(text)
