r"""`checksums.txt`, version 4: size and hash of every file of a part.

::

    "checksums format version: 4\\n"
    one or more compressed blocks, whose content is:
      varuint number of files, then for each file, by name:
        string name, varuint size, 16 bytes file hash, u8 compressed?
        if so: varuint uncompressed size, 16 bytes file hash of the uncompressed stream

Source: ClickHouse, `MergeTreeDataPartChecksum.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mergelake.core.base.errors import CorruptDataError, error
from mergelake.core.types.varuint import read_varuint, write_varuint
from mergelake.format.codecs.codec import parse_codec
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks, encode_compressed_blocks
from mergelake.format.codecs.hashes import FileDigest

_PREFIX = b"checksums format version: "
_HEADER = _PREFIX + b"4\n"


def encode_checksums(files: Mapping[str, FileDigest]) -> bytes:
    """The file for `files`, sorted by name."""
    return _HEADER + encode_compressed_blocks(encode_payload(files), parse_codec("LZ4"))


def encode_payload(files: Mapping[str, FileDigest]) -> bytes:
    """The plain bytes of the compressed blocks."""
    out = [write_varuint(len(files))]
    for name, file in sorted(files.items(), key=lambda item: item[0].encode()):
        encoded = name.encode()
        compressed = file.uncompressed_size >= 0
        out += [write_varuint(len(encoded)), encoded, write_varuint(file.size), bytes.fromhex(file.hash)]
        out.append(bytes([compressed]))
        if compressed:
            out += [write_varuint(file.uncompressed_size), bytes.fromhex(file.uncompressed_hash)]
    return b"".join(out)


def decode_checksums(data: bytes) -> dict[str, FileDigest]:
    """Inverse of `encode_checksums`: files by name.

    Raises `CorruptDataError` for bytes that are not this format, NOT_IMPLEMENTED for another version of it.
    """
    if not data.startswith(_PREFIX):
        raise CorruptDataError(
            "Not a list of checksums", offset=0, expected=repr(_PREFIX.decode()), found=repr(data[:26])
        )
    if not data.startswith(_HEADER):
        version = data[len(_PREFIX) :].split(b"\n", 1)[0][:10].decode(errors="replace")
        raise error("NOT_IMPLEMENTED", f"checksums.txt of version {version} is not supported: only version 4 is")
    try:
        return decode_payload(decode_compressed_blocks(data[len(_HEADER) :]))
    except CorruptDataError as broken:
        if broken.offset >= 0:
            broken.offset += len(_HEADER)
        raise


def decode_payload(data: bytes) -> dict[str, FileDigest]:
    """Inverse of `encode_payload`."""
    count, at = read_varuint(data, 0)
    files: dict[str, FileDigest] = {}

    def take(length: int) -> bytes:
        nonlocal at
        if length > len(data) - at:
            raise CorruptDataError(
                "The list of checksums is cut", expected=f"{length} bytes more", found=f"{len(data) - at}"
            )
        at += length
        return data[at - length : at]

    for _ in range(count):
        length, at = read_varuint(data, at)
        name = take(length).decode(errors="surrogateescape")
        size, at = read_varuint(data, at)
        digest = take(16).hex()
        if take(1) == b"\0":
            files[name] = FileDigest(size, digest)
            continue
        plain_size, at = read_varuint(data, at)
        files[name] = FileDigest(size, digest, plain_size, take(16).hex())
    if at != len(data):
        raise CorruptDataError(
            "The list of checksums is followed by something else", expected=f"{at} bytes", found=f"{len(data)}"
        )
    return files
