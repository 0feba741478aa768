"""The text of CREATE TABLE for a ClickHouse that attaches a published table."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.publish.definition import attach_text, create_statement, disk_text
from mergelake.store import open_store
from mergelake.store.interface.protocol import StoreSpec
from mergelake.table.definition.define import define
from mergelake.table.handle.handle import TableHandle


class Bucket:
    """As much of a bucket's store as the statement asks for."""

    def __init__(self, url: str, **options: str) -> None:
        self.url = url
        self.spec = StoreSpec.of(url, options)


def test_a_table_in_a_directory(tmp_path: Any) -> None:
    columns = {"day": "Date", "k y": "UInt64", "s": "String"}
    schema = define(
        columns, order_by=["`k y`", "s"], primary_key=["`k y`"], partition_by=["toYYYYMM(day)"],
        engine="ReplacingMergeTree(day)", settings={"index_granularity": 100},
    )  # fmt: skip
    handle = TableHandle.create(open_store(str(tmp_path)), "abc", schema, clock=ManualClock(), ids=SeededIds())
    disk = (
        "disk(type = object_storage, object_storage_type = local, metadata_type = plain_rewritable, "
        f"readonly = 1, path = '{tmp_path}/abc/')"
    )
    assert create_statement(handle, "d", "t", refresh_seconds=5).splitlines() == [
        "CREATE TABLE `d`.`t`",
        "(",
        "    `day` Date,",
        "    `k y` UInt64,",
        "    `s` String",
        ")",
        "ENGINE = ReplacingMergeTree(day)",
        "PARTITION BY toYYYYMM(day)",
        "PRIMARY KEY `k y`",
        "ORDER BY (`k y`, s)",
        f"SETTINGS index_granularity = 100, refresh_parts_interval = 5, table_disk = 1, disk = {disk}",
    ]


def test_no_key_and_a_descending_key() -> None:
    schema = define({"a": "UInt8"}, order_by=[])
    assert "ORDER BY tuple()" in attach_text(schema, "t", "disk", 1)
    down = replace(define({"a": "UInt8"}, order_by=["a"]), order_desc=(True,))
    text = attach_text(down, "t", "disk", 1)
    assert "ORDER BY (a DESC)" in text
    assert "allow_experimental_reverse_key = 1" in text


@pytest.mark.parametrize(
    ("store", "arguments"),
    [
        (
            Bucket("s3://b/wh", endpoint="http://h:1", access_key_id="K", secret_access_key="it's"),
            "endpoint = 'http://h:1/b/wh/t/', access_key_id = 'K', secret_access_key = 'it\\'s'",
        ),
        (
            Bucket("s3://b", region="eu-central-1"),
            "endpoint = 'https://b.s3.eu-central-1.amazonaws.com/t/', use_environment_credentials = '1'",
        ),
        (
            Bucket("s3://b/x", endpoint="https://b.s3.example.com"),
            "endpoint = 'https://b.s3.example.com/x/t/', use_environment_credentials = '1'",
        ),
    ],
)
def test_a_table_in_a_bucket(store: Any, arguments: str) -> None:
    text = disk_text(store, "t")
    assert text.startswith("disk(type = object_storage, object_storage_type = s3, metadata_type = plain_rewritable")
    assert arguments in text


def test_other_keys_may_be_given_and_other_stores_are_refused() -> None:
    own = Bucket("s3://b", endpoint="http://h", access_key_id="K", secret_access_key="S")
    assert "access_key_id = 'reader', secret_access_key = 'only'" in disk_text(own, "t", "reader", "only")  # type: ignore[arg-type]
    with pytest.raises(MergelakeError, match="gs://"):
        disk_text(Bucket("gs://b"), "t")  # type: ignore[arg-type]


def test_the_secret_of_the_store_is_shown_only_on_demand() -> None:
    store = Bucket("s3://b", endpoint="http://h", access_key_id="K", secret_access_key="topsecret")
    schema = define({"k": "Int64"}, order_by=["k"])
    handle: Any = SimpleNamespace(store=store, directory="t", schema=schema)
    assert "access_key_id = 'K', secret_access_key = '[HIDDEN]'" in create_statement(handle, "d", "t")
    assert "[HIDDEN]" in create_statement(handle, "d", "t", access_key_id="other")
    assert "secret_access_key = 'topsecret'" in create_statement(handle, "d", "t", show_secrets=True)
    assert "secret_access_key = 'mine'" in create_statement(handle, "d", "t", secret_access_key="mine")
    assert "use_environment_credentials" in create_statement(handle, "d", "t", access_key_id="", secret_access_key="")
