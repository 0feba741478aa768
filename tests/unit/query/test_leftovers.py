"""What ClickHouse keeps in the temporary folder goes with the process, or with the next one."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mergelake.query.embedded.leftovers import mark, sweep

ENGINE = "from mergelake.query.embedded import engine; engine.run('SELECT 1'); print('ready', flush=True);"


def folder(at: Path, name: str, *, marked: bool = True) -> Path:
    out = at / f"clickhouse-embedded-{name}"
    out.mkdir()
    (out / "status").write_text("PID: 1\n")
    (out / "tmp").mkdir()
    if marked:
        mark(out)
    return out


def test_only_marked_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead, theirs, alive = folder(tmp_path, "a"), folder(tmp_path, "b", marked=False), folder(tmp_path, "c")
    (tmp_path / "clickhouse-embedded-d").mkdir()
    elsewhere = folder(tmp_path, "e").rename(tmp_path / "elsewhere")
    (tmp_path / "clickhouse-embedded-link").symlink_to(elsewhere)
    with (alive / "status").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert sweep(tmp_path) == [dead]
    assert not dead.exists()
    assert theirs.exists()
    assert elsewhere.exists()
    assert sweep(tmp_path) == [alive]


def run(code: str, folder: Path, number: signal.Signals | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=-2, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()
    if number is not None:
        process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    return subprocess.CompletedProcess(code, process.returncode, first + rest)


@pytest.mark.chdb
@pytest.mark.slow
def test_a_process_that_ends_leaves_nothing_and_one_that_is_killed_leaves_it_to_the_next(tmp_path: Path) -> None:
    assert run(ENGINE, tmp_path).stdout == "ready\n"
    assert list(tmp_path.iterdir()) == []
    run(ENGINE + "import time; time.sleep(60)", tmp_path, signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 1
    run(ENGINE, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.chdb
@pytest.mark.slow
def test_a_process_ends_cleanly_while_a_thread_of_it_is_inside_clickhouse(tmp_path: Path) -> None:
    endless = "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)"
    thread = f"threading.Thread(target=engine.run, args=('{endless}',), daemon=True).start()"
    code = f"{ENGINE} import threading, time; {thread}; time.sleep(0.5)"
    done = run(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "ready\n")  # a traceback may abort the process that takes down stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.chdb
@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0, 0.02, 0.06])
def test_a_process_ends_cleanly_while_a_thread_of_it_is_about_to_enter_clickhouse(tmp_path: Path, after_s: int) -> None:
    endless = "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)"
    threads = "for _ in range(4): " + f"threading.Thread(target=engine.run, args=('{endless}',), daemon=True).start()"
    done = run(f"{ENGINE} import threading, time\n{threads}\ntime.sleep({after_s})", tmp_path)
    assert (done.returncode, done.stdout) == (0, "ready\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.chdb
@pytest.mark.slow
def test_who_asks_while_the_process_ends_is_refused_and_its_thread_ends_without_a_word(tmp_path: Path) -> None:
    code = f"""
import atexit, threading
from mergelake.core.base.errors import UnavailableError
from mergelake.query.embedded import engine

def late():
    thread = threading.Thread(target=engine.run, args=("SELECT 1",), daemon=True)
    thread.start()
    thread.join()
    try:
        engine.run("SELECT 1")
    except UnavailableError as refused:
        print(refused, flush=True)

atexit.register(late)
{ENGINE}
"""
    done = run(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "ready\nThis process is ending, and ClickHouse with it\n")


@pytest.mark.chdb
@pytest.mark.slow
def test_a_fork_of_a_process_that_runs_clickhouse_is_told_so(tmp_path: Path) -> None:
    code = f"""{ENGINE}
import os
if os.fork() == 0:
    try:
        engine.run("SELECT 1")
    except Exception as failure:
        print(failure, flush=True)
    os._exit(0)
os.wait()
"""
    assert "spawn" in run(code, tmp_path).stdout
