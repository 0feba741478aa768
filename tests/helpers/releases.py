"""Older releases in environments of their own, and processes of any release on one warehouse."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.services import ServiceUnavailable, or_skip
from tools.previous import NO_HISTORY, releases

ROOT = Path(__file__).resolve().parents[2]
PREVIOUS, DRIVER = ROOT / "tools" / "previous.py", ROOT / "tests" / "compatibility" / "release_driver.py"
COMMITS = releases()
"""The releases that live beside today's, oldest first."""
ANSWER_S = 120
"""Seconds in which every command is answered."""


@dataclass(frozen=True)
class Release:
    """An interpreter, and the mergelake that it imports."""

    name: str
    python: str

    @property
    def command(self) -> str:
        """Path of the command `mergelake`."""
        return str(Path(self.python).parent / "mergelake")

    @property
    def environment(self) -> dict[str, str]:
        """Variables for its processes: an import path of today's tree must not reach another release."""
        aside = set() if self == TODAY else {"PYTHONPATH", "PYTHONHOME"}
        return {name: value for name, value in os.environ.items() if name not in aside}

    def mergelake(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        """What the command prints; it has to end well."""
        done = subprocess.run(
            [self.command, *arguments],
            env={**self.environment, **(env or {})},
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
        assert done.returncode == 0, f"{self.name}: {arguments} ended with {done.returncode}: {done.stderr[-1000:]}"
        return done.stdout


TODAY = Release("new", sys.executable)


@cache
def _python(commit: str) -> tuple[int, str]:
    """The exit code of `tools/previous.py`, and what it says."""
    with tempfile.TemporaryFile("w+") as said:
        done = subprocess.run(
            [sys.executable, str(PREVIOUS), commit],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            timeout=350,
            check=False,
        )
        said.seek(0)
        return done.returncode, (done.stdout if done.returncode == 0 else said.read()).strip()


def release(commit: str) -> Release:
    """An older release; the test is skipped where its history is not at hand."""
    code, said = _python(commit)
    if code == NO_HISTORY:
        pytest.skip(said)
    with or_skip():
        if code:
            raise ServiceUnavailable(said)
    return Release("old", said)


@dataclass
class Driver:
    """A process that runs `release_driver.py`. A command may be sent before the answer to the last one is read."""

    release: Release
    log: Path
    process: subprocess.Popen[str] = field(init=False)
    _answers: queue.Queue[str] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [self.release.python, "-P", str(DRIVER)],
            env=self.release.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("ab"),
            text=True,
            start_new_session=True,  # with the JVM that it may start
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def send(self, do: str, **command: Any) -> None:
        """Begin a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **command}) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The answer to the oldest command that has none yet."""
        try:
            line = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise AssertionError(f"{self.release.name} does not answer: {self.log.read_text()[-1000:]}") from None
        assert line, f"{self.release.name} is gone: {self.log.read_text()[-2000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def result(self) -> Any:
        """The answer, which is no error."""
        answer = self.receive()
        assert "is" in answer, f"{self.release.name}: {answer}"
        return answer["is"]

    def ask(self, do: str, **command: Any) -> Any:
        """The answer to a command, which is no error."""
        self.send(do, **command)
        return self.result()

    def tried(self, do: str, **command: Any) -> str:
        """The name of the error that a command ends with, empty if it does not."""
        self.send(do, **command)
        answer = self.receive()
        if "is" in answer:
            return ""
        inside = "UNKNOWN_FORMAT_VERSION"  # Spark wraps the error of its task
        return inside if inside in answer["text"] else str(answer["error"])

    def close(self) -> None:
        """End the process, and what it started."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def drivers(kinds: Sequence[Release], folder: Path) -> Iterator[list[Driver]]:
    """A process of each of these releases."""
    held = [Driver(kind, folder / f"{number}-{kind.name}.log") for number, kind in enumerate(kinds)]
    try:
        yield held
    finally:
        for driver in held:
            driver.close()


@contextmanager
def node(
    of: Release, url: str, name: str, disk: Path, *arguments: str, env: dict[str, str] | None = None
) -> Iterator[Any]:
    """`mergelake node` with a disk, listening; it is told to leave at the end, and does so in good order."""
    command = [of.command, "node", url, "--name", name, "--poll", "0.1", "--local", str(disk)]
    with (disk.parent / f"{disk.name}-{name}.log").open("ab+") as log:
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", *arguments],
            stdout=log,
            stderr=log,
            env={**of.environment, **(env or {})},
        )
        try:
            until(lambda: (disk / name).is_dir() or process.poll() is not None, f"node {name} begins")
            yield process
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
            log.seek(0)
            assert code == 0, f"node {name} ended with {code}: {log.read()[-1000:].decode()}"
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_s, f"waited in vain until {what}"
        time.sleep(0.1)
