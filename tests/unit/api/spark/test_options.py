"""Options of `format("mergelake")`: names and values, known or refused."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from mergelake.api.spark.options import read_options, write_options
from mergelake.core.base.errors import MergelakeError

PATH = {"path": "/w/default.t"}


@pytest.mark.parametrize(
    ("options", "version", "timestamp_ms"),
    [
        ({}, None, None),
        ({"version": "7"}, 7, None),
        ({"versionasof": "7"}, 7, None),
        ({"version_as_of": "7"}, 7, None),
        ({"VERSION": "0"}, 0, None),
        ({"version": "release-1"}, "release-1", None),
        ({"version": "-1"}, "-1", None),
        ({"tag": "release-1"}, "release-1", None),
        ({"timestamp": "1970-01-01 00:00:01.5"}, None, 1500),
        ({"timestampAsOf": "1970-01-01T01:00:01+01:00"}, None, 1000),
        ({"timestampasof": "1970-01-02"}, None, 86_400_000),
        ({"timestampms": "12"}, None, 12),
        ({"timestamp_ms": "12"}, None, 12),
    ],
)
def test_a_moment_has_several_spellings(options, version, timestamp_ms):
    found = read_options({**PATH, **options})
    assert (found.version, found.timestamp_ms) == (version, timestamp_ms)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a", ("a",)),
        (" a , b c,n.a ", ("a", "b c", "n.a")),
        ("`a,b`,c", ("a,b", "c")),
        (r"`q\`q` , `x``y`", ("q`q", "x`y")),
        ("Ü,ü", ("Ü", "ü")),
    ],
)
def test_columns_are_names_with_commas_between_them(text, columns):
    assert read_options({**PATH, "columns": text}).request.columns == columns


def test_truths_are_true_or_false():
    for text, wanted in {"true": True, "TRUE": True, "1": True, "false": False, "False": False, "0": False}.items():
        found = read_options({**PATH, "final": text, "pushdown": text})
        assert (found.request.final, found.pushdown) == (wanted, wanted)
    assert not read_options(PATH).request.final


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ({"vresion": "1"}, 115, "Maybe you meant version"),
        ({"versionAsfO": "1"}, 115, "Maybe you meant version"),
        ({"timestmap": "1"}, 115, "Maybe you meant timestamp"),
        ({"column": "a"}, 115, "Maybe you meant columns"),
        ({"filter": "a"}, 115, "Options are path, version"),
        ({"header": "true"}, 115, "Options are path, version"),
        ({"dedup_token": "x"}, 36, "one for writing"),
        ({"dedupToken": "x"}, 36, "one for writing"),
        ({"region": "x"}, 115, "store.region"),
        ({"access_key_id": "x"}, 115, "store.access_key_id"),
        ({"aws_secret_access_key": "x"}, 115, "store.aws_secret_access_key"),
        ({"log": "sealed"}, 115, "store.log"),
        ({"paths": '["/a", "/b"]'}, 36, "Several paths"),
        ({"version": "1", "versionAsOf": "2"}, 36, "given twice"),
        ({"version": "1", "timestamp": "2026-01-01"}, 36, "both say which version"),
        ({"version": "1", "tag": "x"}, 36, "both say which version"),
        ({"version": ""}, 36, "is empty"),
        ({"tag": " "}, 36, "is empty"),
        ({"timestamp": "lunchtime"}, 41, "is not a time"),
        ({"timestamp": ""}, 41, "is not a time"),
        ({"timestampMs": "2026-01-01"}, 36, "not milliseconds"),
        ({"timestampMs": "-5"}, 36, "not milliseconds"),
        ({"timestampMs": "٣"}, 36, "not milliseconds"),
        ({"final": "yes"}, 36, "neither true nor false"),
        ({"final": ""}, 36, "neither true nor false"),
        ({"pushdown": "on"}, 36, "neither true nor false"),
        ({"columns": ""}, 36, "not a list of names"),
        ({"columns": "a,"}, 36, "not a list of names"),
        ({"columns": "a,,b"}, 36, "not a list of names"),
        ({"columns": "`a"}, 36, "not a list of names"),
        ({"columns": "`a`b"}, 36, "not a list of names"),
        ({"where": " "}, 36, "is empty"),
        ({"path": ""}, 36, "No path"),
    ],
)
def test_what_is_no_option_of_a_read_is_refused(options, code, says):
    with pytest.raises(MergelakeError, match=says) as caught:
        read_options({**PATH, **options})
    assert caught.value.code == code


def test_a_token_has_several_spellings():
    for name in ("dedupToken", "deduptoken", "dedup_token", "DEDUP_TOKEN"):
        assert write_options({**PATH, name: "x"}).dedup_token == "x"
    assert write_options(PATH).dedup_token is None


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ({"deduptokn": "x"}, 115, "Maybe you meant dedupToken"),
        ({"dedupToken": ""}, 36, "is empty"),
        ({"dedupToken": "a", "dedup_token": "b"}, 36, "given twice"),
        ({"version": "1"}, 36, "one for reading"),
        ({"versionAsOf": "1"}, 36, "one for reading"),
        ({"header": "true"}, 115, "Options are path, dedupToken, mergeSchema"),
        ({"endpoint": "x"}, 115, "store.endpoint"),
    ],
)
def test_what_is_no_option_of_a_write_is_refused(options, code, says):
    with pytest.raises(MergelakeError, match=says) as caught:
        write_options({**PATH, **options})
    assert caught.value.code == code


def test_options_of_the_store_keep_their_values_and_lose_their_prefix():
    given = {**PATH, "store.endpoint": "http://H:1", "STORE.Region": "X"}
    for found in (read_options(given), write_options(given)):
        assert found.store == {"endpoint": "http://H:1", "region": "X"}
