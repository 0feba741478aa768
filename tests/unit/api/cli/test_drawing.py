"""Ticks are round, labels keep apart, colours can be told apart: what every drawing is made of."""

from __future__ import annotations

import math
import re

import pytest

from mergelake.api.cli.picture import drawing
from mergelake.api.cli.picture.drawing import PALETTE, STYLE, Axis, apart, lanes, shorten, size, ticks, unit_of

ENDS = [0.03, 0.7, 1, 3, 9.99, 19.7, 54, 185.8, 1023, 86_400, 2_000_000]


def is_round(step: float) -> bool:
    return round(step / 10 ** math.floor(math.log10(step) + 1e-9), 6) in {1, 2, 5}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("about", [4, 6, 12])
def test_ticks_are_round_and_few(end, about):
    found = ticks(end, about)
    assert found[0] == 0
    assert found[-1] <= end * (1 + 1e-9)
    assert 2 <= len(found) <= about + 1
    assert is_round(found[1])
    assert found == pytest.approx([found[1] * i for i in range(len(found))])


@pytest.mark.parametrize("end", ENDS)
def test_an_axis_that_ends_with_a_tick_holds_what_it_must(end):
    axis = Axis.to_tick(end, 200, 100, 5)
    assert axis.ticks[-1] == pytest.approx(axis.end)
    assert axis.end >= end * (1 - 1e-9)
    assert (axis.at(0), axis.at(axis.end)) == (200, 100)


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_things_that_are_counted_have_whole_ticks(most):
    assert all(tick == int(tick) for tick in Axis.to_tick(most, 0, 1, 4, least=1).ticks)


def test_units_are_those_of_the_largest_number():
    assert unit_of(126_000_000, drawing.BYTES) == (1 << 20, "MiB")
    assert unit_of(1, drawing.BYTES) == (1, "B")
    assert unit_of(90, drawing.SECONDS) == (1, "s")
    assert (size(0), size(1023), size(1 << 30)) == ("0 B", "1,023 B", "1.0 GiB")


def test_notes_keep_apart_and_within_bounds():
    placed = apart([100, 101, 40, 102], 16, 0, 110)
    assert sorted(placed) == sorted(set(placed))
    assert all(b - a >= 16 for a, b in zip(sorted(placed), sorted(placed)[1:], strict=False))
    assert max(placed) <= 110
    assert placed[0] < placed[1] < placed[3], "in their order"
    assert apart([], 16, 0, 110) == []


def test_a_lane_holds_what_does_not_touch():
    assert lanes([(0, 10), (5, 20), (30, 40), (12, 15)]) == [0, 1, 0, 2]


def test_long_queries_are_cut_at_a_space():
    rows = shorten("SELECT a, b FROM logs WHERE c = 1 ORDER BY a, b LIMIT 10", 20, 2)
    assert rows == ["SELECT a, b FROM", "logs WHERE c = 1 …"]
    assert all(len(row) <= 20 for row in rows)
    assert shorten("x" * 30, 20, 2) == ["x" * 19 + "…"]
    assert shorten("", 20, 2) == []


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_texts_and_marks_stand_out_in_both_themes():
    light, dark = STYLE.split("@media")
    for theme in (light, dark):
        paper = re.search(r"\.paper\{fill:(#\w+)\}", theme)[1]
        inks = re.findall(r"(?:text|quiet|mono)\{[^}]*?fill:(#\w+)\}", theme)
        assert len(inks) >= 2
        assert all(contrast(ink, paper) >= 7 for ink in inks)
        assert all(contrast(colour, paper) > 3 for colour in PALETTE)
