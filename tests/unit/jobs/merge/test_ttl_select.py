"""Which merges a TTL asks for: the part that was due first, its due neighbours, and how long a partition rests then."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import pytest

from mergelake.core.model.manifest import PartManifest, encode_files
from mergelake.core.model.names import PartInfo
from mergelake.core.model.settings import TableSettings
from mergelake.core.model.ttl import TtlInfo
from mergelake.engines.ttl.ttl import TableTtl, table_ttl
from mergelake.jobs.merge.ttl import DELETED, RECOMPRESSED
from mergelake.jobs.merge.ttl_select import TtlMemory, TtlMerge, expired_parts, partition_times, select_ttl_merge
from mergelake.table.definition.define import define

NOW, LIMIT = 1_000_000, 1 << 30
ROWS = table_ttl(define({"d": "DateTime", "k": "UInt8"}, order_by="k", ttl="d"))
WHERE = table_ttl(define({"d": "DateTime", "k": "UInt8"}, order_by="k", ttl="d DELETE WHERE k = 1"))
CODECS = table_ttl(
    define(
        {"d": "DateTime", "k": "UInt8"},
        order_by="k",
        ttl=["d RECOMPRESS CODEC(ZSTD(5))", "d + 100 RECOMPRESS CODEC(LZ4HC(3))"],
    )
)


@dataclass(frozen=True)
class Part:
    info: PartInfo
    manifest: PartManifest


def parts(ttl: TableTtl, *times: tuple[int, int] | None, size: int = 10, **more: tuple[int, int]) -> list[Part]:
    """Parts with these earliest and latest times by each element; None: not known."""
    found = []
    for at, pair in enumerate(times, 1):
        known = {element.key: TtlInfo(*pair).packed() for element in ttl.elements} if pair is not None else {}
        manifest = PartManifest(
            f"{at:032x}", "all", 5, encode_files(()), bytes_on_disk=size, ttl={**known, **more} if at == 1 else known
        )
        found.append(Part(PartInfo("all", at, at, 0), manifest))
    return found


def chosen(found: TtlMerge[Part] | None) -> tuple[str, list[int]] | None:
    return None if found is None else (found.kind, [part.info.min_block for part in found.parts])


def select(ttl: TableTtl, given: list[Part], now: int = NOW, bytes_max: int = LIMIT, **settings: object) -> object:
    return chosen(select_ttl_merge(given, ttl, TableSettings(settings), now, bytes_max=bytes_max))


# M-044
def test_the_part_that_was_due_first_takes_its_due_neighbours_along() -> None:
    later, due, first = (NOW + 5, NOW + 9), (NOW - 5, NOW + 9), (NOW - 100, NOW + 9)
    assert select(ROWS, parts(ROWS, later, due, first, due, later, due)) == ("ttl_delete", [2, 3, 4])
    assert select(ROWS, parts(ROWS, due, later, first)) == ("ttl_delete", [3])
    assert select(ROWS, parts(ROWS, later, later)) is None
    assert select(ROWS, parts(ROWS, None, None)) is None
    # Left before right, as far as they fit.
    assert select(ROWS, parts(ROWS, due, due, first, due), bytes_max=30) == ("ttl_delete", [1, 2, 3])


# M-044, M-029
@pytest.mark.parametrize(
    ("ttl", "name", "setting", "kind"),
    [
        (ROWS, DELETED, "merge_with_ttl_timeout", "ttl_delete"),
        (CODECS, RECOMPRESSED, "merge_with_recompression_ttl_timeout", "ttl_recompress"),
    ],
)
def test_a_partition_rests_after_such_a_merge(ttl: TableTtl, name: str, setting: str, kind: str) -> None:
    latest = NOW + 9 if ttl is ROWS else NOW - 500
    given = parts(ttl, (NOW - 900, latest), (NOW - 800, latest), **{name: (NOW - 3600, NOW - 3600)})
    assert select(ttl, given) is None
    assert select(ttl, given, **{setting: 3601}) is None
    assert select(ttl, given, **{setting: 3600}) == (kind, [1, 2])
    times = partition_times(given, ttl, TableSettings())
    assert (times.drop, times.merge) == (latest if ttl is ROWS else inf, NOW - 3600 + 14400)


def test_parts_of_which_no_row_stays_are_dropped_and_not_merged() -> None:
    given = parts(ROWS, (5, NOW), (5, NOW + 1), (0, 0), (0, 4))
    assert [part.info.min_block for part in expired_parts(given, ROWS, NOW)] == [1, 4]
    assert [part.info.min_block for part in expired_parts(given, ROWS, NOW, {given[0].manifest.id})] == [4]
    assert select(ROWS, given) == ("ttl_delete", [2])
    assert select(ROWS, given, ttl_only_drop_parts=1) is None


def test_without_a_ttl_of_the_table_parts_that_are_all_over_are_merged_at_once() -> None:
    given = parts(WHERE, (5, NOW - 1), (5, NOW + 1), **{DELETED: (NOW - 1, NOW - 1)})
    assert not expired_parts(given, WHERE, NOW)
    assert select(WHERE, given) == ("ttl_drop", [1])
    assert select(WHERE, given, ttl_only_drop_parts=1) == ("ttl_drop", [1])


def test_a_finished_element_asks_for_nothing() -> None:
    (part,) = parts(WHERE, (5, NOW - 1))
    done = {key: (*values, 1) for key, values in part.manifest.ttl.items()}
    finished = Part(part.info, PartManifest("1" * 32, "all", 5, encode_files(()), ttl=done))
    assert select(WHERE, [finished]) is None


def test_what_was_applied_is_not_asked_for_again_beside_an_element_that_concerns_no_row() -> None:
    schema = define({"d": "DateTime", "k": "UInt8"}, order_by="k", ttl="d WHERE d = 9, d GROUP BY k")
    ttl = table_ttl(schema)
    (where,), (group,) = ttl.wheres, ttl.groups
    done = {where.key: (0, 0), group.key: (5, NOW - 1, 1)}
    part = Part(PartInfo("all", 1, 1, 0), PartManifest("1" * 32, "all", 5, encode_files(()), ttl=done))
    assert select(ttl, [part]) is None
    assert partition_times([part], ttl, TableSettings()).merge == inf
    (fresh,) = parts(ttl, (5, NOW - 1))
    assert select(ttl, [fresh]) == ("ttl_drop", [1])


def test_the_latest_recompression_decides() -> None:
    (part,) = parts(CODECS, (NOW - 50, NOW - 50))
    keys = [element.key for element in CODECS.recompressions]

    def with_times(*times: tuple[int, ...]) -> list[Part]:
        held = dict(zip(keys, times, strict=True))
        return [Part(part.info, PartManifest("1" * 32, "all", 5, encode_files(()), ttl=held))]

    assert select(CODECS, with_times((9, NOW - 50), (9, NOW + 50))) == ("ttl_recompress", [1])
    assert select(CODECS, with_times((9, NOW - 50, 1), (9, NOW + 50))) is None
    assert select(CODECS, with_times((9, NOW - 50, 1), (9, NOW - 40))) == ("ttl_recompress", [1])
    assert select(CODECS, with_times((9, NOW - 50), (9, NOW - 40, 1))) is None


def test_a_memory_knows_when_a_partition_is_due() -> None:
    given = parts(ROWS, (NOW + 10, NOW + 20), (NOW + 5, NOW + 30))
    memory = TtlMemory[Part](ROWS, TableSettings())
    memory.update(["all", "other"], lambda name: given if name == "all" else [])
    assert [memory.merges(NOW + at) for at in (4, 5)] == [[], ["all"]]
    assert [memory.drops(NOW + at) for at in (19, 20)] == [[], ["all"]]
    memory.update(["all"], lambda name: [])
    assert not memory.merges(NOW + 99)
