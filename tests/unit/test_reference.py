"""The pages made from the code are what the code says: tables of settings and options, and the reference of classes."""

from __future__ import annotations

from collections import Counter

import pytest

from mergelake.api.spark import options
from mergelake.api.spark.options import Option
from mergelake.api.sql.settings import OWN_SETTINGS, OwnSetting
from mergelake.core.model import settings as table_settings
from mergelake.core.model.settings import Setting
from tools import reference

PAGES = {path.relative_to(reference.DOCS): path.read_text() for path in sorted(reference.DOCS.rglob("*.md"))}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_tables_of_a_page_are_those_of_the_code(page):
    assert reference.rewritten(PAGES[page]) == PAGES[page], "run: python tools/reference.py"


def test_each_table_stands_on_one_page():
    shown = Counter(name for text in PAGES.values() for name in reference.names_in(text))
    assert shown == Counter(reference.TABLES.keys())


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
