"""What a store is: the protocol, keys, ranges, and the spec by which other processes open it."""
