"""Names, types, schemas, manifests, settings, clock, ids, errors: used by every wing, without I/O."""
