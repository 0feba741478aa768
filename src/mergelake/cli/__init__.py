"""Public path of the command line: `python -m mergelake.cli`."""
