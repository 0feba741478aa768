"""Objects as a newer release may write them, put into a copy of a real warehouse: newer formats, operations, fields."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.log.storage import layout, segment
from mergelake.log.storage.encoding import sealed
from mergelake.log.storage.part_rows import DIGEST_BYTES, digest_of


def objects(root: Path) -> dict[str, str]:
    """Every object, and the hash of its bytes."""
    paths = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.blake2b(path.read_bytes()).hexdigest() for path in paths}


def log_of(root: Path) -> Path:
    """The log of the table that was published."""
    (names,) = root.glob("*/__meta")
    return names.parent / "_log"


def resealed(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write a JSON object anew, with a right digest."""
    raw = json.loads(path.read_bytes())
    raw.pop("digest", None)
    change(raw)
    path.write_bytes(sealed(raw))


def append(log: Path, op: dict[str, Any], **fields: Any) -> None:
    """Append an entry with an operation, as a newer release may write it."""
    last = max(log.glob("*.json"))
    raw = json.loads(last.read_bytes())
    raw.pop("digest", None)
    raw |= {"version": raw["version"] + 1, "attempt": "a" * 24 + "-1", "ops": [op], **fields}
    (log / f"{raw['version']:020d}.json").write_bytes(sealed(raw))


def an_operation(log: Path, kind: str) -> dict[str, Any]:
    """The newest operation of a kind."""
    for path in sorted(log.glob("*.json"), reverse=True):
        for op in json.loads(path.read_bytes())["ops"]:
            if op["op"] == kind:
                return dict(op)
    raise AssertionError(kind)


NEW = {"op": "FrobnicateParts", "parts": []}
TAG = {"op": "Tag", "name": "other", "version": 2}


def an_entry_of_a_newer_format(root: Path) -> None:
    append(log_of(root), TAG, format=5)


def an_entry_with_a_new_operation(root: Path) -> None:
    append(log_of(root), NEW)


def a_new_operation_in_a_transaction(root: Path) -> None:
    append(log_of(root), {**an_operation(log_of(root), "Prepare"), "transaction": "f" * 32, "ops": [NEW]})


def a_catalog_entry_of_a_newer_format(root: Path) -> None:
    append(root / "_catalog" / "log", {"op": "CreateDatabase", "name": "d"}, format=5)


def a_catalog_entry_with_a_new_operation(root: Path) -> None:
    append(root / "_catalog" / "log", NEW)


def a_catalog_checkpoint_of_a_newer_format(root: Path) -> None:
    (path,) = (root / "_catalog" / "log" / "checkpoints").glob("*.arrow")
    resealed(path, lambda raw: raw.update(format=raw["format"] + 8))


def renumbered(path: Path, before: bytes, after: bytes) -> None:
    """A checkpoint with other bytes of the same length, and a right digest."""
    data = path.read_bytes()[:-DIGEST_BYTES]
    changed, count = re.subn(before, after, data)
    assert count == 1
    assert len(changed) == len(data)
    path.write_bytes(changed + digest_of(changed))


def a_checkpoint_of_a_newer_format(root: Path) -> None:
    renumbered(max((log_of(root) / "checkpoints").glob("*.arrow")), rb'"format": ?5', b'"format":6')


def a_segment_of_a_newer_format(root: Path) -> None:
    table = ml.connect(str(root)).table("t")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "INLINE_MAX", 0)
        patch.setattr(segment, "SEGMENT_FORMAT", segment.SEGMENT_FORMAT + 1)
        table.handle.log.write_checkpoint()
    assert list((log_of(root) / "checkpoints").glob("*.segment"))


def a_transaction_record_of_a_newer_format(root: Path) -> None:
    (path,) = (root / "_txn").glob("*.json")
    resealed(path, lambda raw: raw.update(format=2))


