"""One immutable part in a store: written, read by mark ranges, adopted from ClickHouse, verified.

- `writer`: `write_part` for a block in memory, `PartWriter` for merges, column by column.
- `reader`: `PartReader`, columns and mark ranges as record batches; `cache` holds marks and indexes.
- `adopt`: a part directory that ClickHouse wrote, opened as one of ours; `public` is the short way in.
- `verify`: `check_part`, everything about a part that can be checked.
- `listing`: a part as plain files, for `publish`.
- `spool`, `fetch`, `steps`: where bytes go, where they come from, and how a read is cut.

A part has no name here: names come from a part's place in the log.
"""
