"""Publishing: a table's directory as a stock ClickHouse sees it.

==============  ===============================================================================
`plan`          names to add, drops to cover, names to remove; pure
`publish`       one round: execute the plan
`shown`         the names of the last round, so that only changes are planned
`definition`    the statement by which a server attaches the table
==============  ===============================================================================
"""
