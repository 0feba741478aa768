"""`python -m mergelake.cli`."""

from mergelake.cli.main import app

app()
