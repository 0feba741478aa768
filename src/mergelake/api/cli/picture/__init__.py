"""What a job did to a table, as one picture for people: `sheet` draws it, `timeline` reads it from the log."""
