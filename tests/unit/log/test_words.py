"""Every kind of operation has words."""

from __future__ import annotations

import pytest

from mergelake.log.model import operations as ops
from mergelake.log.model.describe import describe_op
from tests.helpers.manifests import manifest
from tests.unit.log.test_encoding import EVERY_KIND


@pytest.mark.parametrize("op", EVERY_KIND, ids=lambda op: type(op).__name__)
def test_every_kind_has_words(op):
    assert describe_op(op)


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (ops.AddParts((manifest(1), manifest(2, rows=1)), dedup_token="day-7"), "insert 11 rows in 2 parts as 'day-7'"),
        (ops.AddParts((manifest(1, rows=1),), detached=("x",)), "attach 1 row"),
        (ops.Publish(manifest(9), ("a", "b")), "merge 2 parts of partition all"),
        (ops.Publish(manifest(9), ("a",), "mutation"), "mutate a part of partition all"),
        (ops.Publish(manifest(9), ("a", "b"), "volatile", "v"), "upload the merge of 2 parts of partition all"),
        (ops.DropRange("202601"), "drop partition 202601"),
        (ops.DropRange(kind="truncate"), "truncate"),
        (ops.MoveLog(), "move the log to the bucket"),
        (ops.AdvanceGcHorizon(7, 3), "collect what only versions before 3 need"),
    ],
)
def test_words_say_what_was_done(op, words):
    assert describe_op(op) == words
