"""A table as a stock ClickHouse sees it.

==============  ===============================================================================
`plan`          names to add, drops to cover, names to take away; pure
`publish`       one round: carry the plan out
`shown`         the names of the last round, so that planning costs what changed
`definition`    the statement by which a server attaches the table
==============  ===============================================================================
"""
