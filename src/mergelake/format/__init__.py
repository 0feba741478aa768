"""Columns <-> bytes: everything that lies in a part, pure, bytes in and bytes out.

| module | what it knows |
| --- | --- |
| `wide`, `compact`, `many` | columns of a part, encoded |
| `layout`, `reader` | columns of a part of any profile, decoded |
| `tree`, `serialization` | from a type to its serialiser, a tree of nodes |
| `scalars`, `nested`, `lowcardinality`, `variant`, `json_object`, `states` | the nodes: types laid out in streams |
| `compressed_blocks`, `codec`, `marks`, `hashes` | compressed blocks, mark files, checksums |
| `codec_types`, `codec_run`, `codec_values` | codecs bound to types, and run |
| `values`, `partition`, `extremes` | the single value binary form, partition ids, minmax files |
| `skip_*` | skip indexes |
| `checksums`, `columns_txt`, `serialization_json` | the small files |
| `memory`, `libraries`, `kernels_*` | memory with an address, and machine code over it (the room `jit`) |

Source of all: ClickHouse; each module names the file.
"""
