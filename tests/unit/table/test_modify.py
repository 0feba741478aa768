"""Settings of a table that is there already."""

from __future__ import annotations

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError


@pytest.fixture
def db(tmp_path):
    found = ml.connect(str(tmp_path))
    found.sql("CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k SETTINGS parts_to_throw_insert = 10")
    found.sql("INSERT INTO t VALUES (1)")
    return found


def test_settings_change_and_go_back_to_their_defaults(db):
    db.sql("ALTER TABLE t MODIFY SETTING gc_grace_seconds = 172800, parts_to_throw_insert = 20")
    settings = db.table("t").handle.settings
    assert (settings["gc_grace_seconds"], settings["parts_to_throw_insert"]) == (172800, 20)
    db.sql("ALTER TABLE t RESET SETTING parts_to_throw_insert, gc_grace_seconds")
    assert db.table("t").schema.settings == {}
    assert db.sql("SELECT k FROM t").rows() == [(1,)]
    version = db.table("t").version
    assert db.table("t").modify_settings({}) == version


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("MODIFY SETTING index_granularity = 3", 472),
        ("RESET SETTING index_granularity_bytes", 472),
        ("MODIFY SETTING nope = 1", 115),
        ("RESET SETTING nope", 36),
        ("MODIFY SETTING parts_to_throw_insert = 'x'", 27),
        ("MODIFY SETTING part_profile = 'x'", 36),
    ],
)
def test_a_bad_change_is_refused(db, change, code):
    version = db.table("t").version
    with pytest.raises(MergelakeError) as refused:
        db.sql(f"ALTER TABLE t {change}")
    assert (refused.value.code, db.table("t").version) == (code, version)
