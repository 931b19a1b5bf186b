"""Consumer groups in a partition: its owner and position in each group, and the assignment of members.

Read `group_state` first: it decides. `ownership_leases` is the leader's part, `assignor` is advice.
"""
