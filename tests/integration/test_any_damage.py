"""Any object of a table damaged in any way: every verb answers or gives a coded error, and the other table goes on."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.log.storage.encoding import sealed

ROUNDS = int(os.environ.get("DAMAGE_ROUNDS", "15"))
ODD = [
    None,
    -1,
    0,
    2**31,
    2**63,
    2**70,
    -(2**64),
    1e300,
    True,
    "",
    "x",
    "../../outside",
    "/etc",
    "a/../b",
    [],
    {},
    [[]],
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables with all that a table may have."""
    folder = tmp_path_factory.mktemp("whole")
    db = ml.connect(str(folder / "warehouse"))
    for name in ("bad", "good"):
        db.sql(
            f"CREATE TABLE {name} (k UInt64, s String, INDEX i s TYPE bloom_filter) ENGINE = ReplacingMergeTree "
            "PARTITION BY k % 2 ORDER BY k SETTINGS checkpoint_interval = 5, gc_grace_seconds = 0, "
            "history_retention_seconds = 0, index_granularity = 64, merge_upload_policy = 'volatile', "
            f"min_bytes_for_full_part_storage = {'1000000' if name == 'bad' else '0'}"
        )
        table = db.table(name)
        for first in range(0, 400, 100):
            table.append({"k": range(first, first + 100), "s": [str(n) for n in range(100)]}, dedup_token=str(first))
        table.tag("t1")
        table.publish()
        db.sql(f"OPTIMIZE TABLE {name} FINAL")
        table.refresh()
        part = table.snapshot().parts[0].name
        db.sql(f"ALTER TABLE {name} DETACH PART '{part}'")
        table.gc()
        for first in range(400, 700, 100):
            table.append({"k": range(first, first + 100), "s": ["x"] * 100})
        table.gc()
    return folder / "warehouse"


def _directory(root: Path, name: str) -> Path:
    return root / ml.connect(str(root)).table(name).handle.directory


def _mutated(draw: random.Random, raw: Any) -> Any:
    """The same JSON with one value replaced, taken away or doubled."""
    if isinstance(raw, dict) and raw and draw.random() < 0.85:
        name = draw.choice([*raw])
        if draw.random() < 0.25:
            return {key: value for key, value in raw.items() if key != name}
        return {**raw, name: _mutated(draw, raw[name])}
    if isinstance(raw, list) and raw and draw.random() < 0.85:
        at = draw.randrange(len(raw))
        if draw.random() < 0.2:
            return [*raw[:at], raw[at], *raw[at:]]
        return [*raw[:at], _mutated(draw, raw[at]), *raw[at + 1 :]]
    return draw.choice(ODD)


def _damage(draw: random.Random, path: Path) -> str:
    """Something is wrong with this object from now on."""
    data = path.read_bytes()
    kinds = ["flip", "cut", "empty", "noise", "lost", "link", "folder", "pipe", "longer"]
    if path.suffix == ".json" or path.name == "_last_checkpoint":
        kinds += ["json"] * 14
    kind = draw.choice(kinds)
    path.chmod(0o644)
    match kind:
        case "flip" if data:
            at = draw.randrange(len(data))
            path.write_bytes(data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :])
        case "cut":
            path.write_bytes(data[: draw.randrange(len(data) + 1)])
        case "empty" | "flip":
            path.write_bytes(b"")
        case "noise":
            path.write_bytes(draw.randbytes(max(1, len(data))))
        case "longer":
            path.write_bytes(data + draw.randbytes(20))
        case "json":
            raw = json.loads(data or b"{}")
            has_digest = isinstance(raw, dict) and raw.pop("digest", None) is not None
            for _ in range(draw.choice((1, 1, 3))):
                raw = _mutated(draw, raw)
            path.write_bytes(sealed(raw) if has_digest and isinstance(raw, dict) else json.dumps(raw).encode())
        case _:
            path.unlink()
            if kind == "link":
                path.symlink_to(draw.choice(["/etc/hostname", "/nowhere", path.name, ".."]))
            elif kind == "folder":
                path.mkdir()
            elif kind == "pipe":
                os.mkfifo(path)
    return kind


