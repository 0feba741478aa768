"""Views and unions of tables in a SELECT: each is replaced by a subquery, in the statement's text.

`statement.expanded` is the door. What is left names tables only, so it is pruned, attached and spread as any other.
"""
