"""Parts on their own: adopt a directory of ClickHouse, inspect, verify, patch parts, `read_part`."""
