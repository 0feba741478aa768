"""What tests share: the oracle, services, small data."""
