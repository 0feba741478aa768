"""The pages made from the code are what the code says: tables of settings and options, and the reference of classes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from mergelake.api.spark import options
from mergelake.api.spark.options import Option
from mergelake.api.sql.settings import OWN_SETTINGS, OwnSetting
from mergelake.core.model import settings as table_settings
from mergelake.core.model.settings import Setting
from tools import house, reference

PAGES = {path.relative_to(reference.ROOT): path.read_text() for path in reference.PAGES}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_tables_of_a_page_are_those_of_the_code(page):
    assert reference.rewritten(PAGES[page]) == PAGES[page], "run: python -m tools.reference"


def test_each_table_stands_on_one_page():
    shown = Counter(name for text in PAGES.values() for name in reference.names_in(text))
    assert shown.pop("house") == 3
    assert shown == Counter(reference.TABLES.keys() - {"house"})


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/design/0001-rooms-and-contracts.md"])
def test_the_map_of_the_house_stands_where_people_look_for_it(page):
    assert "house" in reference.names_in(PAGES[Path(page)])


def test_what_is_planned_stands_in_the_contracts():
    """All but what will be a module of a room that there is; and nothing is planned that there is."""
    beside = {room for room in house.PLANNED if room.count(".") > 1}
    assert house.planned_in_contracts() == house.PLANNED.keys() - beside
    for room in house.PLANNED:
        place = house.SOURCE.joinpath(*room.split("."))
        assert not place.exists(), room
        assert not place.with_suffix(".py").exists(), room


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_names_no_module_or_file_that_is_not_there(page):
    for dotted in re.findall(r"`mergelake(\.[a-z_0-9.]*[a-z_0-9])`", PAGES[page]):
        parts = dotted.strip(".").split(".")
        assert any(
            house.SOURCE.joinpath(*parts[:n]).with_suffix(".py").exists()
            or house.SOURCE.joinpath(*parts[:n], "__init__.py").exists()
            for n in range(1, len(parts) + 1)
        ), dotted
    for path in re.findall(r"\b((?:src|tests|tools|benchmarks|examples)/[\w/.-]*\w)", PAGES[page]):
        assert (reference.ROOT / path).exists() or list(reference.ROOT.glob(f"{path}*")), path


def test_a_new_setting_or_option_makes_the_pages_old(monkeypatch):
    def old(page: str) -> bool:
        text = (reference.DOCS / page).read_text()
        return reference.rewritten(text) != text

    with monkeypatch.context() as changed:
        changed.setitem(OWN_SETTINGS, "new_setting", OwnSetting("0", "New"))
        assert old("settings-list.md")
    with monkeypatch.context() as changed:
        changed.setitem(table_settings.TABLE_SETTINGS, "new_setting", Setting("new_setting", 0, "New"))
        assert old("settings-list.md")
    for name in ("READ_OPTIONS", "WRITE_OPTIONS"):
        with monkeypatch.context() as changed:
            changed.setattr(reference, name, (*getattr(options, name), Option("newOption", "New")))
            assert old("spark.md")
    assert not old("settings-list.md")
    assert not old("spark.md")


def test_descriptions_are_one_line_without_a_full_stop():
    described = {each.name: each.description for each in (*options.READ_OPTIONS, *options.WRITE_OPTIONS)}
    described |= {name: own.description for name, own in OWN_SETTINGS.items()}
    described |= {name: each.description for name, each in table_settings.TABLE_SETTINGS.items()}
    for name, text in (described | dict(reference.HONOURED)).items():
        assert text.strip() == text != "", name
        assert "\n" not in text, name
        assert not text.endswith("."), name
