"""`python -m mergelake.cli`."""

from mergelake.api.cli.main import app

app()
