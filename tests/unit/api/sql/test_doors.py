"""Arguments of Python's doors: what they do not know, or cannot use, they refuse before anything is done."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import mergelake
from mergelake.core.base.errors import MergelakeError


@pytest.mark.parametrize("value", [-1, -0.5, math.nan, math.inf, "1", None, True])
def test_a_number_of_seconds_is_one(tmp_path: Path, value: Any) -> None:
    with mergelake.connect(tmp_path) as db:
        db.sql("CREATE TABLE t (k UInt8) ENGINE = MergeTree ORDER BY k")
        table = db.table("t")
        for call in (
            lambda: table.publish(grace_seconds=value),
            lambda: table.attach_statement("a.b", refresh_seconds=value),
        ):
            with pytest.raises(MergelakeError, match="0 or more") as refusal:
                call()
            assert refusal.value.code == 36
        assert "refresh_parts_interval = 0" in table.attach_statement("a.b", refresh_seconds=0)
        with pytest.raises(MergelakeError, match="BAD_ARGUMENTS"):
            table.attach_statement("a.b", refresh_seconds=1.5)  # type: ignore[arg-type]
        with pytest.raises(MergelakeError, match="BAD_ARGUMENTS"):
            table.attach_statement(5)  # type: ignore[arg-type]
        table.publish(grace_seconds=0)


def test_a_parameter_that_the_statement_does_not_name_is_refused() -> None:
    with mergelake.connect("memory://params") as db:
        assert db.sql("SELECT {a:UInt8}; SELECT {b:String}", params={"a": 1, "b": "x"}).scalar() == "x"
        with pytest.raises(MergelakeError, match=r"names no parameter 'b'\. There are parameters a"):
            db.sql("SELECT {a:UInt8}", params={"a": 1, "b": 2})
        with pytest.raises(MergelakeError, match="BAD_ARGUMENTS"):
            db.sql("SELECT '{a:UInt8}'", params={"a": 1})
