"""Compressed blocks: the only form in which data lies in `.bin`, `.cidx`, `.cmrk*` files and in `checksums.txt`.

`encode_compressed_blocks` and `decode_compressed_blocks` take a whole stream. `CompressedBlockWriter` is one `.bin`
file in the making: it takes granules, cuts blocks where ClickHouse cuts them, remembers the marks and hashes both the
plain and the packed bytes. Every block's checksum is verified before its payload is looked at, and every size before
anything is allocated.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import CorruptDataError, InternalError
from mergelake.core.jit.city_hash128 import city128_at
from mergelake.format.codecs.codec import Codec
from mergelake.format.codecs.codec_run import bad_payload, compress, decompress, encoded_max, header_sizes, with_header
from mergelake.format.codecs.hashes import FileDigest, FileHash, city128
from mergelake.format.kernels import kernels_compressed_blocks as k, libraries, method_bytes
from mergelake.format.kernels.memory import Bytes, Region, allocate, region

MIN_BLOCK, MAX_BLOCK = 65536, 1 << 20
"""Plain bytes with which a block ends at the next mark, and with which it ends at once.

Source: ClickHouse, settings `min_compress_block_size` and `max_compress_block_size`.
"""
TOTAL_MAX = 1 << 36
"""Most plain bytes of one call; more is taken for a lie."""


def encode_compressed_blocks(data: Bytes, codec: Codec, *, max_block: int = MAX_BLOCK) -> bytes:
    """`data` as compressed blocks of at most `max_block` plain bytes; no bytes give no block."""
    source = region(data)
    ends = np.arange(max_block, source.size + max_block, max_block, dtype=np.int64).clip(max=source.size)
    return b"".join(bytes(piece.buffer()) for piece, _ in _encode(source, 0, ends, codec))


def decode_compressed_blocks(data: Bytes) -> bytes:
    """The plain bytes of a whole stream of compressed blocks.

    Raises CorruptDataError with the offset in `data`, or UnsupportedError for an unknown codec.
    """
    source = region(data)
    plain, _ = decode_range(source, source.size, inclusive=False, lead=0, offset=0)
    return plain.tobytes()


def decode_range(source: Region, stop: int, *, inclusive: bool, lead: int, offset: int) -> tuple[Region, int]:
    """Decompress the blocks of `source` up to the one at `stop`, or over it if `inclusive`.

    `lead` is where the caller's values start in the plain bytes (they get aligned); `offset` is where `source` starts
    in its file, for messages. Returns the plain bytes and how many of them come before the block at `stop`.
    """
    state = np.zeros(4, np.int64)
    at = state.ctypes.data
    code = k.scan_run(source.address, source.size, stop, int(inclusive), at)
    if code:
        raise _first_bad(source, int(state[0]), offset) or _error(code, source, state, offset)
    size, before, total = int(state[0]), int(state[1]), int(state[2])
    if total > TOTAL_MAX:
        raise CorruptDataError("Compressed blocks claim too many bytes", name="CANNOT_DECOMPRESS", offset=offset)
    plain = allocate(total, lead)
    state[:2] = 0
    while code := k.decode_run(source.address, size, plain.address, total, libraries.table.address, at):
        if code != k.FOREIGN:
            raise _error(code, source, state, offset)
        if not _decode_chains(source, plain, state):
            _decode_foreign(source, plain, state, offset)
    if int(state[1]) != total:
        raise InternalError("compressed blocks changed while they were read")
    return plain, before


def verify_blocks(data: Bytes) -> None:
    """Verify the checksum of each block, without decompressing any. CorruptDataError also if the last one is cut."""
    source = region(data)
    state = np.zeros(4, np.int64)
    code = k.scan_run(source.address, source.size, source.size, 0, state.ctypes.data)
    bad = _first_bad(source, int(state[0]), 0) or (_error(code, source, state, 0) if code else None)
    if bad is not None:
        raise bad


def plain_before(source: Region, stop: int) -> int:
    """Plain bytes of the blocks of `source` before the one at `stop`; CorruptDataError if none starts there."""
    at = plain = 0
    while at < stop:
        if source.size - at < k.OVERHEAD_BYTES:
            break
        packed, size = header_sizes(source, at + k.CHECKSUM_BYTES)
        at += k.CHECKSUM_BYTES + packed
        plain += size
    if at != stop:
        raise CorruptDataError("A mark points into the middle of a compressed block", offset=at)
    return plain


def _decode_chains(source: Region, plain: Region, state: NDArray[np.int64]) -> bool:
    """Decompress the blocks from `state` on that are common chains; false if the first is not."""
    from mergelake.format.kernels.kernels_chain import LAST_AT, PACKED_AT, decode_chains

    header = int(state[0]) + k.CHECKSUM_BYTES
    if source.byte(header) != method_bytes.MULTIPLE or header + PACKED_AT > source.size:
        return False
    _, size = header_sizes(source, header)
    _, encoded = header_sizes(source, header + LAST_AT)
    if encoded > encoded_max(size):
        return False
    scratch = allocate(2 * encoded)  # the blocks that follow are about as large
    return bool(
        decode_chains(
            source.address, source.size, plain.address, plain.size, libraries.table.address,
            scratch.address, scratch.size, state.ctypes.data,
        )
    )  # fmt: skip


def _decode_foreign(source: Region, plain: Region, state: NDArray[np.int64], offset: int) -> None:
    """Decompress the one block at `state` through Python and step over it."""
    start, filled = int(state[0]), int(state[1])
    header = start + k.CHECKSUM_BYTES
    packed, size = header_sizes(source, header)
    payload = source.part(header + k.HEADER_BYTES, header + packed)
    decompress(source.byte(header), payload, plain.part(filled, filled + size), offset + start)
    state[:2] = header + packed, filled + size


def _first_bad(source: Region, end: int, offset: int) -> CorruptDataError | None:
    """The error of the first block before `end` with a wrong checksum.

    Where the walk over headers failed, this is more often the cause than the header at which it did: a damaged size
    leads it astray.
    """
    start = 0
    while start < end:
        header = start + k.CHECKSUM_BYTES
        stop = header + header_sizes(source, header)[0]
        checksum = city128(source.part(header, stop).buffer())
        if checksum != source.part(start, header).tobytes():
            state = np.array([start, 0, *np.frombuffer(checksum, np.int64)], np.int64)
            return _error(k.BAD_CHECKSUM, source, state, offset)
        start = stop
    return None


def _error(code: int, source: Region, state: NDArray[np.int64], offset: int) -> CorruptDataError:
    """The error of the block at `state`; `code` is the kernel's result."""
    start = int(state[0])
    where = offset + start
    if code == k.BAD_CHECKSUM:
        return CorruptDataError(
            "Checksum of a compressed block does not match",
            name="CHECKSUM_DOESNT_MATCH",
            offset=where,
            expected=source.part(start, start + k.CHECKSUM_BYTES).tobytes().hex(),
            found=state[2:4].tobytes().hex(),
        )
    if code == k.TRUNCATED:
        return CorruptDataError("A compressed block is cut short", name="CANNOT_READ_ALL_DATA", offset=where)
    if code == k.BAD_PAYLOAD:
        return bad_payload(where)
    return CorruptDataError("A compressed block has impossible sizes", name="CANNOT_DECOMPRESS", offset=where)


