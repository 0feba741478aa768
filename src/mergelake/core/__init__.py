"""Names, types, schemas, manifests, settings, clock, ids, errors: what every room may use; nothing does I/O."""
