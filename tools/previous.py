"""An older commit of mergelake in an environment of its own: `python tools/previous.py [COMMIT] [--into DIR]`.

Prints the path of that environment's python. The packages come from this repository's history; without COMMIT it is the
last one of `tests/compatibility/releases.txt`, the release before. Dependencies are those of the environment that runs
this program, if the commit has the same `constraints.txt` and asks for the same; otherwise pip installs those of the
commit.

An environment is made once: beside its place in DIR, and then renamed, so that processes may ask for one at the same
time. It is known by its commit and by what its dependencies are.

Codes: 0; 3 if this is no repository that has the commit; 4 if the commit cannot be installed. The last two come with a
line on stderr that says why.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RELEASES = ROOT / "tests" / "compatibility" / "releases.txt"
EXTRAS = ("spark", "sql", "zookeeper")
"""What two releases beside each other may need; pip installs these extras for a commit with dependencies of its own."""
NO_HISTORY, NOT_INSTALLED = 3, 4
"""Exit codes."""


class Failed(Exception):
    """There is no environment; the text is one line that says why, `code` the program's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def releases() -> list[str]:
    """The commits of `releases.txt`, oldest first, each once."""
    lines = (line.partition("#")[0].strip() for line in RELEASES.read_text().splitlines())
    return list(dict.fromkeys(line for line in lines if line))


def cache() -> Path:
    """Where environments are kept by default."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "mergelake" / "releases"
    here = ROOT / ".venv"
    return (here if here.is_dir() else Path.home() / ".cache" / "mergelake") / "releases"


def python_of(commit: str, into: Path) -> Path:
    """The python of an environment with this commit; made if there is none."""
    commit = _resolved(commit)
    shares = _wants(_read(commit)) == _wants(lambda name: (ROOT / name).read_bytes())
    dependencies = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")] if shares else []
    key = hashlib.blake2b("\n".join((sys.version, *dependencies)).encode(), digest_size=6).hexdigest()
    place = into.resolve() / f"{commit[:12]}-{key}"
    if not place.is_dir():
        _make(commit, place, dependencies)
    return place / "bin" / "python"


def _resolved(commit: str) -> str:
    """The full name of a commit."""
    try:
        top = _git("rev-parse", "--show-toplevel").decode().strip()
        if Path(top).resolve() != ROOT:
            raise Failed(NO_HISTORY, f"{ROOT} has no git history of its own")
        return _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").decode().strip()
    except FileNotFoundError:
        raise Failed(NO_HISTORY, "there is no git to ask for an older release") from None
    except subprocess.CalledProcessError as cause:
        reason = cause.stderr.decode(errors="replace").strip() or f"the history here does not have commit {commit}"
        raise Failed(NO_HISTORY, " ".join(reason.split())) from None


def _read(commit: str) -> Any:
    def read(name: str) -> bytes:
        try:
            return _git("show", f"{commit}:{name}")
        except subprocess.CalledProcessError:
            return b""

    return read


def _wants(read: Any) -> list[Any]:
    """What a tree says about its dependencies; `read` gives its files."""
    project = tomllib.loads(read("pyproject.toml").decode())["project"]
    extras = project.get("optional-dependencies", {})
    pinned = sorted(line for line in read("constraints.txt").decode().split("\n") if line and not line.startswith("#"))
    return [pinned, sorted(project["dependencies"]), [sorted(extras.get(name, ())) for name in EXTRAS]]


def _make(commit: str, place: Path, dependencies: list[str]) -> None:
    """Make the environment beside its place, and rename it; if another process was faster, its environment stays."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as folder:
        made, source = Path(folder) / "environment", Path(folder) / "source"
        _unpack(commit, source)
        _install(source, made, dependencies)
        for script in (made / "bin").iterdir():  # the first line of a command names its python
            if not script.is_symlink() and script.is_file():
                script.write_bytes(script.read_bytes().replace(os.fsencode(made), os.fsencode(place)))
        try:
            made.rename(place)
        except OSError:
            if not place.is_dir():
                raise


def installed(source: Path, place: Path) -> Path:
    """The python of a new environment at `place` with the wheel of a source tree, and the dependencies from here."""
    _install(source, place.resolve(), [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    return place.resolve() / "bin" / "python"


def _install(source: Path, made: Path, dependencies: list[str]) -> None:
    """Make an environment with the packages of a source tree.

    `dependencies` are directories of packages that it sees; without any, pip installs those that the source asks for.
    """
    _run(sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(made))
    python = made / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "-q"]
    pip += ["--no-input", "--no-compile", "--no-warn-script-location"]
    if dependencies:
        isolated = [] if importlib.util.find_spec("hatchling") is None else ["--no-build-isolation"]
        build = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps", *isolated]
        with tempfile.TemporaryDirectory() as wheels:
            _run(*build, "--wheel-dir", wheels, str(source))
            _run(*pip, "--no-deps", "--no-index", *map(str, Path(wheels).iterdir()))
        packages = next((made / "lib").glob("python*/site-packages"))
        # Not read as a directory of site-packages: what lies there in .pth files (today's mergelake) stays unseen.
        (packages / "dependencies.pth").write_text("".join(f"{line}\n" for line in dict.fromkeys(dependencies)))
    else:
        constraints = source / "constraints.txt"
        pinned = ["--constraint", str(constraints)] if constraints.exists() else []
        _run(*pip, *pinned, f"{source}[{','.join(EXTRAS)}]")
    _check(python, made)


def _check(python: Path, made: Path) -> None:
    """The mergelake that a process sees there is that of the environment."""
    text = (
        "import importlib.metadata as m, mergelake; print(mergelake.__file__); print(m.distribution('mergelake')._path)"
    )
    for found in _run(str(python), "-P", "-c", text).split():
        if not Path(found).resolve().is_relative_to(made.resolve()):
            raise Failed(NOT_INSTALLED, f"the environment takes mergelake from {found}")


def _unpack(commit: str, folder: Path) -> None:
    """Write the files of a commit."""
    folder.mkdir()
    with tempfile.TemporaryFile() as file:
        subprocess.run(["git", "-C", str(ROOT), "archive", commit], stdout=file, check=True)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            archive.extractall(folder, filter="data")


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True).stdout


def _run(*command: str) -> str:
    """The output of a command without this program's own import path; Failed with its last line if it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()
        said = next((line for line in lines if line.startswith("ERROR")), lines[-1])
        raise Failed(NOT_INSTALLED, f"{' '.join(command[1:4])} ended with code {done.returncode}: {said}")
    return done.stdout


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("commit", nargs="?", help="default: the last one of releases.txt")
    parser.add_argument("--into", type=Path, default=cache(), metavar="DIR", help="default: %(default)s")
    given = parser.parse_args()
    try:
        print(python_of(given.commit or releases()[-1], given.into))
    except Failed as reason:
        print(f"previous: {reason}", file=sys.stderr)
        sys.exit(reason.code)


if __name__ == "__main__":
    main()
