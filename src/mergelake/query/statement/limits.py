"""How long a statement may be, and how much it may read of our tables: `max_query_size`, `max_rows_to_read`, ….

ClickHouse counts what it reads itself; our rows reach it as streams, which it does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mergelake.core.errors import MergelakeError, error
from mergelake.query.source import Scan

_QUERY_SIZE = "262144"


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Most rows, bytes and partitions; 0 (and for partitions -1) is no limit."""

    rows: int = 0
    """Of each table, counted by the marks that are left after pruning, as ClickHouse does before it reads."""
    bytes: int = 0
    """Of all columns in memory."""
    partitions: int | None = None
    """Of each table; None for what the table's own setting says."""

    @property
    def settings(self) -> dict[str, str]:
        """Those that are set, as settings of ClickHouse."""
        partitions = {} if self.partitions is None else {"max_partitions_to_read": str(self.partitions)}
        numbers = {"max_rows_to_read": self.rows, "max_bytes_to_read": self.bytes}
        return partitions | {name: str(number) for name, number in numbers.items() if number}

    def check(self, scans: Iterable[Scan]) -> None:
        """TOO_MANY_ROWS or TOO_MANY_PARTITIONS for a planned scan of more; nothing has been read yet."""
        for scan in scans:
            if self.rows and scan.rows > self.rows:
                raise _exceeded("TOO_MANY_ROWS", "max_rows_to_read", "rows", self.rows, scan.rows)
            limit = scan.partitions_max if self.partitions is None else self.partitions
            if limit > 0 and (partitions := scan.partitions) > limit:
                raise _exceeded("TOO_MANY_PARTITIONS", "max_partitions_to_read", "partitions", limit, partitions)

    def check_bytes(self, bytes_read: int) -> None:
        """TOO_MANY_BYTES once more have been read."""
        if self.bytes and bytes_read > self.bytes:
            raise _exceeded("TOO_MANY_BYTES", "max_bytes_to_read", "bytes", self.bytes, bytes_read)


def read_limits(settings: Mapping[str, str]) -> ReadLimits:
    """The limits in settings whose values are plain text."""
    partitions = settings.get("max_partitions_to_read")
    return ReadLimits(
        int(settings.get("max_rows_to_read", "0")),
        int(settings.get("max_bytes_to_read", "0")),
        None if partitions is None else int(partitions),
    )


def check_size(text: str, settings: Mapping[str, str]) -> None:
    """SYNTAX_ERROR, as in ClickHouse, for a statement of more bytes than `max_query_size` (0: any).

    ClickHouse itself would measure the statement that it is given, which is not the one that was written.
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
