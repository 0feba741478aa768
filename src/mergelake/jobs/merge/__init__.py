"""Merging: selecting parts (pure), building the result (in bounded memory), and committing it.

- `scoring`: the simple selector's arithmetic over one range of parts.
- `select`: part ranges, size limits, forced merges, OPTIMIZE; values in, values out.
- `plan`: `MergeTask`, the picklable description of one merge, and the engines that can be merged.
- `order`: the row order of the result, streamed from the sorting-key columns, kept as one byte a row.
- `gather`: any other column, brought into that order.
- `concatenate`: merges of parts that follow one another, by copying compressed blocks.
- `execute`: combines `order` and `gather`: sources in, a manifest out; no commit.
- `commit`: execute, then Publish with its precondition.
"""
