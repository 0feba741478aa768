"""The picture of a job: one scale for a thing, nothing over anything, and a sentence where there is nothing to draw."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pytest

from mergelake.api.cli.picture.drawing import PALETTE, SMALL, text_width
from mergelake.api.cli.picture.sheet import render_page, render_sheet
from mergelake.api.cli.picture.timeline import MergeFate, MergeLife, PartLife
from mergelake.api.cli.picture.values import WIDTH, Phase, QueryAnswer, Sheet

MIB = 1 << 20
START_MS = 1_767_225_600_000


def inserted(block: int, born_ms: int, died_ms: int | None = None) -> PartLife:
    name = f"all_{block}_{block}_0"
    return PartLife(name, name, block, block, 0, 20_000, MIB, START_MS + born_ms, died_ms and START_MS + died_ms, False)


def merged(first: int, last: int, level: int, born_ms: int) -> PartLife:
    name, blocks = f"all_{first}_{last}_{level}", last - first + 1
    return PartLife(name, name, first, last, level, 20_000 * blocks, MIB * blocks, START_MS + born_ms, None, True)


def merge(
    first: int, last: int, level: int, began_ms: int, ended_ms: int | None, outcome=MergeFate.BUCKET, volatile=True
):
    blocks = last - first + 1
    end = None if ended_ms is None else START_MS + ended_ms
    rows, size = 20_000 * blocks, MIB * blocks
    return MergeLife(level, blocks, first, last, rows, size, START_MS + began_ms, end, volatile, outcome)


ANSWERS = [
    QueryAnswer(
        "Errors by service",
        "SELECT service, count() FROM logs WHERE level = 'ERROR' GROUP BY service",
        5,
        0.353,
        0.1,
        True,
    ),
    QueryAnswer(
        "Long one", "SELECT " + ", ".join(f"column_{i}" for i in range(60)) + " FROM logs", 1, 0.004, 0.4, True
    ),
    QueryAnswer("A < B & C", "SELECT a < b AND '&' != '<' FROM logs", 12_345_678, 0.02, 0.03, False),
]
TILES = [
    ("2,000,000 rows", "in 51 commits: 54 parts inserted"),
    ("2 PUT, 0 GET, 0 LIST", "a small insert of 3 rows, 502 B"),
]


def usual(**changes) -> Sheet:
    lives = [inserted(1 + i, 500 * i, 12_000 if 12 <= i < 18 else None) for i in range(40)] + [
        merged(13, 18, 1, 12_000)
    ]
    merges = [
        merge(1, 6, 1, 3000, 9000, MergeFate.DISK),
        merge(7, 12, 1, 6000, 9000, MergeFate.DISK),
        merge(1, 12, 2, 9000, None, MergeFate.WAITING),
        merge(13, 18, 1, 11_900, 12_000),
        merge(19, 24, 1, 12_200, 19_400, MergeFate.GIVEN_UP),
        merge(25, 30, 1, 19_300, 19_500),
    ]
    phases = [Phase("bulk", START_MS - 3000, START_MS), Phase("batches", START_MS, START_MS + 19_500)]
    phases.append(Phase("the node uploads what is left", START_MS + 19_500, START_MS + 19_700))
    given = {
        "title": "rows & more",
        "tiles": TILES,
        "phases": phases,
        "lives": lives,
        "merges": merges,
        "answers": ANSWERS,
    }
    return Sheet(**(given | {"answers_note": "fastest of 3", "source": "the log"} | changes))


SHEETS = {
    "usual": usual(),
    "one insert": usual(lives=[inserted(1, 0)], merges=[], answers=[], phases=[], tiles=[]),
    "nothing": Sheet("nothing yet"),
    "all at once": usual(lives=[inserted(i + 1, 0) for i in range(4)], merges=[], phases=[]),
    "direct merges": usual(merges=[merge(13, 18, 1, 11_000, 12_000, volatile=False)]),
    "crowded": usual(
        lives=[inserted(i + 1, 100 * i) for i in range(400)],
        merges=[merge(6 * i + 1, 6 * i + 6, 1 + i % 4, 600 * i, 600 * i + 5000 * (i % 3)) for i in range(66)],
    ),
    "two moments": usual(lives=[inserted(1, 0), inserted(2, 300)], merges=[], phases=[]),
    "an hour": usual(lives=[inserted(1, 0), inserted(2, 5_000_000)], merges=[merge(1, 2, 1, 10_000, 4_000_000)]),
}
each_sheet = pytest.mark.parametrize("sheet", SHEETS.values(), ids=SHEETS)


def texts(sheet: Sheet) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(render_sheet(sheet)).iter("{http://www.w3.org/2000/svg}text"))


def box(each: ElementTree.Element) -> tuple[float, float, float, float]:
    """Left, top, right, bottom."""
    px, x, y = (float(each.get(name)) for name in ("font-size", "x", "y"))
    wide = text_width(each.text, px, each.get("class", ""))
    left = x - {"start": 0, "middle": wide / 2, "end": wide}[each.get("text-anchor")]
    return left, y - 0.78 * px, left + wide, y + 0.22 * px


@each_sheet
def test_no_two_texts_overlap_and_none_leaves_the_sheet(sheet):
    found = [(each.text, box(each)) for each in texts(sheet)]
    for text, (left, _, right, _) in found:
        assert left >= 0, text
        assert right <= WIDTH, text
    for (one, a), (other, b) in combinations(found, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, f"{one!r} at {a} and {other!r} at {b}"


@each_sheet
def test_texts_can_be_read_at_their_size(sheet):
    assert all(float(each.get("font-size")) >= SMALL >= 11 for each in texts(sheet))
    assert texts(sheet)[0].text == "mergelake"


@each_sheet
def test_colours_are_of_the_palette_or_of_the_theme(sheet):
    drawn = re.sub(r"<style>.*?</style>", "", render_sheet(sheet), flags=re.DOTALL)
    assert set(re.findall(r'(?:fill|stroke)="(#\w+)"', drawn)) <= set(PALETTE)
    assert set(re.findall(r'class="([^"]*)"', drawn)) <= {
        "paper",
        "quiet",
        "bold",
        "mono",
        "grid",
        "axis",
        "line",
        "shade",
    }


@each_sheet
def test_all_frames_share_the_time_axis(sheet):
    places: dict[str, set[str]] = {}
    for each in texts(sheet):
        if re.fullmatch(r"[\d.,]+ (s|min|h)", each.text):
            places.setdefault(each.text, set()).add(each.get("x"))
    assert all(len(at) == 1 for at in places.values())
    assert places or len({life.born_ms for life in sheet.lives}) < 2


@each_sheet
@pytest.mark.parametrize("unit", ["s", "min", "ms", "MiB", "KiB", "parts?"])
def test_ticks_are_steps_of_1_2_or_5(sheet, unit):
    anchors = {"middle", "end"}
    found = [
        re.fullmatch(rf"([\d.,]+) {unit}", each.text) for each in texts(sheet) if each.get("text-anchor") in anchors
    ]
    values = sorted({float(each[1].replace(",", "")) for each in found if each})
    if len(values) > 1:
        step = values[1] - values[0]
        assert round(step / 10 ** math.floor(math.log10(step) + 1e-9), 6) in {1, 2, 5}
        assert values == pytest.approx([step * i for i in range(len(values))])


def test_times_of_both_sides_are_on_one_scale():
    bars = re.findall(r'width="([\d.]+)" height="13.0" fill="#009e73"', render_sheet(usual()))
    assert [round(float(bar) / float(bars[0]), 2) for bar in bars[:4]] == [1, 0.28, 0.01, 1.13]


def test_what_is_volatile_is_dashed_and_what_reached_the_bucket_is_marked():
    drawn = render_sheet(usual())
    assert "Merges by level: 6, of which 2 reached the bucket" in drawn
    assert "6 parts, 6.0 MiB, given up" in drawn
    assert drawn.count('stroke="#cc79a7" stroke-dasharray="4 3"') >= 12
    assert 'stroke="#cc79a7"' not in render_sheet(SHEETS["direct merges"])


def test_the_bytes_say_how_often_each_was_written():
    drawn = render_sheet(usual())
    assert "Bytes written to the bucket: 1.15 × what was inserted (write amplification)" in drawn
    assert "46.0 MiB written to the bucket" in drawn
    assert "40.0 MiB inserted" in drawn


def test_answers_that_differ_are_not_hidden():
    words = [each.text for each in texts(usual())]
    assert "✗ 2 of 3 answers equal ClickHouse's" in words
    assert words.count("✓ same answer") == 2
    assert words.count("✗ another answer") == 1


def test_frames_without_anything_to_show_are_left_out():
    words = [each.text for each in texts(SHEETS["one insert"])]
    assert "1 part, 1.0 MiB, inserted in one commit." in words
    assert "Merges: none was due." in words
    assert not any("queries" in word or "Parts in the bucket" in word for word in words)
    assert [each.text for each in texts(SHEETS["nothing"])] == [
        "mergelake",
        "nothing yet",
        "Nothing has been inserted yet.",
    ]


def test_the_page_holds_the_picture():
    page = render_page(usual())
    assert render_sheet(usual()) in page
    assert "color-scheme:light dark" in page
