"""How we write a part: Wide or Compact, in the classic form that every ClickHouse reads or in that of 26.x.

=============  =======================  ===============================================
               classic                  modern (ClickHouse 25.11 and newer)
=============  =======================  ===============================================
String         inline lengths           lengths in a stream of their own (`.size`)
marks          plain (`.mrk2`/`.mrk3`)  compressed, ZSTD (`.cmrk2`/`.cmrk3`)
primary index  plain (`primary.idx`)    compressed, ZSTD (`primary.cidx`)
               no `serialization.json`  `serialization.json`, version 1
=============  =======================  ===============================================
"""

from __future__ import annotations

from dataclasses import dataclass

from mergelake.format.codecs.codec import parse_codec
from mergelake.format.codecs.compressed_blocks import encode_compressed_blocks
from mergelake.format.codecs.hashes import FileDigest, digest, file_hash
from mergelake.format.serializations.tree import Form

PROFILES = ("classic", "modern")
"""Values of the table setting `part_profile`."""

_SERIALIZATION = (
    b'{"columns":[],"propagate_types_serialization_versions_to_nested_types":true,'
    b'"types_serialization_versions":{"string":1},"version":1}'
)
_PACKED_BLOCK = 65536
"""Plain bytes of a compressed block of marks and of a primary index.

Source: ClickHouse, settings `marks_compress_block_size` and `primary_key_compress_block_size`.
"""


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to write a part."""

    modern: bool = False
    compact: bool = False
    continues: bool = False
    """As of `Form`: for a Wide part that is a slice of another."""

    @property
    def mark_extension(self) -> str:
        """The extension of every mark file of the part, with the dot."""
        return ("." if not self.modern else ".c") + ("mrk3" if self.compact else "mrk2")

    @property
    def form(self) -> Form:
        """The forms of columns."""
        return Form(self.modern, self.modern, restart=self.compact, continues=self.continues)

    @property
    def primary_index(self) -> str:
        """The file of the primary index."""
        return "primary.cidx" if self.modern else "primary.idx"

    @property
    def serialization(self) -> bytes | None:
        """`serialization.json`, or None for a part without."""
        return _SERIALIZATION if self.modern else None

    def pack(self, plain: bytes) -> tuple[bytes, FileDigest]:
        """The file of marks or of the primary index that holds `plain`, and its digest."""
        if not self.modern:
            return plain, digest(plain)
        packed = encode_compressed_blocks(plain, parse_codec("ZSTD(3)"), max_block=_PACKED_BLOCK)
        return packed, FileDigest(len(packed), file_hash(packed), len(plain), file_hash(plain))


CLASSIC_PROFILE = Profile()
"""Wide, classic."""
