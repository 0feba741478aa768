"""A path that is no part is told so at once, whatever lies there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.parts.tools import adopt


def test_a_directory_with_much_below_it_is_not_gone_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopt, "_STRANGE_MAX", 10)
    for number in range(20):
        (tmp_path / "home" / f"d{number}").mkdir(parents=True)
        (tmp_path / "home" / f"d{number}" / "file").touch()
    with pytest.raises(MergelakeError, match="no part") as caught:
        ml.read_part(str(tmp_path / "home"))
    assert caught.value.code == 232


def test_a_pipe_in_place_of_a_file_holds_nobody(tmp_path: Path) -> None:
    (tmp_path / "all_1_1_0").mkdir()
    os.mkfifo(tmp_path / "all_1_1_0" / "columns.txt")
    with pytest.raises(MergelakeError):
        ml.read_part(str(tmp_path / "all_1_1_0"))
