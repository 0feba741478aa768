"""The functions that expressions know, a module for each kind; each is registered by `@function`."""
