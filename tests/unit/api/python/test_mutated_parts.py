"""What is told of parts that mutations wrote, and that damage to them is found."""

from __future__ import annotations

import uuid

import numpy as np
import pytest

import mergelake as ml
from mergelake.api.sql.database import connect
from mergelake.parts.tools.inspect import inspect_part
from mergelake.parts.tools.public import read_part

ROWS = 20_000


@pytest.fixture
def table(tmp_path):
    """Masked, rewritten in one column, marked, and small: one part each."""
    db = connect(str(tmp_path))
    db.sql(
        "CREATE TABLE t (k UInt64, v Int64, s String, INDEX m v TYPE minmax GRANULARITY 2, INDEX b s TYPE bloom_filter "
        "GRANULARITY 1) ENGINE = MergeTree ORDER BY k SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 0"
    )
    made = db.table("t")
    random = np.random.default_rng(1)
    for first, rows in ((0, ROWS), (ROWS, ROWS), (2 * ROWS, ROWS), (3 * ROWS, 10)):
        keys, text = np.arange(first, first + rows, dtype=np.uint64), random.integers(0, 1 << 60, rows)
        made.append({"k": keys, "v": random.integers(0, 100, rows), "s": [f"{number:x}" for number in text]})
    made.delete(f"k % 4 = 1 AND k < {ROWS}")
    made.update({"v": "v + 1"}, f"k BETWEEN {ROWS} AND {ROWS + 100}")
    made.delete(f"k >= {3 * ROWS} AND k % 2 = 0")
    made.apply_mutations()
    return made


def test_parts_are_told_with_their_masks_and_data_versions(table):
    columns = ["name", "rows", "data_version", "has_lightweight_delete"]
    assert [tuple(row.values()) for row in table.parts().select(columns).to_pylist()] == [
        ("all_1_1_0_7", ROWS, 7, 1),
        ("all_2_2_0_7", ROWS, 7, 0),
        ("all_3_3_0_7", ROWS, 7, 0),
        ("all_4_4_0_7", 5, 7, 0),
    ]
    every = table.parts(active_only=False).to_pylist()
    marked = [row for row in every if row["name"].startswith("all_3_3")]
    assert [(row["name"], row["active"], row["has_lightweight_delete"]) for row in marked] == [
        ("all_3_3_0_7", 1, 0),
        ("all_3_3_0", 0, None),
    ]
    assert len({row["uuid"] for row in marked}) == 1


def test_a_published_part_is_inspected_with_the_rows_that_its_mask_deletes(table):
    table.publish()
    (path,) = (p for p in table.handle.log.state.parts() if p.manifest.masked)
    opened = read_part(f"{table.location}/plain-{path.manifest.id}")
    facts = inspect_part(opened.part, "p", check="full")
    assert (facts.rows, facts.deleted_rows, facts.problems) == (ROWS, ROWS // 4, ())


@pytest.mark.parametrize("file", ["_row_exists.bin", "k.bin", "v.bin", "skp_idx_m.idx2", "skp_idx_b.idx"])
@pytest.mark.parametrize("number", [0, 1])
def test_damage_of_a_mutated_part_is_found_wherever_its_files_lie(table, number, file):
    assert table.check()["is_passed"].to_pylist() == [1, 1, 1, 1]
    part = list(table.handle.log.state.parts())[number]
    files = part.manifest.file_table()
    if file not in files:
        assert (number, file) == (1, "_row_exists.bin")
        return
    assert table.scan(skip_broken_parts=True).arrow().num_rows == 3 * ROWS - ROWS // 4 + 5
    extent = files[file].extents[0]
    key, store = f"{table.handle.directory}/{extent.key}", table.handle.store
    data = bytearray(store.get(key))
    data[extent.offset + extent.length // 2] ^= 1
    store.put(key, bytes(data))
    checked = table.check().to_pylist()
    assert [row["is_passed"] for row in checked] == [int(at != number) for at in range(4)]
    assert extent.key.partition("/")[0] in checked[number]["message"]
    table.env.sound.clear()
    left = ROWS - ROWS // 4 if number else ROWS
    assert table.scan(skip_broken_parts=True).arrow().num_rows == ROWS + left + 5


def test_columns_are_rewritten_where_no_row_stays(table):
    before = table.scan(where=f"k >= {2 * ROWS}", ordered=True).arrow()
    table.update({"v": "v + 1"}, f"k < {2 * ROWS}")
    table.delete(f"k < {2 * ROWS}")
    table.apply_mutations()
    assert table.scan(ordered=True).arrow() == before
    assert not [problem for row in table.check().to_pylist() if (problem := row["message"])]
    table.optimize(final=True)
    assert table.scan(ordered=True).arrow() == before


def test_long_commands_of_a_mutation_that_is_over_are_shown_as_far_as_they_are_kept():
    """They could not be parsed again: whoever looked at the mutations of the table got a SYNTAX_ERROR."""
    db = ml.connect(f"memory://{uuid.uuid4()}")
    table = db.create_table("t", {"k": [1, 2], "v": ["a", "b"]}, order_by="k")
    for letter in "xy":
        table.update({"v": f"'{letter * 5000}'"}, "k = 1")
    table.kill_mutation(table.mutations()["mutation_id"][1].as_py())
    table.apply_mutations()
    finished, killed = table.mutations()["command"].to_pylist()
    assert finished.startswith("(UPDATE v = 'xxx")
    assert killed.startswith("(UPDATE v = 'yyy")
    assert {len(finished), len(killed)} == {4096 + len("()")}
    assert db.sql("SELECT count() FROM system.mutations WHERE is_done OR is_killed").rows() == [(2,)]
