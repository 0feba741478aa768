"""Columns of a part: encoded (`wide`, `compact`, `many` small parts at once) and decoded (`reader`)."""
