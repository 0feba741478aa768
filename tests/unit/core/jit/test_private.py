"""What is run from a cache was written by this user, and nobody else could have written it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mergelake.api.spark import java
from mergelake.core.jit import native
from mergelake.core.jit.private import private_directory, private_file, read_private


@pytest.fixture
def place(tmp_path: Path) -> Path:
    out = tmp_path / "cache"
    out.mkdir(mode=0o700)
    (out / "file").write_bytes(b"code")
    (out / "file").chmod(0o600)
    return out


@pytest.mark.parametrize(
    ("directory_mode", "file_mode", "fine"),
    [
        (0o700, 0o600, True),
        (0o755, 0o644, True),
        (0o700, 0o664, True),  # nobody else can enter
        (0o755, 0o664, False),
        (0o755, 0o646, False),
        (0o775, 0o600, False),
        (0o757, 0o600, False),
        (0o1777, 0o600, False),
    ],
)
def test_modes(place: Path, directory_mode: int, file_mode: int, fine: bool) -> None:
    place.chmod(directory_mode)
    (place / "file").chmod(file_mode)
    assert private_file(place / "file") == fine
    if fine:
        assert read_private(place / "file") == b"code"
    else:
        with pytest.raises(PermissionError):
            read_private(place / "file")


def test_another_users_file_or_directory_is_not_ours(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not private_directory(place)
    assert not private_file(place / "file")
    with pytest.raises(PermissionError):
        read_private(place / "file")


def test_links_and_pipes_are_not_followed(place: Path) -> None:
    (place / "link").symlink_to(place / "file")
    os.mkfifo(place / "pipe", 0o600)
    (place.parent / "other").symlink_to(place)
    assert not private_file(place / "link")
    assert not private_file(place / "pipe")
    assert not private_directory(place.parent / "other")
    for name in ("link", "pipe", "missing"):
        with pytest.raises(OSError, match=r"\[Errno|somebody else"):
            read_private(place / name)


def test_kernels_are_neither_read_from_nor_written_to_where_others_write(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_places", lambda: iter([place]))
    native._write("kernel.o", b"object code")
    assert native._read("kernel.o") == b"object code"
    place.chmod(0o777)
    assert native._read("kernel.o") is None
    native._write("other.o", b"object code")
    assert not (place / "other.o").exists()


def test_the_archive_of_classes_is_mapped_only_if_private(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    archive = java.class_archive()
    assert archive is not None
    assert archive.parent.stat().st_mode & 0o777 == 0o700
    archive.write_bytes(b"classes")
    assert "-XX:SharedArchiveFile" in java.archive_option()
    archive.parent.chmod(0o755)
    archive.chmod(0o666)
    assert "-XX:SharedArchiveFile" not in java.archive_option()
    assert not archive.exists()
    archive.parent.chmod(0o777)
    assert java.archive_option() == ""
