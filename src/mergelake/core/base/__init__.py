"""Errors, clock, ids, progress, cancelling, the lexer and texts: what every wing uses, without I/O."""
