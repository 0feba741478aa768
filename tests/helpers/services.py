"""Real services for tests, started by the scripts in `tools/services/` in a directory of their own."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "tools" / "services"


class ServiceUnavailable(Exception):
    """A service could not be started; the text says why."""


@contextmanager
def or_skip() -> Iterator[None]:
    """A test without its service is skipped; in CI it fails, for there it would be skipped for good."""
    try:
        yield
    except ServiceUnavailable as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(reason))


def free_ports(count: int) -> int:
    """The first of `count` neighbouring ports that are free now, below those that the system gives to clients.

    A client that calls a stopped server again and again might else be given that very port, and keep it.
    """
    for _ in range(100):
        first = 20_000 + int.from_bytes(os.urandom(2), "big") % 12_000
        if all(_is_free(first + i) for i in range(count)):
            return first
    raise ServiceUnavailable(f"no {count} neighbouring free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@contextmanager
def service(name: str, *, ports: int = 4, **settings: str) -> Iterator[dict[str, str]]:
    """Run `tools/services/<name>-start` in a new directory; the variables it exports; stopped and wiped at the end.

    SERVICE_DIR is that directory: what `restart` needs.
    """
    folder = tempfile.mkdtemp(prefix=f"mergelake-{name}-", dir="/tmp")
    environment = {**os.environ, "PYTHON": sys.executable, **settings}
    try:
        started = subprocess.run(
            [SCRIPTS / f"{name}-start", folder, str(free_ports(ports))],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if started.returncode:
            raise ServiceUnavailable(f"{name}-start: {started.stderr.strip()[-600:]}")
        yield {**exported(started.stdout), "SERVICE_DIR": folder}
    finally:
        subprocess.run([SCRIPTS / f"{name}-stop", "--wipe", folder], capture_output=True, timeout=120, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def restart(name: str, folder: str) -> None:
    """Stop a service and start it again, on the same port and with its data."""
    for verb in ("stop", "start"):
        subprocess.run([SCRIPTS / f"{name}-{verb}", folder], capture_output=True, timeout=300, check=True)


def exported(text: str) -> dict[str, str]:
    """The variables of `export NAME=value` lines."""
    words = (shlex.split(line) for line in text.splitlines() if line.startswith("export "))
    return dict(word.split("=", 1) for _, word in words)
