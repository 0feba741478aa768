"""What a stock ClickHouse sees of a table: the names below `__meta`, and what must be true of them at any time.

It knows names only: one that covers another takes its place, two that cross stop it, and one that nothing covers is
read from its files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenlet import getcurrent

from mergelake.core.model.names import PartInfo
from mergelake.jobs.publish.plan import part_of
from mergelake.log.model.retention import reachable
from tests.simulation.keepers import SHOWN_GRACE_S
from tests.simulation.tiny import Rows

if TYPE_CHECKING:
    from tests.simulation.table import Table


class Shown:
    """The names of one table, as they come and go."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.names: dict[str, PartInfo] = {}
        """By token."""
        self.since_s: dict[str, float] = {}
        self.given_by: dict[str, str] = {}
        """Token -> the process that put the name last."""
        self.needed: set[str] = set()
        """Tokens that the table needed when they were named."""

    def on_change(self, key: str, data: bytes | None) -> None:
        inner = key.removeprefix(f"{self.table.directory}/")
        if inner.startswith("__meta/"):
            token = inner.split("/")[1]
            if data is None:
                self.on_unnamed(token)
            else:
                self.on_named(token, PartInfo.parse(data.decode().rstrip("/")))
        elif data is None and (token := inner.partition("/")[0]) in self.needed:
            raise AssertionError(f"{key} was deleted, and ClickHouse is shown {self.names[token]}")

    def on_named(self, token: str, info: PartInfo) -> None:
        for other in self.names.values():
            apart = not info.intersects(other) or info.covers(other) or other.covers(info) or info == other
            assert apart, f"ClickHouse is shown {info} and {other}, which cross"
        if token.startswith("drop-"):
            parts = self.table.state.partitions.get(info.partition_id, ())
            hidden = [part.name for part in parts if info.covers(part.info)]
            assert not hidden, f"ClickHouse is shown the empty part {info} over {hidden}"
        if token not in self.names:
            self.since_s[token] = self.table.bucket.kernel.now_s
        self.names[token] = info
        self.given_by[token] = getattr(getattr(getcurrent(), "process", None), "name", "")
        if part_of(token) in reachable(self.table.state):
            self.needed.add(token)

    def on_unnamed(self, token: str) -> None:
        """Only what is covered, and was for a while, what the table does not need any more, or what is not there."""
        info = self.names.pop(token, None)
        since_s, needed = self.since_s.pop(token, 0.0), token in self.needed
        self.needed.discard(token)
        if info is None or not needed or not self.files_of(token):
            return
        if part_of(token) not in reachable(self.table.state):
            return  # who named it stood still meanwhile, and takes the name back
        now_s = self.table.bucket.kernel.now_s
        covers = [other for other, above in self.names.items() if above != info and above.covers(info)]
        assert covers, f"ClickHouse was shown {info} for {now_s - since_s:.0f} s, and nothing covers it"
        for_s = max(now_s - self.since_s[other] for other in covers)
        assert for_s >= SHOWN_GRACE_S - 1, f"{info} was covered for {for_s:.0f} s when its name went"

    def files_of(self, token: str) -> bool:
        return f"{self.table.directory}/{token}/data.bin" in self.table.bucket.objects

    def visible(self) -> dict[str, list[str]]:
        """Partition -> tokens of what ClickHouse reads, in block order."""
        out: dict[str, list[str]] = {}
        for token in sorted(self.names, key=lambda token: self.names[token]):
            info = self.names[token]
            if not any(above.covers(info) and above != info for above in self.names.values()):
                out.setdefault(info.partition_id, []).append(token)
        return out

    def check_rows(self) -> None:
        """At rest: what ClickHouse reads are the rows of the newest version, each once."""
        seen: dict[str, Rows] = {}
        for partition_id, tokens in self.visible().items():
            rows: list = []
            for token in tokens:
                assert self.files_of(token), f"ClickHouse is shown {self.names[token]}, which has no files"
                rows += self.table.model.known.get(part_of(token), ())
            seen[partition_id] = tuple(rows)
        state = self.table.state
        for partition_id in {*seen, *state.partitions}:
            held = state.partitions.get(partition_id, ())
            there = tuple(row for part in held for row in self.table.model.known[part.manifest.id])
            assert seen.get(partition_id, ()) == there, f"ClickHouse reads {seen.get(partition_id)}, not {there}"
