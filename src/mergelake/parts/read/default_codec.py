"""The default codec of a part: that of its columns without a CODEC of their own, and of its skip indexes.

It is `default_compression_codec` where the table sets it. Otherwise a small part has LZ4, and one of
`min_bytes_for_zstd` plain bytes or more ZSTD(3). Plain bytes, because a limit in compressed bytes (ClickHouse's, as of
26.9) is one that the same rows pass with one codec and not with the other: each merge would change it back.
"""

from __future__ import annotations

from collections.abc import Sequence

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.settings import TableSettings
from mergelake.format.codecs.codec import CODEC_LZ4, Codec, parse_default_codec
from mergelake.format.kernels.method_bytes import ZSTD
from mergelake.parts.read.reader import PartReader

CODEC_LARGE = Codec(ZSTD, 3)
"""The codec of large parts."""
CODEC_FILE = "default_compression_codec.txt"


def default_codec(settings: TableSettings, plain_bytes: int = 0) -> Codec:
    """The default codec of a new part of rows that take `plain_bytes` before compression."""
    if text := settings.text("default_compression_codec"):
        return parse_default_codec(text)
    least = settings.integer("min_bytes_for_zstd")
    return CODEC_LARGE if 0 < least <= plain_bytes else CODEC_LZ4


def asks_sources(settings: TableSettings, sources: Sequence[PartReader]) -> bool:
    """Whether `merged_codec` reads `CODEC_FILE` of the sources: they are small, but one may have been large."""
    size = sum(source.manifest.bytes_uncompressed for source in sources)
    return not settings.text("default_compression_codec") and size < settings.integer("min_bytes_for_zstd")


def merged_codec(settings: TableSettings, sources: Sequence[PartReader]) -> Codec:
    """The default codec of a part that replaces `sources`.

    By their size together, so a merge that removes rows keeps the codec of large parts; and so do later ones, in which
    one source has it, however few bytes are left. Raises the errors of reading a source.
    """
    if asks_sources(settings, sources):
        return CODEC_LARGE if any(part_codec(source) == CODEC_LARGE for source in sources) else CODEC_LZ4
    return default_codec(settings, sum(source.manifest.bytes_uncompressed for source in sources))


def part_codec(reader: PartReader) -> Codec | None:
    """The default codec of a part that exists; None if it does not say, or has one that is not written here."""

    def load() -> tuple[bytes, int]:
        return reader.small_files([CODEC_FILE]).get(CODEC_FILE, b""), 100

    text = reader.caches.get_or((*reader.cache_key, "default codec"), load).decode(errors="replace")
    try:
        return parse_default_codec(text) if text else None
    except MergelakeError:
        return None
