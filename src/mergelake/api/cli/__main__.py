"""`python -m mergelake.api.cli`."""

from mergelake.api.cli.main import app

app()
