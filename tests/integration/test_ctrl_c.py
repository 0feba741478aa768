"""Ctrl-C and SIGTERM as a person sends them: to the shell on a real terminal, and to a command."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.chdb, pytest.mark.slow]
ENDLESS = "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)"


class Terminal:
    """The shell on a pseudo-terminal."""

    def __init__(self, folder: Path) -> None:
        env = {
            **os.environ,
            "MERGELAKE_HISTORY": str(folder / "history"),
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
        }
        self.pid, self._fd = pty.fork()
        if not self.pid:
            arguments = [sys.executable, "-m", "mergelake.api.cli", "sql", "-d", str(folder / "warehouse")]
            os.execvpe(arguments[0], arguments, env)
        self._heard = b""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def expect(self, pattern: str, seconds: float = 30) -> float:
        """Seconds until `pattern` is on the screen; what stood there before is forgotten."""
        began = time.monotonic()
        while not re.search(pattern.encode(), self._heard):
            left = seconds - (time.monotonic() - began)
            ready, _, _ = select.select([self._fd], [], [], max(left, 0))
            assert ready, self._heard[-2000:]
            self._heard += os.read(self._fd, 65536)
        self._heard = b""
        return time.monotonic() - began

    def cpu_s(self) -> float:
        """Processor seconds that the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path)
    found.expect(r"default :\)")
    yield found
    os.kill(found.pid, signal.SIGKILL)
    os.waitpid(found.pid, 0)


@pytest.mark.parametrize("times", [1, 3, 40])
def test_ctrl_c_in_the_shell_ends_the_statement_and_not_the_shell(terminal: Terminal, times: int) -> None:
    terminal.type(f"{ENDLESS};\r")
    terminal.expect(r"[0-9]\.[0-9] s")  # the progress line: it runs
    for _ in range(times):
        terminal.type("\x03")
        time.sleep(0.02 if times < 10 else 0.004)
    # Pressed so often, the word itself may be interrupted.
    assert terminal.expect(r"Cancelled\." if times < 10 else r"Cancelled\.|default :\)") < 3
    terminal.type("SELECT 41 + 1 AS x;\r")
    terminal.expect("42")
    before = terminal.cpu_s()
    time.sleep(1)
    assert terminal.cpu_s() - before < 0.5  # nothing computes any more


def test_what_is_typed_is_coloured_and_an_insert_shows_what_it_has_read_and_written(terminal: Terminal) -> None:
    terminal.type("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k")
    terminal.expect(r"\x1b\[0;36;1mCREATE")
    terminal.type(" SETTINGS max_insert_block_size = 100000;\r")
    terminal.expect(r"Ok\.")
    terminal.type("INSERT INTO t SELECT number FROM numbers(3000000) WHERE NOT ignore(sleepEachRow(0.000001));\r")
    terminal.expect(r"rows written, [0-9.]+ [kM]B \([0-9.]+ (thousand|million) rows/s\)")
    terminal.expect(r"Ok\.")
    terminal.type("SELECT count() AS n FROM t\\G\r")
    terminal.expect("n: 3000000")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_and_its_temporary_files(tmp_path: Path, number: signal.Signals, code: int) -> None:
    kept = tmp_path / "tmp"
    kept.mkdir()
    arguments = [
        sys.executable,
        "-m",
        "mergelake.api.cli",
        "sql",
        "-d",
        str(tmp_path / "w"),
        "-q",
        f"SELECT 1; {ENDLESS}",
    ]
    env = {**os.environ, "TMPDIR": str(kept)}
    process = subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    time.sleep(0.3)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == code
    assert list(kept.iterdir()) == []
