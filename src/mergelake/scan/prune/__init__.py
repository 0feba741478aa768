"""Which parts and marks can hold matching rows: conditions on keys, skip indexes. Pure, but for `by_key`."""
