"""For tests and benchmarks of users: generators, the store contract, a store with injected faults."""
