"""`source_parts.dat`: every form that ClickHouse writes, and nothing else."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from mergelake.core.base.errors import CorruptDataError, UnsupportedError
from mergelake.core.model.names import PartInfo
from mergelake.format.files.source_parts import decode_source_parts

VERSIONS = {"all_1_1_0": (5, 9), "all_2_4_1_6": (7, 7)}


def _text(text: str) -> bytes:
    return bytes([len(text.encode())]) + text.encode()


def _file(head: bytes, versions: dict[str, tuple[int, int]]) -> bytes:
    rows = [_text(name) + struct.pack("<QQ", *pair) for name, pair in versions.items()]
    return head + struct.pack("<Q", len(rows)) + b"".join(rows)


FORMS = {
    "by part and offset": (b"\0", ()),
    "key as a text": (b"\1" + _text("k, lower(s)"), ("k, lower(s)",)),
    "no key": (b"\1" + _text("tuple()"), ("tuple()",)),
    "key as a list of texts": (b"\1\2" + _text("k") + _text("lower(s)"), ("k", "lower(s)")),
    "key as a number": (b"\1" + struct.pack("<Q", 2), ()),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("versions", [VERSIONS, {}], ids=["parts", "none"])
def test_every_form_is_read(form: str, versions: dict[str, tuple[int, int]]) -> None:
    head, key = FORMS[form]
    found = decode_source_parts(_file(head, versions))
    assert {str(info): pair for info, pair in found.versions.items()} == versions
    assert (found.of_rows, found.sorting_key) == (head[0] == 0, key)


@pytest.mark.parametrize("form", FORMS)
def test_a_list_that_is_cut_or_goes_on_is_corrupt(form: str) -> None:
    whole = _file(FORMS[form][0], VERSIONS)
    for broken in [*(whole[:end] for end in range(len(whole))), whole + b"\0"]:
        with pytest.raises(CorruptDataError):
            decode_source_parts(broken)


@given(st.binary(max_size=60))
def test_other_bytes_are_errors(data: bytes) -> None:
    with suppress(CorruptDataError, UnsupportedError):
        decode_source_parts(data)


@pytest.mark.parametrize(
    ("name", "versions"), [("all_1_1", (1, 1)), ("ü", (1, 1)), ("", (1, 1)), ("all_1_1_0", (2, 1))]
)
def test_a_source_part_has_a_name_and_versions(name: str, versions: tuple[int, int]) -> None:
    with pytest.raises(CorruptDataError):
        decode_source_parts(_file(b"\0", {name: versions}))


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="format 2"):
        decode_source_parts(_file(b"\2", VERSIONS))


@pytest.mark.parametrize(
    ("name", "concerned"),
    [
        ("all_1_1_0", True),
        ("all_1_1_0_8", True),
        ("all_1_1_0_9", False),  # has all changes
        ("all_2_4_1_6", True),
        ("all_2_4_1", False),  # older than the part that was changed
        ("all_1_4_2_6", True),  # made from both
        ("all_1_4_2_9", False),
        ("all_3_3_0", False),
        ("b_1_1_0", False),
    ],
)
def test_a_patch_part_concerns_its_source_parts_and_what_was_made_of_them(name: str, concerned: bool) -> None:
    sources = decode_source_parts(_file(b"\0", VERSIONS))
    assert sources.concern(PartInfo.parse(name)) is concerned
