"""Publishing, in the order in which an event passes: it is checked and encoded (`intake`), waits for the end of the
turn (`accumulator`, bounded by `latency_bound`), goes its way to a partition (`ways`, `partition_sender`) in one of the
`parcels`, and its owner hears of it (`delivery`). A `chunk` is many events that pass as one.

`idempotent` holds the ways of producers whose events are numbered.
"""
