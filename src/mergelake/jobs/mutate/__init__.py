"""Mutations: validation and submission, plans (pure), execution."""
