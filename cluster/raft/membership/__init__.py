"""Members of a group: which replicas vote, which follow only, and how one set becomes another.

Read `configuration` first, then `quorum`, `changes` and `membership`. Nothing but `configuration_rows` touches a disk.
"""
