"""Execution of one SELECT in many Spark tasks."""
