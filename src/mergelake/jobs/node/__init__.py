"""The background loop: what to merge next (`plan`, pure), and the process that does it (`runner`)."""