def a_batch_with_a_new_operation(root: Path) -> None:
    log = log_of(root)
    places = []
    for op in (TAG, NEW):
        append(log, op)
        places.append(max(log.glob("*.json")))
    bodies = [path.read_bytes() for path in places]
    assert int(places[0].stem) % 2, "a batch of two begins at an odd position"
    places[0].write_bytes(b"#batch [%d,%d]\n" % tuple(map(len, bodies)) + b"\n".join(bodies) + b"\n#batch")
    places[1].unlink()


IN_THE_TABLE = (
    an_entry_of_a_newer_format,
    an_entry_with_a_new_operation,
    a_new_operation_in_a_transaction,
    a_batch_with_a_new_operation,
    a_checkpoint_of_a_newer_format,
    a_segment_of_a_newer_format,
    a_transaction_record_of_a_newer_format,
)
IN_THE_CATALOG = (
    a_catalog_entry_of_a_newer_format,
    a_catalog_entry_with_a_new_operation,
    a_catalog_checkpoint_of_a_newer_format,
)


def a_field_of_an_entry(root: Path) -> None:
    append(log_of(root), TAG, colour="blue")


def a_field_of_an_operation(root: Path) -> None:
    append(log_of(root), {**TAG, "colour": "blue"})


def a_field_of_a_manifest(root: Path) -> None:
    op = an_operation(log_of(root), "AddParts")
    parts = [{**part, "id": part["id"][::-1], "colour": "blue"} for part in op["parts"]]
    append(log_of(root), {**op, "parts": parts, "dedup_token": ""})


def a_field_of_a_column(root: Path) -> None:
    schema = an_operation(log_of(root), "CreateTable")["schema"]
    schema["columns"][-1]["colour"] = "blue"
    append(log_of(root), {"op": "AlterMetadata", "schema": {**schema, "version": 2}})


def a_field_of_a_schema(root: Path) -> None:
    schema = an_operation(log_of(root), "CreateTable")["schema"]
    append(log_of(root), {"op": "AlterMetadata", "schema": {**schema, "version": 2, "colour": "blue"}})


def another_form_of_batch(root: Path) -> None:
    append(log_of(root), TAG)
    last = max(log_of(root).glob("*.json"))
    last.write_bytes(b"#batches 2 [1,2]\n" + last.read_bytes())


TAKEN_FOR_DAMAGE = (
    a_field_of_an_entry,
    a_field_of_an_operation,
    a_field_of_a_manifest,
    a_field_of_a_column,
    a_field_of_a_schema,
    another_form_of_batch,
)


def a_field_of_a_checkpoint(root: Path) -> None:
    renumbered(max((log_of(root) / "checkpoints").glob("*.arrow")), b'"rows_version"', b'"rows_colours"')


def a_field_of_a_catalog_checkpoint(root: Path) -> None:
    (path,) = (root / "_catalog" / "log" / "checkpoints").glob("*.arrow")
    resealed(path, lambda raw: raw.update(colour="blue"))


def a_field_of_a_transaction_record(root: Path) -> None:
    (path,) = (root / "_txn").glob("*.json")
    resealed(path, lambda raw: raw.update(colour="blue"))


def a_field_of_a_hint(root: Path) -> None:
    path = log_of(root) / "_last_checkpoint"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2, "colour": "blue"}))


UNSEEN = (
    a_field_of_a_checkpoint,
    a_field_of_a_catalog_checkpoint,
    a_field_of_a_transaction_record,
    a_field_of_a_hint,
)


def collection_note(root: Path, kind: str, **fields: Any) -> Path:
    """A note of a collector about an unused directory; returns the object in it."""
    directory, listed = log_of(root).parent, {"directory": "e" * 32, "files": {"x": 1}, "why": ""}
    unused = directory / ("e" * 32) / "x"
    note = directory / "_gc" / f"{3:020d}-{1:014d}-{kind}-{'a' * 32}.json"
    for path, text in ((unused, "x"), (note, json.dumps({"unused": [listed], **fields}))):
        path.parent.mkdir()
        path.write_text(text)
    return unused
