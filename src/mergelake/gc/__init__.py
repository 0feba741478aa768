"""Collection of what nothing refers to, and the check that all that is referred to is there.

==============  ===============================================================================
`plan`          what may go, from what was listed and what a state reaches; pure
`collect`       one round over a table: find, note, delete what was noted long enough ago
`holds`         directories that other tables hold
`log_objects`   entries and checkpoints that nobody needs
`tables`        directories of dropped tables, and those that have no name; `remove`: the last of one
`fsck`          whether every object that a table refers to is there, and as large as it should be
==============  ===============================================================================
"""