def _verbs(root: Path) -> dict[str, Callable[[ml.Database], Any]]:
    local = str(root.parent / "local")

    def node(db: ml.Database) -> None:
        worker = db.warehouse.node("n", local=local)
        for _ in range(4):
            worker.step()
        worker.drain(1.0)

    return {
        "open": lambda db: db.table("bad"),
        "select": lambda db: db.sql("SELECT count(), sum(cityHash64(*)) FROM bad WHERE s != 'q'").rows(),
        "final": lambda db: db.table("bad").scan(final=True, where="k < 90").arrow(),
        "tagged": lambda db: db.sql("SELECT count() FROM bad AS OF TAG 't1'").rows(),
        "as of time": lambda db: db.table("bad").scan(timestamp=db.warehouse.clock.now_ms() - 1).arrow(),
        "skip": lambda db: db.table("bad").scan(skip_broken_parts=True).arrow(),
        "history": lambda db: db.table("bad").history(),
        "parts": lambda db: db.table("bad").parts(active_only=False),
        "merges": lambda db: db.table("bad").merges(),
        "check": lambda db: db.table("bad").check(),
        "verify": lambda db: db.warehouse.verify_log("bad"),
        "tables": lambda db: db.sql("SELECT name, total_rows FROM system.tables WHERE database = 'default'").rows(),
        "publish": lambda db: db.table("bad").publish(),
        "insert": lambda db: db.table("bad").append({"k": [1], "s": ["x"]}),
        "optimize": lambda db: db.table("bad").optimize(final=True),
        "clone": lambda db: db.warehouse.clone_table("bad", "c"),
        "fsck": lambda db: dict(db.warehouse.fsck()),
        "repair": lambda db: dict(db.warehouse.fsck(repair=True)),
        "gc": lambda db: dict(db.warehouse.gc()),
        "node": node,
        "drop": lambda db: db.sql("DROP TABLE bad"),
        "gc after the drop": lambda db: dict(db.warehouse.gc()),
    }


def _run(root: Path, seed: int) -> None:
    draw = random.Random(seed)
    good = ml.connect(str(root)).sql("SELECT count(), sum(cityHash64(*)) FROM good").rows()
    bad = _directory(root, "bad")
    outside = root.parent / "outside"
    outside.write_bytes(b"precious")
    files = sorted(path for path in bad.rglob("*") if path.is_file())
    folders = sorted({path.parent for path in files})
    chosen = [draw.choice([path for path in files if path.parent == draw.choice(folders)] or files)]
    what = [f"{_damage(draw, path)} {path.relative_to(root)}" for path in chosen]
    for name, verb in _verbs(root).items():
        db = ml.connect(str(root))
        try:
            answer = verb(db)
        except MergelakeError as failure:
            coded = failure.name or failure.kind in ("conflict", "unavailable")
            assert coded, (seed, what, name, failure)  # noqa: PT017
        except Exception as failure:
            raise AssertionError(f"seed {seed}, {what}: {name} ended with {failure!r}") from failure
        else:
            if name in ("fsck", "repair"):
                assert answer["default.good"].clean, (seed, what, answer["default.good"].findings)
            if name == "gc":
                assert "default.good" in answer, (seed, what)
    db = ml.connect(str(root))
    assert db.sql("SELECT count(), sum(cityHash64(*)) FROM good").rows() == good, (seed, what)
    assert outside.read_bytes() == b"precious"


@pytest.mark.slow
def test_every_verb_ends_in_an_answer_or_a_coded_error(whole: Path, tmp_path: Path) -> None:
    first = int(os.environ.get("DAMAGE_SEED", "0"))
    for seed in range(first, first + ROUNDS):
        root = tmp_path / str(seed) / "warehouse"
        shutil.copytree(whole, root)
        _run(root, seed)
        shutil.rmtree(tmp_path / str(seed))
