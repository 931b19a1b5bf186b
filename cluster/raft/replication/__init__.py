"""Messages between the members of a group: built, sent by a leader, and checked when they arrive.

Read `step` first: every message passes there, in both directions.
"""
