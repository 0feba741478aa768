"""One immutable part in a store: written, read by mark ranges, adopted from ClickHouse, verified.

- `writer`: `write_part` for a block in memory, `PartWriter` for merges, column by column.
- `reader`: `PartReader`, columns and mark ranges as record batches; `cache` holds marks and indexes.
- `adopt`: a part directory that ClickHouse wrote, opened as one of ours; `public` is the API for users.
- `patches`: the patch parts of ClickHouse that change such a part; `patched`: the part with their changes.
- `verify`: `check_part`, all checks of a part.
- `listing`: a part as plain files, for `publish`.
- `spool` stores the bytes of a part, `fetch` reads them, `steps` cuts a read into batches.

A part has no name here: names come from the position of a part in the log.
"""
