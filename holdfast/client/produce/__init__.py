"""Publishing, in the order in which an event passes: it is checked and encoded (`intake`, many by `pieces`), waits for
the end of the turn (`accumulator`, bounded by `latency_bound`), takes a route to a partition (`routes`,
`partition_sender`) in one of its `transfers`, and its owner hears of it (`delivery`). A `chunk` is many events that
pass as one.

`idempotent` does that for producers whose events are numbered.
"""
