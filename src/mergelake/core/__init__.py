"""Names, types, schemas, manifests, settings, clock, ids, errors: used by every room, without I/O."""
