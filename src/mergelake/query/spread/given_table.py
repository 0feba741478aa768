"""The answer of one statement as a table of the next: Native bytes, with names and exact types."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from mergelake.core.errors import InternalError, error
from mergelake.core.text import back_quote, quote_string
from mergelake.core.types import DataType
from mergelake.query.source import ArrowScan, AsOf, Layers, ReadRequest, Source


def file_table(path: str, columns: Mapping[str, str]) -> str:
    """A table function that reads Native bytes; `columns` are names and types, for Native itself forgets time zones."""
    return f"file({quote_string(path)}, Native, {structure(columns)})"


def structure(columns: Mapping[str, str]) -> str:
    """Names and types as a table function takes them: a literal."""
    return quote_string(", ".join(f"{back_quote(name)} {kind}" for name, kind in columns.items()))


class GivenTable:
    """A table that is known by its columns when a statement is planned, and has rows when it runs."""

    def __init__(self, name: str, columns: Mapping[str, DataType], types: Sequence[str], folder: Path) -> None:
        """`types` are ClickHouse's names of those of the columns; the rows will lie in `folder`."""
        self.name = name
        self.columns = columns
        self.computed: Mapping[str, tuple[DataType, str]] = {}
        self.hidden: frozenset[str] = frozenset()
        self.types: Mapping[str, str] = dict(zip(columns, types, strict=True))
        self._path = folder / f"{name}.native"

    def put(self, data: bytes) -> None:
        """Its rows."""
        self._path.write_bytes(data)

    def bytes(self) -> bytes:
        """Its rows, as Native."""
        return self._path.read_bytes()

    @property
    def version(self) -> Hashable:
        """The columns themselves."""
        return self.name, tuple(self.types.items())

    def exact_rows(self) -> int | None:
        """Not known when the statement is planned."""
        return None

    def can_filter(self, predicate: str) -> bool:
        """ClickHouse filters; nothing is gained before it."""
        return False

    def scans_sooner(self, wanted: ReadRequest) -> bool:
        """It is never scanned."""
        return False

    def at(self, moment: AsOf) -> Source:
        """An answer has no history."""
        raise error("NOT_IMPLEMENTED", "This table has no older versions", "Leave out AS OF")

    def plan(self, wanted: ReadRequest) -> ArrowScan:
        """It is never scanned."""
        raise InternalError("An answer is read by ClickHouse alone")

    def why_scanned(self, wanted: ReadRequest, *, count: bool = False, must: bool = False) -> str:
        """ClickHouse reads it by itself."""
        return ""

    def shared(self, wanted: ReadRequest) -> None:
        """It has no parts."""

    @contextmanager
    def attached(self, wanted: ReadRequest, *, must: bool = False) -> Iterator[Layers]:
        """The file."""
        yield Layers(((file_table(str(self._path), self.types), ()),))
