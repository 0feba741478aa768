"""Collection of unreferenced objects, and the check that all referenced objects exist.

==============  ===============================================================================
`plan`          which objects may be deleted, from a listing and the directories a state reaches; pure
`collect`       one round over a table: find, note, delete objects noted a grace period ago
`holds`         directories that other tables hold
`log_objects`   entries and checkpoints that are no longer needed
`tables`        directories of dropped tables, and those without a name; `remove`: deletes a table's directory
`fsck`          whether every object that a table refers to exists, with its expected size
==============  ===============================================================================
"""
