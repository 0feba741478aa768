"""A local directory with what was read of parts in a bucket, shared by processes."""