def _encode(
    source: Region, begin: int, ends: NDArray[np.int64], codec: Codec
) -> list[tuple[Region, NDArray[np.int64]]]:
    """Blocks of the plain bytes [begin, ends[0]), [ends[0], ends[1]), … of `source`.

    Returns pieces of memory with one or more blocks each: their bytes, and where each block ends in them.
    """
    count = len(ends)
    if not count:
        return []
    plain = int(ends[-1]) - begin
    if _is_native(codec):
        out = allocate(k.packed_max(plain, count))
        block_ends = np.empty(count, np.int64)
        written = k.encode_run(
            source.address, begin, ends.ctypes.data, count, codec.method, codec.level, libraries.table.address,
            out.address, block_ends.ctypes.data,
        )  # fmt: skip
        if written < 0:
            raise InternalError("a block could not be compressed")
        return [(out.part(0, written), block_ends)]
    if codec.method == method_bytes.MULTIPLE and _is_common(codec.steps):
        return [_encode_chains(source, begin, ends, *codec.steps)]
    pieces = []
    for end in ends.tolist():
        signed = with_header(codec.method, compress(codec, source.part(begin, end)), end - begin)
        block = signed.part(-k.CHECKSUM_BYTES, signed.size)
        city128_at(signed.address, signed.size, block.address)
        pieces.append((block, np.array([block.size], np.int64)))
        begin = end
    return pieces


