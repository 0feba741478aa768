"""The result of one step as a table of the next: Native bytes, with names and exact types."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from mergelake.core.base.errors import InternalError, error
from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.types.types import DataType
from mergelake.query.source import ArrowScan, AsOf, Layers, ReadRequest, Source


def file_table(path: str, columns: Mapping[str, str]) -> str:
    """A table function that reads Native bytes; `columns` are names and types, because Native omits time zones."""
    return f"file({quote_string(path)}, Native, {structure(columns)})"


def structure(columns: Mapping[str, str]) -> str:
    """Names and types as a literal for a table function."""
    return quote_string(", ".join(f"{back_quote(name)} {kind}" for name, kind in columns.items()))


class GivenTable:
    """A table whose columns are known when a statement is planned, and its rows when it runs."""

    def __init__(self, name: str, columns: Mapping[str, DataType], types: Sequence[str], folder: Path) -> None:
        """`types` are ClickHouse's names of the column types; the rows will be stored in `folder`."""
        self.name = name
        self.columns = columns
        self.computed: Mapping[str, tuple[DataType, str]] = {}
        self.hidden: frozenset[str] = frozenset()
        self.types: Mapping[str, str] = dict(zip(columns, types, strict=True))
        self._path = folder / f"{name}.native"

    def put(self, data: bytes) -> None:
        """Store the rows, as Native."""
        self._path.write_bytes(data)

    def bytes(self) -> bytes:
        """The rows, as Native."""
        return self._path.read_bytes()

    @property
    def version(self) -> Hashable:
        """Names and types of the columns."""
        return self.name, tuple(self.types.items())

    def exact_rows(self) -> int | None:
        """None: not known when the statement is planned."""
        return None

    @property
    def takes_final(self) -> bool:
        """False: there is no engine."""
        return False

    def can_filter(self, predicate: str) -> bool:
        """False: filtering before ClickHouse saves nothing."""
        return False

    def scans_sooner(self, wanted: ReadRequest) -> bool:
        """False: it is never scanned."""
        return False

    def at(self, moment: AsOf) -> Source:
        """Raise an error: a result has no history."""
        raise error("NOT_IMPLEMENTED", "This table has no older versions", "Leave out AS OF")

    def plan(self, wanted: ReadRequest) -> ArrowScan:
        """Raise an error: it is never scanned."""
        raise InternalError("An answer is read by ClickHouse alone")

    def why_scanned(self, wanted: ReadRequest, *, count: bool = False, must: bool = False) -> str:
        """Empty: ClickHouse reads the file."""
        return ""

    def shared(self, wanted: ReadRequest) -> None:
        """None: it has no parts."""

    @contextmanager
    def attached(self, wanted: ReadRequest, *, must: bool = False) -> Iterator[Layers]:
        """Context with a table function that reads the file."""
        yield Layers(((file_table(str(self._path), self.types), ()),))
