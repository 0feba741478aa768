"""SELECT by the embedded ClickHouse (chdb), which reads the parts of a snapshot itself, or pruned scans of them.

Packages, from top to bottom: `spread` (execution in Spark tasks), the modules here, `attach` (parts that ClickHouse
reads by itself), `statement` (parsing and rewriting), `embedded` (ClickHouse in this process).

Terms: a *parsed SELECT* is a statement with its structure; a *reference* is a place where it names a table; a *source*
is a table at one version; a *scan* is a planned read of it; a *split* is a SELECT as partial and final statements.
"""
