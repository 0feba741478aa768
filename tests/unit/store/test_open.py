"""URLs, options, the environment, specs."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from mergelake.core.base.errors import InvalidInputError
from mergelake.store import StoreSpec, open_store
from mergelake.store.objects.bucket import BucketStore
from mergelake.store.objects.buckets import bucket_options
from mergelake.store.objects.directory import DirectoryStore
from mergelake.store.objects.memory import MemoryStore

KEYS = {"access_key_id": "id", "secret_access_key": "hidden-one"}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(("AWS_", "S3_", "GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)


def test_a_plain_path_and_a_file_url_are_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("x/y", str(tmp_path / "x" / "y"), f"file://{tmp_path}/x/y"):
        store = open_store(url)
        assert isinstance(store, DirectoryStore)
        assert store.url == str(tmp_path / "x" / "y")


def test_a_memory_store_is_shared_by_name() -> None:
    open_store("memory://shared/t").put("k", b"1")
    assert open_store("memory://shared").get("t/k") == b"1"
    assert list(open_store("memory://other").list("")) == []
    assert isinstance(open_store("memory://shared"), MemoryStore)


def test_a_bucket_is_opened_without_a_request() -> None:
    store = open_store("s3://bucket/a/prefix/", {**KEYS, "endpoint": "http://127.0.0.1:1"})
    assert isinstance(store, BucketStore)
    assert store.url == "s3://bucket/a/prefix"
    assert "hidden-one" not in repr(store.spec)
    assert pickle.loads(pickle.dumps(store.spec)) == store.spec


def test_google_and_azure_open_by_url() -> None:
    google = open_store("gs://bucket/p", {"skip_signature": "true"})
    azure = open_store("az://box/p", {"account_name": "me", "account_key": "aGlkZGVu"})
    assert (google.url, azure.url) == ("gs://bucket/p", "az://box/p")


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("", {}, "empty"),
        ("ftp://host/x", {}, "not a kind of store"),
        ("s3://", KEYS, "no bucket"),
        ("s3://b", {"access_key_id": "id"}, "go together"),
        ("s3://b", {**KEYS, "colour": "red"}, "colour"),
        ("s3://b", {**KEYS, "coalesce_gap": "far"}, "whole number"),
        ("s3://b", {**KEYS, "chunk_size": "1000"}, "5 MiB"),
        ("s3://b", {"metadata_endpoint": "http://127.0.0.1:1"}, "no credentials"),
        ("s3://b", {"ec2_metadata_disabled": "true"}, "no credentials"),
        ("memory://x", {"endpoint": "y"}, "no option endpoint"),
        ("/tmp/x", {"region": "y"}, "no option region"),
    ],
)
def test_a_wrong_url_or_option_is_refused(url: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        open_store(url, options)


def test_the_environment_fills_what_was_not_given() -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "env-id",
        "AWS_SECRET_ACCESS_KEY": "env-secret",
        "AWS_SESSION_TOKEN": "env-token",
        "AWS_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": "http://aws",
        "S3_ENDPOINT": "http://own",
        "UNRELATED": "x",
    }
    assert bucket_options("s3", {}, environment) == {
        "access_key_id": "env-id",
        "secret_access_key": "env-secret",
        "session_token": "env-token",
        "region": "eu-central-1",
        "endpoint": "http://own",
        "allow_http": "true",
    }
    assert (
        bucket_options("s3", {"AWS_REGION": "x", "aws_endpoint_url": "https://y"}, environment)["endpoint"]
        == "https://y"
    )


def test_two_identities_are_never_mixed() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "env-id", "AWS_SESSION_TOKEN": "env-token", "AWS_ROLE_ARN": "env-role"}
    options = bucket_options("s3", KEYS, environment)
    assert options == {**KEYS, "region": "us-east-1"}


def test_a_spec_gives_one_store_a_process() -> None:
    assert StoreSpec("memory://once").open() is StoreSpec.of("memory://once", {}).open()
    assert StoreSpec.of("memory://once", {"coalesce_gap": "0"}).open() is not StoreSpec("memory://once").open()


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("/tmp/x", {"sync": "nope"}, "neither true nor false"),
        ("/tmp/x", {"coalesce_gap": "-1"}, "not a whole number"),
        ("file://elsewhere/tmp/x", {}, "names the machine elsewhere"),
        ("s3://b", {"allow_http": "yes"}, "neither true nor false"),
        ("s3://b", {"skip_signature": "y"}, "neither true nor false"),
        ("s3://b", {"max_retries": "many"}, "not a whole number"),
        ("s3://b", {"access_key_id": "a", "aws_access_key_id": "b"}, "given twice"),
        ("s3://b", {"acess_key_id": "a"}, "acess_key_id"),
    ],
)
def test_values_of_options_are_checked(url, options, says):
    keys = {"access_key_id": "a", "secret_access_key": "s"} if url.startswith("s3") else {}
    with pytest.raises(InvalidInputError, match=says):
        open_store(url, {**keys, **options})


def test_a_file_url_may_have_one_slash(tmp_path):
    assert open_store(f"file:{tmp_path}").url == open_store(f"file://{tmp_path}").url == str(tmp_path)
