"""Byte loops as machine code (`core.jit`), and native libraries: compression, bits, dictionaries, skip indexes."""
