"""Entries as JSON."""

from __future__ import annotations

import json

import pytest

from mergelake.core.errors import CorruptDataError, InvalidInputError
from mergelake.log import operations as ops
from mergelake.log.encoding import decode_entry, encode_entry
from mergelake.log.operations import Entry
from tests.helpers.manifests import SCHEMA, manifest

EVERY_KIND = (
    ops.CreateTable(SCHEMA),
    ops.UndropTable(),
    ops.DropParts("p", ("a", "b"), "detach"),
    ops.AlterMetadata(SCHEMA),
    ops.AddParts((manifest(1, minmax={"k": ("00", "ff")}, ttl={"t": (1, 2)}), manifest(2)), dedup_token="é"),
    ops.AddParts((), dedup_hash="h"),
    ops.Publish(manifest(3, "2026"), ("a", "b")),
    ops.DropRange("p", "drop", 0),
    ops.DropRange(),
    ops.DropRange(None, "truncate", None, 7, (("é", 3, ("a", "b")), ("u", 5, ())), ()),
    ops.DropRange(None, "truncate", None, 7, hashes=(("h", 6, ("a",)),)),
    ops.DropTable(),
    ops.Publish(manifest(4, "2026", born=7), ("a",), "mutation", "v", (8, 9)),
    ops.AddParts((manifest(5),), detached=("d",)),
    ops.AddVolatile("v", "2026", ("a", "b"), ops.MergeRecipe(1, 1_700_000_000_000), "node"),
    ops.CancelVolatile(("v",), "gave up"),
    ops.AdoptVolatile("v", "node 2", "node"),
    ops.RenewLease("node", 3, 1_700_000_000_000),
    ops.ReleaseLease("node"),
    ops.Mutation("m", "DELETE WHERE 1"),
    ops.Mutation("m", "DELETE WHERE 1", ("2026",)),
    ops.Mutation("m", "DELETE WHERE 1", ()),
    ops.KillMutation("m"),
    ops.DropDetached(("d",)),
    ops.Tag("release", 7),
    ops.Untag("release"),
    ops.Hold("other", ("a", "b")),
    ops.Release("other"),
    ops.Collect(3, 2),
    ops.MoveLog("zookeeper://host:2181/logs/1"),
    ops.MoveLog(),
    ops.CreateDatabase("d"),
    ops.DropDatabase("d"),
    ops.PutTable("d", "t", "id"),
    ops.RemoveTable("d", "t", "id"),
    ops.RenameTable("d", "t", "d2", "t2"),
    ops.RenameDatabase("d", "d2"),
    ops.Exchange("d", "t", "d2", "t2"),
)


def raw(**changes):
    """An entry as versions without digests wrote it."""
    fields = {**json.loads(encode_entry(Entry(7, "x", 5, "me", ()))), **changes}
    return json.dumps({name: value for name, value in fields.items() if name != "digest"}).encode()


def test_every_kind_of_operation_is_the_same_after_json():
    entry = Entry(3, "attempt", 1_700_000_000_000, "me", EVERY_KIND)
    assert decode_entry(encode_entry(entry)) == entry
    assert {type(op) for op in EVERY_KIND} == set(ops.TableOp.__args__) | set(ops.CatalogOp.__args__)


def test_a_newer_format_is_refused_by_name():
    with pytest.raises(InvalidInputError, match=r"UNKNOWN_FORMAT_VERSION") as caught:
        decode_entry(raw(format=2), "t/_log/7.json")
    assert "t/_log/7.json" in str(caught.value)
    assert "upgrade" in str(caught.value)


def test_an_unknown_operation_is_refused_by_name():
    with pytest.raises(InvalidInputError, match=r"'FreezePart'.*UNKNOWN_FORMAT_VERSION"):
        decode_entry(raw(ops=[{"op": "FreezePart", "uuid": "1"}]))


BROKEN = [b"", b"{", b"[]", b"7", b"\xff", raw(ops=[{"op": "DropRange", "what": 1}]), raw(ops=7)]


@pytest.mark.parametrize("data", BROKEN)
def test_bytes_that_are_no_entry_are_corrupt(data):
    with pytest.raises(CorruptDataError, match="the key"):
        decode_entry(data, "the key")


def test_a_missing_field_is_corrupt():
    with pytest.raises(CorruptDataError):
        decode_entry(json.dumps({"format": 1, "version": 1}).encode())


def test_an_entry_without_a_digest_is_read():
    assert decode_entry(raw()) == Entry(7, "x", 5, "me", ())


def test_no_flipped_bit_and_no_cut_makes_another_entry():
    entry = Entry(3, "attempt", 1_700_000_000_000, "me", EVERY_KIND[:4])
    data = encode_entry(entry)
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises(CorruptDataError):
                decode_entry(bytes(damaged))
        with pytest.raises(CorruptDataError):
            decode_entry(data[:at])


def test_a_digest_cannot_be_taken_along_into_another_entry():
    data = encode_entry(Entry(7, "x", 5, "me", ()))
    moved = json.dumps({**json.loads(data), "version": 8}).encode()
    with pytest.raises(CorruptDataError, match="unknown field"):
        decode_entry(moved)
    with pytest.raises(CorruptDataError, match="does not hold what was written"):
        decode_entry(data.replace(b'"version":7', b'"version":8'))