def encode_each(source: Region, ends: NDArray[np.int64], codec: Codec) -> tuple[Region, NDArray[np.int64]]:
    """A block for each stretch of `source` between `ends` (from 0 on), one behind the other, and where each ends."""
    pieces = _encode(source, 0, ends, codec)
    if len(pieces) == 1:
        return pieces[0]
    sizes = np.array([piece.size for piece, _ in pieces], np.int64)
    return region(b"".join(piece.tobytes() for piece, _ in pieces)), np.cumsum(sizes)


def _is_common(steps: tuple[Codec, ...]) -> bool:
    """Whether `kernels_chain` does the chain."""
    first, last = steps[0], steps[-1]
    return len(steps) == 2 and first.method in _CHAINED and first.width in (1, 2, 4, 8) and _is_native(last)


_CHAINED = (method_bytes.DELTA, method_bytes.DOUBLE_DELTA, method_bytes.GORILLA)
"""Codecs of values that `kernels_chain` does."""


def _encode_chains(
    source: Region, begin: int, ends: NDArray[np.int64], first: Codec, last: Codec
) -> tuple[Region, NDArray[np.int64]]:
    """`_encode` for a chain of two that is common: the bytes of all blocks, and where each ends in them."""
    from mergelake.format.kernels.kernels_chain import SPARE_BYTES, encode_chains, value_bytes_max

    width = first.width
    value_bytes = value_bytes_max(first.method, width)
    largest = int(np.diff(ends, prepend=begin).max())
    scratch = allocate(value_bytes * (largest // width) + SPARE_BYTES)
    encoded = value_bytes * ((int(ends[-1]) - begin) // width) + SPARE_BYTES * len(ends)
    out = allocate(k.packed_max(encoded, len(ends)) + SPARE_BYTES * len(ends))
    block_ends = np.empty(len(ends), np.int64)
    written = encode_chains(
        source.address, begin, ends.ctypes.data, len(ends), first.method, width, last.method, last.level,
        libraries.table.address, scratch.address, out.address, block_ends.ctypes.data,
    )  # fmt: skip
    if written < 0:
        raise InternalError("a block could not be compressed")
    return out.part(0, written), block_ends


def _is_native(codec: Codec) -> bool:
    """Whether the kernel compresses; LZ4 with a level is LZ4HC, which it does not."""
    words = libraries.table.words
    match codec.method:
        case method_bytes.NONE:
            return True
        case method_bytes.LZ4:
            return not codec.level and bool(words[libraries.LZ4_COMPRESS])
        case method_bytes.ZSTD:
            return bool(words[libraries.ZSTD_COMPRESS])
    return False


def _kept(piece: Region) -> bytes | memoryview:
    """The bytes for later: as they are where they fill most of their memory, else a copy, to set the memory free."""
    owner = piece.owner
    if isinstance(owner, pa.Buffer) and 4 * piece.size > 3 * owner.size:
        return memoryview(piece.buffer()).cast("B")
    return piece.tobytes()


class CompressedBlockWriter:
    """One `.bin` file in the making, with its marks.

    `append` takes whole granules. Marks are (offset of the block, offset in its plain bytes, rows), as in ClickHouse.
    """

    def __init__(self, codec: Codec, min_block: int = MIN_BLOCK, max_block: int = MAX_BLOCK) -> None:
        self._codec = codec
        self._min, self._max = min_block, max_block
        self._pending = b""
        self._packed, self._plain = FileHash(), FileHash()
        self._chunks: list[bytes | memoryview] = []

    def append(self, data: Region, ends: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Take granules, `ends` (in `data`) and `rows` of each. Returns their marks, u64 of shape (granules, 3)."""
        granules = len(ends)
        ends = np.ascontiguousarray(ends, np.int64)
        waiting = len(self._pending)
        room = granules + (waiting + data.size) // self._max + 1
        block_ends = np.empty(room, np.int64)
        mark_blocks, mark_offsets = np.empty(granules, np.int64), np.empty(granules, np.int64)
        count = k.cut(
            ends.ctypes.data, granules, waiting, self._min, self._max, block_ends.ctypes.data, room,
            mark_blocks.ctypes.data, mark_offsets.ctypes.data,
        )  # fmt: skip
        if count < 0:
            raise InternalError("more blocks than there can be")
        # The next mark would begin a block anyway: to do it now saves what waits from being copied.
        filled = waiting + data.size
        if filled - (int(block_ends[count - 1]) if count else 0) >= self._min and count < room:
            block_ends[count] = filled
            count += 1
        self._plain.update(data)
        starts = self._flush(data, block_ends[:count])
        marks = np.empty((granules, 3), np.uint64)
        marks[:, 0] = starts[mark_blocks]
        marks[:, 1] = mark_offsets
        marks[:, 2] = rows
        return marks

    def _flush(self, data: Region, block_ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Encode the complete blocks, keep what follows them; the file offset of each block and of the one after.

        `block_ends` are counted from the first pending byte.
        """
        starts = [np.array([self._packed.size], np.int64)]
        ends = block_ends - len(self._pending)
        begin = 0
        if self._pending and len(ends):
            begin = int(ends[0])
            first = region(self._pending + data.part(0, begin).tobytes())
            self._add(_encode(first, 0, block_ends[:1], self._codec), starts)
            ends = ends[1:]
            self._pending = b""
        if len(ends):
            self._add(_encode(data, begin, np.ascontiguousarray(ends), self._codec), starts)
            begin = int(ends[-1])
        if begin < data.size:
            self._pending += data.part(begin, data.size).tobytes()
        return np.concatenate(starts)

    def _add(self, pieces: list[tuple[Region, NDArray[np.int64]]], starts: list[NDArray[np.int64]]) -> None:
        """Hash and keep what `_encode` returned; adds the file offsets at which its blocks end to `starts`."""
        for piece, block_ends in pieces:
            starts.append(self._packed.size + block_ends)
            self._packed.update(piece)
            self._chunks.append(_kept(piece))

    def finish(self) -> NDArray[np.uint64]:
        """Write what waits; returns the final mark (1, 3), rows 0."""
        zero = np.zeros(1, np.int64)
        mark = self.append(region(b""), zero, zero)
        if self._pending:
            last = region(self._pending)
            self._add(_encode(last, 0, np.array([last.size], np.int64), self._codec), [])
            self._pending = b""
        return mark

    def drain(self) -> bytes | memoryview:
        """Blocks completed since the last call."""
        out = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks = []
        return out

    def digest(self) -> FileDigest:
        """Sizes and hashes of the file; call after `finish`."""
        return FileDigest(self._packed.size, self._packed.hexdigest(), self._plain.size, self._plain.hexdigest())
