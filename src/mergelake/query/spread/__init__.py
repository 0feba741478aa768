"""One SELECT in many tasks of Spark."""
