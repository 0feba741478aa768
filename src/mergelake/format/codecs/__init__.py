"""Codecs and compressed blocks: what `CODEC(…)` says, bound to types and run; digests of files."""
