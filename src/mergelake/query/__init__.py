"""SELECT through ClickHouse itself (chdb): it reads the parts of a snapshot, or our pruned scans of them.

Rooms within, downwards: `spread` (tasks of Spark), the modules here, `attach` (parts that ClickHouse reads by itself),
`statement` (the text), `embedded` (ClickHouse in this process).

Nouns: an *outline* is a SELECT taken apart by tokens; an *occurrence* is one place where it names a table; a *source*
is a table at one version; a *scan* is a planned read of it; a *split* is a SELECT as partial and final statements.
"""
