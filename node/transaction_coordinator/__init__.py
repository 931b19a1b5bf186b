"""The transaction coordinator: decides for each transactional id, once, whether its transaction commits or aborts.

Read `transitions` (the states and what may follow what), then `state_machine` (what a coordinator's Raft group
replicates). It knows partitions only as numbers of Raft groups; what they do with a decision is
`node/partition/transactions`.
"""
