"""Publishing, in the order in which an event passes: it is checked (`intake`), becomes a part of a chunk, which is many
events that pass as one (`chunks`), waits for the end of the turn (`accumulator`, bounded by `latency_bound`), takes a
route to a partition (`routes`, `partition_sender`) in one of its `transfers`, and its owner hears of it.

`idempotent` does that for producers whose events are numbered.
"""
