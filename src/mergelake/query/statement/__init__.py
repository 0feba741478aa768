"""The text of a SELECT: parsing, checks, rewriting. No table is read."""
