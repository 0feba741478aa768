"""What a log says, as pure functions over values: operations, their preconditions, the fold, the state."""
