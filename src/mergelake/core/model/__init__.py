"""What a table is made of: schemas, part names, manifests, engines, TTL bounds and settings, as values."""
