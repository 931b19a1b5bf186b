"""Transaction groups: many transactions on many machines, and one decision about all of them.

Read `transitions` (the states and what may follow what), then `writers` (what a coordinator's Raft group replicates);
`desk` is what its leader does about it. A member of a group is an ordinary transaction of `node.coordinator.machine`.
"""
