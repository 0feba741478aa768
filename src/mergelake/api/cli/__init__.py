"""The command line `mergelake`: commands, output, the shell."""
