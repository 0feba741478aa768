"""What nodes mean to merge, as a table."""

from __future__ import annotations

from mergelake.api.python.inspect import merges_table
from mergelake.log.model.state import State
from tests.helpers.volatile import MIB, Shared


def test_each_live_volatile_part_is_a_row_with_what_it_covers_and_who_owns_it():
    shared = Shared()
    shared.insert(6)
    shared.intend(1, 3, owner="n1")
    shared.intend(0, 3, owner="n2")
    shared.renew("n1", seconds=60)
    outer, inner = merges_table(shared.state).to_pylist()
    assert (outer["result_part_name"], inner["result_part_name"]) == ("all_1_4_2", "all_2_3_1")
    assert (outer["num_parts"], outer["rows"], outer["total_size_bytes_compressed"]) == (4, 40, 4 * MIB)
    assert (inner["owner"], inner["inside"], outer["inside"]) == ("n1", "all_1_4_2", "")
    assert outer["lease_until"] is None
    assert (inner["lease_until"] - inner["since"]).seconds == 60


def test_a_table_without_any_has_no_rows_and_the_same_columns():
    assert merges_table(State()).num_rows == 0
    shared = Shared()
    shared.insert(2)
    shared.intend(0, 2)
    assert merges_table(State()).schema == merges_table(shared.state).schema
