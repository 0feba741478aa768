"""Parts that the embedded ClickHouse reads by itself: attached tables, read-only."""
