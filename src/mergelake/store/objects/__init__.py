"""The kinds of stores: a directory, memory, a bucket; their probe, failures and reserve of space."""
