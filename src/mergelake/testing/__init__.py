"""Shipped for tests and benchmarks: generators, the store contract, a store with faults."""
