"""Pages of the documentation, followed: their snippets run in order, and print what the page shows."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOREVER = ("mergelake node", "mergelake publish warehouse events --follow")
"""Commands that run until they are stopped."""


_FENCE = re.compile(r"^(#+) ([^\n]*)$|^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A fenced block of a page."""

    section: str
    language: str
    text: str


def snippets(page: str) -> list[Snippet]:
    """The blocks of a page in order, with the heading that they stand under."""
    found, section = [], ""
    for match in _FENCE.finditer((ROOT / page).read_text()):
        if match.group(1):
            section = match.group(2)
        else:
            found.append(Snippet(section, match.group(3), match.group(4)))
    return found


class Reader:
    """Somebody who types a page in: one Python session and one shell in one directory."""

    def __init__(self, folder: Path, change: dict[str, str] | None = None, names: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.change = change or {}
        """What this reader has another name for: buckets, keys, directories."""
        self.names: dict[str, Any] = dict(names or {})
        self.printed = ""
        self.followed: list[str] = []

    def follow(self, snippet: Snippet) -> None:
        text = snippet.text
        for old, new in self.change.items():
            text = text.replace(old, new)
        match snippet.language:
            case "python":
                self._python(text)
            case "sh":
                for line in text.splitlines():
                    self._shell(line.split("  #")[0].strip())
            case "text":
                assert self.printed.strip() == text.strip()
            case "sql":
                self.followed.append(text)
            case "":
                return
            case other:
                raise AssertionError(f"what to do with {other}?")
        self.followed.append(snippet.section)

    def _python(self, text: str) -> None:
        out = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out):
            exec(compile(text, "<page>", "exec"), self.names)
        self.printed = out.getvalue()

    def _shell(self, line: str) -> None:
        if line.startswith("pip install"):
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            (wanted,) = re.findall(r"'mergelake\[(.*?)\]'", line)
            assert set(wanted.split(",")) <= set(extras)
            return
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        if line.startswith(FOREVER):
            self._forever(line, environment)
            return
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=environment,
            input="SELECT 1",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), line
        assert done.stdout, line
        self.printed = done.stdout

    def _forever(self, line: str, environment: dict[str, str]) -> None:
        said = self.folder / "said"
        with said.open("w") as err:
            running = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )
            try:
                deadline = time.monotonic() + 30
                while "Ctrl-C ends" not in said.read_text():
                    assert running.poll() is None, said.read_text()
                    assert time.monotonic() < deadline, line
                    time.sleep(0.05)
                running.send_signal(signal.SIGTERM)
                self.printed, _ = running.communicate(timeout=60)
            finally:
                running.kill()
                running.wait()
        assert running.returncode == 0, said.read_text()
