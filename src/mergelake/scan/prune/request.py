"""The request of a scan: columns, conditions, limit."""

from __future__ import annotations

from dataclasses import dataclass

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.types.types import STRING, DataType, Int, LowCardinality

VIRTUAL_COLUMNS: dict[str, DataType] = {
    "_part": LowCardinality(STRING),
    "_partition_id": LowCardinality(STRING),
    "_part_offset": Int(64, signed=False),
}
"""Columns that every table has without storing them: the location of a row."""
NOT_GIVEN = (
    "_part_index", "_part_starting_offset", "_part_uuid", "_part_granule_offset", "_part_data_version",
    "_partition_value", "_sample_factor", "_disk_name", "_distance", "_table", "_database", "_row_exists",
    "_block_number", "_block_offset",
)  # fmt: skip
"""Virtual columns of ClickHouse that are not supported here."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """Columns, conditions as ClickHouse text, and options of a read."""

    columns: tuple[str, ...] | None = None
    """Columns of the result in order, virtual and ALIAS columns too; None for those of `SELECT *`."""
    where: str | None = None
    prewhere: str | None = None
    """Conditions to evaluate first; those of `where` are ordered automatically."""
    final: bool = False
    """Rows as if all parts were merged (engines that collapse rows)."""
    sample: float | None = None
    """Fraction of the range of the sampling key, above 0 and up to 1."""
    sample_offset: float = 0.0
    """Fraction of that range at which the sample begins."""
    limit: int | None = None
    """Maximum number of rows: any rows, or the first ones of an ordered read."""
    ordered: bool = False
    """Rows in the order of the sorting key over all parts; rows of one key in the order of parts, then of the part."""
    now_ms: int | None = None
    """Epoch milliseconds of `now()` in the conditions; None refuses it."""

    def __post_init__(self) -> None:
        for name in ("final", "ordered"):
            if not isinstance(getattr(self, name), bool):  # any non-empty text would count as true
                raise _no(name, getattr(self, name), "True or False")
        for name in ("where", "prewhere"):
            if not isinstance(getattr(self, name), str | None):
                raise _no(name, getattr(self, name), "a ClickHouse expression as text")
        if isinstance(self.sample, bool) or not isinstance(self.sample, int | float | None):
            raise _no("sample", self.sample, "a number")
        if isinstance(self.limit, bool) or not isinstance(self.limit, int | None):
            raise _no("limit", self.limit, "a whole number")
        if self.sample is not None and not 0 < self.sample <= 1:
            raise error("ARGUMENT_OUT_OF_BOUND", f"SAMPLE {self.sample} is not between 0 and 1")
        if not 0 <= self.sample_offset < 1:
            raise error("ARGUMENT_OUT_OF_BOUND", f"The OFFSET {self.sample_offset} of SAMPLE is not between 0 and 1")
        if self.limit is not None and self.limit < 0:
            raise error("ARGUMENT_OUT_OF_BOUND", f"LIMIT {self.limit} is negative")


def _no(name: str, value: object, wanted: str) -> MergelakeError:
    return error("TYPE_MISMATCH", f"{name} is {value!r}", f"Give {wanted}")
