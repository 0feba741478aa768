"""SELECT through ClickHouse itself (chdb): it reads the parts of a snapshot, or our pruned scans of them.

Rooms within, downwards: `spread` (tasks of Spark), the modules here, `attach` (parts that ClickHouse reads by itself),
`statement` (the text), `embedded` (ClickHouse in this process).

Nouns: a *parsed SELECT* is one taken apart by tokens; a *reference* is one place where it names a table; a *source*
is a table at one version; a *scan* is a planned read of it; a *split* is a SELECT as partial and final statements.
"""
