"""Publishing, in the order in which an event passes: it is checked (`send_api`), gets a place
(`partition_routing`), is put into a batch that is being filled (`batch_queue`, `delivery`), waits for the end of the
turn (`accumulator`, bounded by `latency_bound`), and leaves with its batch (`partition_sender`), numbered
(`producer_identity`) or not; its owner hears of it (`delivery`, `failures`).
"""
