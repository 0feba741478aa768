"""Types laid out in streams: a tree of nodes for each type, single values, names of streams."""
