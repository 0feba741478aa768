"""Skip indexes: their types and arguments, granules built from rows, files written and read."""
