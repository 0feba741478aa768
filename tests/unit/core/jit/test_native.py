"""The cache of object code: shared, never out of date, never believed when damaged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mergelake.core.jit import native

_PROGRAM = """
import sys, time
from pathlib import Path
from mergelake.core.jit import native
places = [Path(place) for place in sys.argv[2:]]
native._places = lambda: iter(places)
source = Path(sys.argv[1])
spec = __import__("importlib.util").util.spec_from_file_location("sample", source)
sample = __import__("importlib.util").util.module_from_spec(spec)
spec.loader.exec_module(sample)
print(sample.answer(20), "mergelake.core.jit.compiler" in sys.modules, "numba" in sys.modules)
"""
_SAMPLE = """
from mergelake.core.jit.intrinsics import kernel
_MORE = {more}
def _twice(a: int) -> int:
    return {twice}
@kernel
def answer(a: int) -> int:
    return _twice(a) + _MORE
"""


def _start(source: Path, *places: Path) -> subprocess.Popen[str]:
    # -B: Python believes its own cache of a module that was changed within a second and is as long as before
    return subprocess.Popen(
        [sys.executable, "-B", "-c", _PROGRAM, str(source), *map(str, places)], stdout=subprocess.PIPE, text=True
    )


def _run(source: Path, *places: Path) -> tuple[int, bool]:
    out, _ = _start(source, *places).communicate(timeout=120)
    answer, compiled, numba = out.split()
    assert numba == "False"
    return int(answer), compiled == "True"


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    source = tmp_path / "sample.py"
    source.write_text(_SAMPLE.format(more=2, twice="2 * a"))
    return source


def test_later_processes_load_what_the_first_compiled(sample: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert _run(sample, cache) == (42, True)
    assert _run(sample, cache) == (42, False)


def test_a_changed_helper_or_number_is_compiled_anew(sample: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    _run(sample, cache)
    sample.write_text(_SAMPLE.format(more=2, twice="3 * a"))
    assert _run(sample, cache) == (62, True)
    sample.write_text(_SAMPLE.format(more=5, twice="3 * a"))
    assert _run(sample, cache) == (65, True)


def test_a_damaged_file_is_compiled_anew_and_replaced(sample: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    _run(sample, cache)
    (file,) = cache.iterdir()
    good = file.read_bytes()
    for bad in (b"", good[:-1], good[:40], bytes([*good[:-1], good[-1] ^ 1])):
        file.write_bytes(bad)
        assert _run(sample, cache) == (42, True)
        assert file.read_bytes() == good


def test_processes_that_start_together_agree(sample: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    started = [_start(sample, cache) for _ in range(4)]
    assert {process.communicate(timeout=120)[0].split()[0] for process in started} == {"42"}
    assert len(list(cache.iterdir())) == 1  # nothing half-written stays


def test_a_place_that_cannot_be_written_is_done_without(sample: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the directory should be")
    assert _run(sample, blocked) == (42, True)
    assert _run(sample, blocked, tmp_path / "second") == (42, True)
    assert _run(sample, blocked, tmp_path / "second") == (42, False)


def test_the_cache_lies_beside_the_package_or_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere")
    assert list(native._places()) == [
        Path(native.__file__).parent / "__pycache__",
        Path("/nowhere/mergelake"),
    ]
