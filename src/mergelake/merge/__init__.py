"""Merging: which parts to join (pure), how the result is made (bounded in memory), and how it is committed.

- `scoring`: the simple selector's arithmetic over one range of parts.
- `select`: part ranges, size limits, forced merges, OPTIMIZE; values in, values out.
- `plan`: `MergeTask`, the picklable order to one worker, and what is allowed to be merged.
- `order`: the row order of the result, streamed from the sorting-key columns, kept as one byte a row.
- `gather`: any other column, brought into that order.
- `execute`: the two together: sources in, a manifest out; no commit.
- `commit`: execute, then Publish with its precondition.
"""
