"""Work on tables: merges, mutations, upserts, collection, publishing, and the node that does them in the background.

Decisions are pure (`plan`, `select`); tasks are values that any process can execute, here, in Spark or elsewhere, and
the caller commits. Import and export (`transfer`), and streams (`stream`), will stand here.
"""
