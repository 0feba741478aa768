"""Projections: their queries, and the rows or aggregate states that a part's rows have in them."""
