"""The order of rows and what engines make of rows with equal keys, over blocks in memory. Pure.

`order` sorts rows and merges sorted runs, `rules` has the engines, `ttl` expires rows, `projections` are other orders
and aggregate states of the rows of a part.
"""
