"""Projections among the files of a part: `<name>.proj/…`, each a part of its own without partition and block numbers.

`checksums.txt` of the part has one entry `<name>.proj` for all of its files: the sum of their sizes, and a hash over
their names and hashes, those of the projection's own `checksums.txt`.

Source: ClickHouse, `MergeTreeDataPartChecksums::addFile` and `getTotalChecksumUInt128`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from mergelake.core.model.manifest import PartFile, PartManifest, ProjectionPart, encode_files
from mergelake.core.model.schema import Column
from mergelake.format.codecs.hashes import FileDigest
from mergelake.format.serializations.siphash import siphash128

_UNLISTED = frozenset({"columns.txt", "default_compression_codec.txt", "checksums.txt"})


@dataclass(frozen=True, slots=True)
class WrittenProjection:
    """A projection whose files are written."""

    facts: ProjectionPart
    digests: Mapping[str, FileDigest]
    """Its files by name, without the folder, `checksums.txt` included."""


def projection_folder(name: str) -> str:
    """What the names of a projection's files begin with."""
    return f"{name}.proj/"


def projection_entries(written: Mapping[str, WrittenProjection]) -> dict[str, FileDigest]:
    """The entries in `checksums.txt` of their part."""
    return {f"{name}.proj": _entry(each.digests) for name, each in written.items()}


def _entry(digests: Mapping[str, FileDigest]) -> FileDigest:
    listed = sorted((name.encode(), each) for name, each in digests.items() if name not in _UNLISTED)
    text = b"".join(len(name).to_bytes(8, "little") + name + bytes.fromhex(each.hash) for name, each in listed)
    return FileDigest(sum(each.size for _, each in listed), siphash128(text).hex())


def projection_files(written: Mapping[str, WrittenProjection]) -> dict[str, FileDigest]:
    """All of their files by their names in the part."""
    return {
        f"{projection_folder(name)}{file}": each
        for name, projection in written.items()
        for file, each in projection.digests.items()
    }


def projection_facts(written: Mapping[str, WrittenProjection]) -> dict[str, ProjectionPart]:
    """What the manifest of their part says of them."""
    return {name: each.facts for name, each in sorted(written.items())}


def kept_projections(manifest: PartManifest, files: Iterable[PartFile]) -> dict[str, WrittenProjection]:
    """The projections of a part whose files are among `files`, as if they had been written now."""
    digests: dict[str, dict[str, FileDigest]] = {}
    for file in files:
        name, folder, inner = file.name.partition(".proj/")
        if folder:
            found = FileDigest(file.size, file.hash, file.uncompressed_size, file.uncompressed_hash)
            digests.setdefault(name, {})[inner] = found
    return {
        name: WrittenProjection(facts, digests[name]) for name, facts in manifest.projections.items() if name in digests
    }


def projection_manifest(part: PartManifest, name: str, columns: Iterable[Column]) -> PartManifest:
    """A projection of a part as a part; `columns` are those that it holds. KeyError if the part does not have it."""
    facts, folder = part.projections[name], projection_folder(name)
    files = [
        msgspec.structs.replace(file, name=file.name.removeprefix(folder))
        for file in part.file_table().values()
        if file.name.startswith(folder)
    ]
    names = {file.name for file in files}
    return replace(
        part,
        id=f"{part.id}/{name}.proj",
        rows=facts.rows,
        files=encode_files(files),
        minmax={},
        key_range=("", ""),
        marks=facts.marks,
        bytes_on_disk=sum(file.size for file in files),
        bytes_uncompressed=sum(f.uncompressed_size for f in files if f.uncompressed_size > 0),
        columns=tuple(column.id for column in columns),
        part_type="Compact" if "data.bin" in names else "Wide",
        ttl={},
        projections={},
    )
