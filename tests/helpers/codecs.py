"""The codecs in which a part is written, from its bytes."""

from __future__ import annotations

import struct
from typing import Any

from mergelake.core.model.manifest import PartManifest
from mergelake.format.codecs.codec import NAMES
from mergelake.parts.read.listing import plain_files


def part_files(store: Any, directory: str, manifest: PartManifest) -> dict[str, bytes]:
    """The files of a part by name."""
    return {name: b"".join(map(bytes, chunks)) for name, chunks in plain_files(store, directory, manifest)}


def said_codec(files: dict[str, bytes]) -> str:
    """What `default_compression_codec.txt` says, without `CODEC(…)`."""
    text = files["default_compression_codec.txt"].decode()
    assert (text[:6], text[-1:]) == ("CODEC(", ")"), text
    return text[6:-1]


def block_methods(data: bytes) -> set[str]:
    """Names of the methods of all compressed blocks of a file."""
    found, at = set(), 0
    while at < len(data):
        method, size = struct.unpack_from("<BI", data, at + 16)
        found.add(NAMES[method])
        at += 16 + size
    return found


def data_methods(files: dict[str, bytes]) -> dict[str, set[str]]:
    """The methods of each data file and of each skip index."""
    return {
        n: block_methods(d) for n, d in files.items() if n.endswith(".bin") or (n.startswith("skp_") and ".idx" in n)
    }
