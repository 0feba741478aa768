"""Mutations: commands and plans (pure), execution. Still empty: the place is kept so that nothing has to move."""
