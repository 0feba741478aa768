"""`tools/previous.py`: an environment for an older commit, or a code and one line that says why there is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.releases import COMMITS, PREVIOUS, Release, release
from tools.previous import NO_HISTORY


def previous(*arguments: str, program: Path = PREVIOUS) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, list[str]]:
    out, problems = process.communicate(timeout=300)
    return process.returncode, out.strip(), problems.splitlines()


def test_a_commit_that_the_history_lacks_has_a_code_of_its_own_and_one_line(tmp_path: Path) -> None:
    code, out, lines = ended(previous("0123456789abcdef0123456789abcdef01234567", "--into", str(tmp_path)))
    assert (code, out, len(lines)) == (NO_HISTORY, "", 1)
    assert "does not have commit 0123456789" in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_a_tree_without_history_has_it_too(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    program = Path(shutil.copy(PREVIOUS, tmp_path / "tools"))
    code, out, lines = ended(previous(COMMITS[0], program=program))
    assert (code, out, len(lines)) == (NO_HISTORY, "", 1)


@pytest.mark.slow
def test_processes_that_ask_at_once_get_one_environment_that_sees_only_its_own_mergelake(tmp_path: Path) -> None:
    release(COMMITS[0])  # or skip
    asked = [previous(COMMITS[0], "--into", str(tmp_path)) for _ in range(2)]
    answers = [ended(process) for process in asked]
    assert answers[0] == answers[1]
    code, python, lines = answers[0]
    assert (code, lines) == (0, [])
    (place,) = tmp_path.iterdir()  # nothing is left of what was made beside it
    made = Release("old", python)

    def said(*command: str) -> str:
        return subprocess.run(
            command, env=made.environment, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    text = "import importlib.metadata as m, mergelake, pyspark_mergelake as p\n"
    text += "print(mergelake.__file__, p.__file__, *(f.locate() for f in m.files('mergelake') if f.name == 'METADATA'))"
    found = said(python, "-P", "-c", text).split()
    assert len(found) == 3
    assert all(Path(path).is_relative_to(place) for path in found)
    assert str(PREVIOUS.parents[1] / "src") not in said(python, "-P", "-c", "import sys; print(sys.path)")
    assert said(made.command, "--version").startswith("mergelake ")
