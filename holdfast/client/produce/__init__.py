"""Publishing, in the order of an event's way: `send_api` checks it, `partition_routing` finds its place, `batch_queue`
puts it into a batch (`delivery`), `accumulator` counts it, `partition_sender` sends the batch, and its owner hears."""
