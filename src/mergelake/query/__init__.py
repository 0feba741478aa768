"""SELECT through ClickHouse itself (chdb), on our pruned scans.

Nouns: an *outline* is a SELECT taken apart by tokens; an *occurrence* is one place where it names a table; a *source*
is a table at one version; a *scan* is a planned read of it; a *split* is a SELECT as partial and final statements.
"""
