"""`open_store`: from a URL to a `Store`. The only module of this wing that reads the environment."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from mergelake.core.base.errors import InvalidInputError
from mergelake.core.model.settings import truth
from mergelake.store.cache.cache_dir import CacheDir
from mergelake.store.cache.cached import CachedStore
from mergelake.store.interface.protocol import Store, StoreSpec, opens_specs
from mergelake.store.objects.bucket import BucketStore
from mergelake.store.objects.buckets import SCHEMES, bucket_options, make_clients, whole_number
from mergelake.store.objects.directory import GAP_BYTES as DIRECTORY_GAP, DirectoryStore
from mergelake.store.objects.memory import MemoryStore

CACHE_BYTES = 10 << 30
"""Default limit of a cache directory."""
CACHE_BYTES_MIN = 1 << 20

_opened: dict[tuple[int, StoreSpec], Store] = {}
_lock = threading.Lock()


@opens_specs
def _open_spec(spec: StoreSpec) -> Store:
    """The store of a spec, one instance per process and spec.

    The cache is keyed by process id: a forked child must not use its parent's connections.
    """
    slot = (os.getpid(), spec)
    with _lock:
        if slot not in _opened:
            _opened[slot] = open_store(spec.url, dict(spec.options))
        return _opened[slot]


def open_store(url: str, options: Mapping[str, str] | None = None) -> Store:
    """The store at `url`: a directory, `file:///dir`, `memory://name`, `s3://bucket/prefix`, `gs://…`, `az://…`.

    Nothing is read or written. Options of every store: `coalesce_gap` (bytes). Of a directory: `sync`
    ("false" trades durability against a power cut for speed). Of a bucket: `access_key_id`,
    `secret_access_key`, `session_token`, `endpoint`, `region`, `skip_signature`, `allow_http`, `timeout_s`,
    `connect_timeout_s`, `max_retries`, `chunk_size` (bytes of an upload part), `max_requests_in_flight` (of reads, in
    a process), `read_ahead_bytes` (that one read may hold), `cache_dir` (a directory of this machine that keeps what
    was read of parts), `cache_bytes` (that it may hold, of all stores together) and obstore's others; what is not given
    is taken from `AWS_*` or `S3_ENDPOINT` (`GOOGLE_*`, `AZURE_*`), `MERGELAKE_CACHE_DIR` and `MERGELAKE_CACHE_BYTES`.

    Raises `InvalidInputError` for an unknown scheme or option, and for a bucket without credentials.
    """
    text_options = {name: str(value) for name, value in (options or {}).items()}
    scheme, marker, _ = url.partition("://")
    if not url:
        raise InvalidInputError("the URL of a store is empty", name="BAD_ARGUMENTS")
    if url.startswith("file:/"):  # Java, and so Spark, writes file:/dir for file:///dir
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            hint = f"Write file:///{parts.netloc}{parts.path} for a directory of this machine"
            raise InvalidInputError(f"'{url}' names the machine {parts.netloc}", name="BAD_ARGUMENTS", hint=hint)
        return _directory(unquote(parts.path), text_options)
    if not marker:
        return _directory(url, text_options)
    parts = urlsplit(url)
    if scheme == "memory":
        _only(url, text_options, "coalesce_gap")
        return MemoryStore(parts.netloc, parts.path, gap=whole_number(text_options, "coalesce_gap", DIRECTORY_GAP))
    if scheme in SCHEMES:
        return _bucket(SCHEMES[scheme], parts.netloc, parts.path.strip("/"), text_options)
    raise InvalidInputError(
        f"'{scheme}://' is not a kind of store",
        name="BAD_ARGUMENTS",
        hint="Use a directory, or a URL that starts with file, memory, s3, gs or az",
    )


def _directory(path: str, options: dict[str, str]) -> DirectoryStore:
    _only(path, options, "coalesce_gap", "sync")
    sync = truth(options.get("sync", "true"), "option sync")
    return DirectoryStore(path, gap=whole_number(options, "coalesce_gap", DIRECTORY_GAP), sync=sync)


def _bucket(scheme: str, bucket: str, prefix: str, user_options: dict[str, str]) -> Store:
    options = bucket_options(scheme, user_options, os.environ)
    cache = _cache_dir(options, os.environ)
    url = f"{scheme}://{bucket}/{prefix}".rstrip("/")
    chunk_size = whole_number(options, "chunk_size", 8 << 20)
    if scheme == "s3" and chunk_size < 5 << 20:
        raise InvalidInputError("chunk_size must be 5 MiB at least: S3 takes no smaller parts", name="BAD_ARGUMENTS")
    if whole_number(options, "max_requests_in_flight", 64) < 1:
        raise InvalidInputError("max_requests_in_flight must be 1 at least", name="BAD_ARGUMENTS")
    whole_number(options, "read_ahead_bytes", 0)
    store = BucketStore(
        StoreSpec.of(url, options),
        make_clients(scheme, bucket, prefix, options),
        retries=whole_number(options, "max_retries", 6),
        gap=whole_number(options, "coalesce_gap", 1 << 20),
        chunk_size=chunk_size,
    )
    return store if cache is None else CachedStore(store, cache)


def _cache_dir(options: dict[str, str], environment: Mapping[str, str]) -> CacheDir | None:
    """The cache directory of the options, which are removed from them, or the environment; None if there is none."""
    path = options.pop("cache_dir", environment.get("MERGELAKE_CACHE_DIR", ""))
    size_option = {"cache_bytes": options.pop("cache_bytes")} if "cache_bytes" in options else {}
    if not path:
        if size_option:
            hint = "Give cache_dir, too"
            raise InvalidInputError("cache_bytes is given, and no cache_dir", name="BAD_ARGUMENTS", hint=hint)
        return None
    if not path.startswith("/") or "\0" in path:
        hint = "Write the whole path, from / on; ~ is not replaced"
        raise InvalidInputError(f"cache_dir is '{path}', not an absolute path", name="BAD_ARGUMENTS", hint=hint)
    size = size_option or {"cache_bytes": environment.get("MERGELAKE_CACHE_BYTES") or str(CACHE_BYTES)}
    max_bytes = whole_number(size, "cache_bytes", CACHE_BYTES)
    if max_bytes < CACHE_BYTES_MIN:
        raise InvalidInputError("cache_bytes must be 1 MiB at least", name="BAD_ARGUMENTS")
    return CacheDir(path.rstrip("/") or "/", max_bytes)


def _only(url: str, options: Mapping[str, str], *known: str) -> None:
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise InvalidInputError(
            f"{url} has no option {', '.join(unknown)}",
            name="UNKNOWN_SETTING",
            hint=f"Its options: {', '.join(known)}",
        )
