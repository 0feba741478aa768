"""Rows of an insert: cut into blocks, completed with defaults, checked against constraints."""
