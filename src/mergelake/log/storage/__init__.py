"""States and entries as bytes: entries as JSON, checkpoints, segments, the catalog's form, keys of objects."""
