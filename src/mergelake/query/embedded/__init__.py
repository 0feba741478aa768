"""The embedded ClickHouse: running statements, streaming results, converting values."""
