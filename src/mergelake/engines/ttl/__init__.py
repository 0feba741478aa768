"""TTL: when rows, values and groups expire; the text of a TTL clause, and groups with SET."""
