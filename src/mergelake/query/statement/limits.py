"""Limits of the length of a statement and of what it reads: `max_query_size`, `max_rows_to_read`, ….

ClickHouse only counts what it reads by itself, not the rows of scans, which it gets as streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mergelake.core.base.errors import MergelakeError, error
from mergelake.query.source import SourceScan

_QUERY_SIZE = "262144"


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Maximum rows, bytes and partitions; 0 (for partitions also -1) means no limit."""

    rows: int = 0
    """Rows of each table in the marks after pruning; as in ClickHouse, checked before reading."""
    bytes: int = 0
    """Bytes of all columns in memory."""
    partitions: int | None = None
    """Partitions of each table; None for the table's setting."""

    @property
    def settings(self) -> dict[str, str]:
        """The limits as settings for ClickHouse."""
        partitions = {} if self.partitions is None else {"max_partitions_to_read": str(self.partitions)}
        numbers = {"max_rows_to_read": self.rows, "max_bytes_to_read": self.bytes}
        return partitions | {name: str(number) for name, number in numbers.items() if number}

    def check(self, scans: Iterable[SourceScan]) -> None:
        """Raise TOO_MANY_ROWS or TOO_MANY_PARTITIONS for a planned scan that exceeds the limits."""
        for scan in scans:
            if self.rows and scan.rows > self.rows:
                raise _exceeded("TOO_MANY_ROWS", "max_rows_to_read", "rows", self.rows, scan.rows)
            limit = scan.partitions_max if self.partitions is None else self.partitions
            if limit > 0 and (partitions := scan.partitions) > limit:
                raise _exceeded("TOO_MANY_PARTITIONS", "max_partitions_to_read", "partitions", limit, partitions)

    def check_bytes(self, bytes_read: int) -> None:
        """Raise TOO_MANY_BYTES if `bytes_read` exceeds the limit."""
        if self.bytes and bytes_read > self.bytes:
            raise _exceeded("TOO_MANY_BYTES", "max_bytes_to_read", "bytes", self.bytes, bytes_read)


def read_limits(settings: Mapping[str, str]) -> ReadLimits:
    """The limits in settings with plain text values."""
    partitions = settings.get("max_partitions_to_read")
    return ReadLimits(
        int(settings.get("max_rows_to_read", "0")),
        int(settings.get("max_bytes_to_read", "0")),
        None if partitions is None else int(partitions),
    )


def check_size(text: str, settings: Mapping[str, str]) -> None:
    """Raise ClickHouse's SYNTAX_ERROR for a statement of more than `max_query_size` bytes (0: no limit).

    ClickHouse itself would check the rewritten statement, not the user's.
    """
    limit = int(settings.get("max_query_size", _QUERY_SIZE))
    if limit and (size := len(text.encode("utf-8", "surrogatepass"))) > limit:
        what = "Max query size exceeded (can be increased with the `max_query_size` setting)"
        hint = "A long list of values may stand in a table: WHERE k IN (SELECT k FROM …)"
        raise error("SYNTAX_ERROR", f"{what}: {size} of {limit} bytes", hint)


def _exceeded(name: str, setting: str, what: str, limit: int, actual: int) -> MergelakeError:
    return error(
        name,
        f"Limit for {what} (controlled by '{setting}' setting) exceeded, max {what}: {limit}, current {what}: {actual}",
        "Narrow the conditions, or raise the setting",
    )
