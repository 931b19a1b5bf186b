"""Consumer groups in a partition: who owns it for a group, how far the group is, and who should own what.

Read `group_state` first: it decides. `ownership_leases` is the leader's part, `assignor` is advice.
"""
