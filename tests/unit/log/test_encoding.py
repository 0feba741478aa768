"""Entries as JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest

from mergelake.core.base.errors import CorruptDataError, InvalidInputError
from mergelake.log.model import operations as ops
from mergelake.log.model.operations import Entry
from mergelake.log.storage.encoding import decode_entry, encode_entry, encode_op
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
    ops.Publish(manifest(4, "2026", base_version=7), ("a",), "mutation", "v", (8, 9)),
    ops.Publish(manifest(5, "2026"), ("a",), begun=("f" * 32,)),
    ops.AddParts((manifest(5),), detached=("d",)),
    ops.AddVolatile("v", "2026", ("a", "b"), ops.MergeRecipe(1, 1_700_000_000_000), "node"),
    ops.CancelVolatile(("v",), "gave up"),
    ops.AdoptVolatile("v", "node 2", "node"),
    ops.RenewLease("node", 3, 1_700_000_000_000),
    ops.RenewLease("node", 3, 1_700_000_000_000, "10.0.0.5:9440", "secret"),
    ops.ReleaseLease("node"),
    ops.RowsUnchanged(7),
    ops.Mutation("m", "DELETE WHERE 1"),
    ops.Mutation("m", "DELETE WHERE 1", ("2026",)),
    ops.Mutation("m", "DELETE WHERE 1", ()),
    ops.Mutation("m", "DELETE WHERE 1", ("a",), only=("p1", "p2"), schema_version=3),
    ops.Tag("frozen", 3, ("a", "b")),
    ops.Tag("nothing", 3, ()),
    ops.MarkMutated("p", ("a" * 32,), (7, 9)),
    ops.FinishMutations(("m",)),
    ops.MutationFailed((7,), "p_1_1_0", "CANNOT_PARSE_TEXT", "why"),
    ops.KillMutation("m"),
    ops.DropDetached(("d",)),
    ops.Tag("release", 7),
    ops.Untag("release"),
    ops.AddReference("other", ("a", "b")),
    ops.DropReference("other"),
    ops.AdvanceGcHorizon(3, 2),
    ops.MoveLog("zookeeper://host:2181/logs/1"),
    ops.MoveLog(),
    ops.Prepare("f" * 32, 4, (("other", 7),), (ops.DropRange("p", "move"), ops.AddReference("other", ("a",)))),
    ops.CreateDatabase("d"),
    ops.DropDatabase("d"),
    ops.PutTable("d", "t", "id"),
    ops.RemoveTable("d", "t", "id"),
    ops.RenameTable("d", "t", "d2", "t2"),
    ops.RenameDatabase("d", "d2"),
    ops.Exchange("d", "t", "d2", "t2"),
    ops.PutVirtual("d", "v", "id", SCHEMA, "SELECT é FROM d.t", ("d.t",)),
    ops.PutVirtual("d", "m", "id", SCHEMA),
    ops.RemoveVirtual("d", "v", "id"),
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
        decode_entry(raw(format=5), "t/_log/7.json")
    assert "t/_log/7.json" in str(caught.value)
    assert "upgrade" in str(caught.value)


MEMBERS = (ops.Member("x", "me", 2), ops.Member("y", "you", 1))


def test_an_entry_of_several_members_says_whose_its_operations_are():
    entry = Entry(3, "x", 1_700_000_000_000, "me", EVERY_KIND[:3], MEMBERS)
    data = encode_entry(entry)
    assert json.loads(data)["format"] == 4
    assert decode_entry(data) == entry
    assert [entry.holds(attempt) for attempt in "xyz"] == [True, True, False]
    assert entry.until("x").ops == EVERY_KIND[:2]
    assert entry.until("y").ops == entry.ops
    given_up = dataclasses.replace(entry, members=(*MEMBERS, ops.Member("z", "me", 0)))
    assert decode_entry(encode_entry(given_up)).holds("z")


def test_an_entry_of_one_writer_is_written_as_ever():
    entry = Entry(7, "x", 5, "me", EVERY_KIND[:2])
    assert "members" not in json.loads(encode_entry(entry))
    assert json.loads(encode_entry(entry))["format"] == 3
    assert entry.parties == (ops.Member("x", "me", 2),)
    assert entry.holds("x")
    assert not entry.holds("y")


def said(attempt, count):
    return {"attempt": attempt, "author": "me", "ops": count}


@pytest.mark.parametrize(
    "members",
    [[], [said("x", 1)], [said("x", 2), said("y", 1)], [said("x", 3)], [said("x", 1)] * 2, [{}], None, 7],
)
def test_members_that_do_not_share_the_operations_are_damage(members):
    two = [{"op": "Untag", "name": "a"}, {"op": "Untag", "name": "b"}]
    assert decode_entry(raw(format=4, members=[said("x", 1), said("y", 1)], ops=two)).holds("y")
    with pytest.raises(CorruptDataError, match="lacks or garbles"):
        decode_entry(raw(format=4, members=members, ops=two))
    with pytest.raises(CorruptDataError, match="unknown field"):
        decode_entry(raw(members=members, ops=two))


def test_an_unknown_operation_is_refused_by_name():
    with pytest.raises(InvalidInputError, match=r"'FreezePart'.*UNKNOWN_FORMAT_VERSION"):
        decode_entry(raw(ops=[{"op": "FreezePart", "uuid": "1"}]))


def test_what_was_written_before_the_first_release_is_refused_by_its_format():
    for old in (1, 2):
        with pytest.raises(
            InvalidInputError, match=rf"format {old}, and this version reads 3 and 4.*before the first release"
        ):
            decode_entry(raw(format=old))


BROKEN = [b"", b"{", b"[]", b"7", b"\xff", raw(ops=[{"op": "DropRange", "what": 1}]), raw(ops=7)]


@pytest.mark.parametrize("data", BROKEN)
def test_bytes_that_are_no_entry_are_corrupt(data):
    with pytest.raises(CorruptDataError, match="the key"):
        decode_entry(data, "the key")


def test_a_missing_field_is_corrupt():
    with pytest.raises(CorruptDataError):
        decode_entry(json.dumps({"format": 3, "version": 1}).encode())


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


def test_a_lease_says_where_its_node_listens_only_if_it_does():
    plain = ops.RenewLease("node", 3, 5)
    assert encode_op(plain) == {"op": "RenewLease", "node": "node", "version": 3, "until_ms": 5}
    assert {"address", "token"} <= set(encode_op(ops.RenewLease("node", 3, 5, "a:1", "secret")))
