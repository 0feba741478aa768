"""Method bytes of compressed blocks.

Source: ClickHouse, `src/Compression/CompressionInfo.h`.
"""

from __future__ import annotations

NONE = 0x02
LZ4 = 0x82
ZSTD = 0x90
MULTIPLE = 0x91
DELTA = 0x92
T64 = 0x93
DOUBLE_DELTA = 0x94
GORILLA = 0x95
FPC = 0x98
GCD = 0x9A
