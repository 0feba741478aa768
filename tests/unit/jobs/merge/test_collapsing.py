"""The rules of CollapsingMergeTree and VersionedCollapsingMergeTree against row-by-row models of them."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mergelake.api.sql.show import create_table_text
from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import parse_type
from mergelake.engines.order.normalized_keys import number_words
from mergelake.engines.rules.collapsing import CancelStream, CollapseStream, with_version, without_version
from mergelake.engines.rules.mode import KeepStream
from mergelake.engines.rules.modes import collapse_block, mode_of
from mergelake.table.definition.define import define

GROUPS = st.lists(st.lists(st.sampled_from([1, -1]), min_size=1, max_size=9), max_size=12)
CUTS = st.lists(st.integers(0, 60), max_size=6)


def _kept(stream: KeepStream, groups: list[list[int]], cuts: list[int]) -> list[bool]:
    """The rows that stay, of keys with these signs, in blocks that end at `cuts`."""
    signs = [sign for group in groups for sign in group]
    repeats = np.array([at > 0 for group in groups for at in range(len(group))], np.bool_)
    words = number_words(pa.array(signs, pa.int8()), parse_type("Int8"))
    edges = [0, *sorted(min(cut, len(signs)) for cut in cuts), len(signs)]
    blocks: list[np.ndarray] = []
    sizes = []
    for start, end in itertools.pairwise(edges):
        blocks += stream.push(repeats[start:end], words[start:end])
        sizes.append(end - start)
    blocks += stream.finish()
    assert [len(block) for block in blocks] == sizes
    return [bool(value) for block in blocks for value in block]


@given(GROUPS, CUTS, st.booleans())
def test_rows_collapse_as_a_reading_of_the_rule_says(groups: list[list[int]], cuts: list[int], final: bool) -> None:
    expected = []
    for group in groups:
        plus, minus = group.count(1), group.count(-1)
        stays = set()
        if plus > minus or (plus == minus and group[-1] == 1):
            stays.add(len(group) - 1 - group[::-1].index(1))
        if not final and (minus > plus or (plus == minus and group[-1] == 1)):
            stays.add(group.index(-1))
        expected += [row in stays for row in range(len(group))]
    assert _kept(CollapseStream(final=final), groups, cuts) == expected


@given(GROUPS, CUTS)
def test_rows_of_a_version_cancel_in_pairs(groups: list[list[int]], cuts: list[int]) -> None:
    expected = []
    for group in groups:
        left: list[int] = []
        for row, sign in enumerate(group):
            if left and group[left[-1]] != sign:
                left.pop()
            else:
                left.append(row)
        expected += [row in left for row in range(len(group))]
    assert _kept(CancelStream(), groups, cuts) == expected


def test_rows_of_keys_that_ended_are_not_held_back() -> None:
    for stream in (CollapseStream(), CancelStream()):
        words = number_words(pa.array([1] * 10, pa.int8()), parse_type("Int8"))
        fresh = np.zeros(10, np.bool_)
        assert [len(stream.push(fresh, words)) for _ in range(5)] == [0, 1, 1, 1, 1]


COLUMNS = {"k": "UInt32", "s": "Int8", "v": "UInt8", "u": "UInt8", "t": "String", "n": "Nullable(Int8)"}


@pytest.mark.parametrize(
    ("engine", "code"),
    [
        ("CollapsingMergeTree", 42),
        ("CollapsingMergeTree(s, v)", 42),
        ("CollapsingMergeTree(u)", 169),
        ("CollapsingMergeTree(n)", 169),
        ("CollapsingMergeTree(nope)", 16),
        ("CollapsingMergeTree('s')", 36),
        ("CollapsingMergeTree(s + 1)", 36),
        ("VersionedCollapsingMergeTree(s)", 42),
        ("VersionedCollapsingMergeTree(s, v, k)", 42),
        ("VersionedCollapsingMergeTree(s, t)", 169),
        ("VersionedCollapsingMergeTree(s, s)", 36),
        ("VersionedCollapsingMergeTree(u, v)", 169),
    ],
)
def test_wrong_arguments_are_refused_by_code(engine: str, code: int) -> None:
    with pytest.raises(MergelakeError) as caught:
        define(COLUMNS, order_by="k", engine=engine)
    assert caught.value.code == code, caught.value


def test_the_version_is_the_end_of_the_sorting_key() -> None:
    engine = "VersionedCollapsingMergeTree(s, v)"
    schema = define(COLUMNS, order_by=["k", "u"], engine=engine)
    assert (schema.order_by, schema.primary_key) == (("k", "u", "v"), ("k", "u"))
    text = create_table_text("d.t", schema)
    assert "ORDER BY (k, u)\n" in text
    assert "PRIMARY KEY" not in text
    assert with_version(without_version(schema)) == schema
    given = define(COLUMNS, order_by=["v", "k"], engine=engine)
    assert given.order_by == given.primary_key == ("v", "k")
    with pytest.raises(MergelakeError, match="ORDER BY v"):
        define(COLUMNS, order_by=[], engine=engine)


def test_other_signs_are_refused() -> None:
    schema = define({"k": "UInt32", "s": "Int8"}, order_by="k", engine="CollapsingMergeTree(s)")
    block = pa.table([pa.array([1, 1], pa.uint32()), pa.array([1, -5], pa.int8())], names=["k", "s"])
    with pytest.raises(MergelakeError, match="Sign = -5") as caught:
        collapse_block(block, schema)
    assert caught.value.code == 117
    mode = mode_of(schema)
    assert mode is not None
    assert mode.sign == "s"
