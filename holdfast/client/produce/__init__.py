"""Publishing: what a producer has taken in (`accumulator`), and the way to each partition (`partition_sender`).

`idempotent` holds the same for producers whose events are numbered.
"""
