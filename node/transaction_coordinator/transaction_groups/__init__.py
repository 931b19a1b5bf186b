"""Transaction groups: many transactions on many machines, and one decision about all of them.

Read `group_transitions` (the states and what may follow what), then `group_state_machine` (what a coordinator's Raft
group replicates); `group_leader` is what its leader does about it. A member of a group is an ordinary transaction of
`node.transaction_coordinator.state_machine`.
"""
