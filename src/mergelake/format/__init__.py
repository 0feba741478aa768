"""Columns <-> bytes: everything that lies in a part, pure, bytes in and bytes out.

| module | what it knows |
| --- | --- |
| `wide`, `reader`, `layout` | a column of a part, written in the classic profile, read from any |
| `tree`, `node`, `scalars`, `nested`, `lowcardinality` | how each type is laid out in streams |
| `compressed_blocks`, `codec`, `marks`, `hashes` | compressed blocks, mark files, checksums |
| `values`, `partition`, `extremes` | the single value binary form, partition ids, minmax files |
| `checksums`, `columns_txt`, `serialization_json` | the small files |
| `jit`, `memory`, `kernels_*` | machine code over addresses |

Source of all: ClickHouse; each module names the file.
"""
