"""The node as a client of transactions: what Kafka calls the transaction manager of a producer.

Clients declare and end transactions on links of this node (`node/listener/amqp_transactions`); this package does for
them what no AMQP client knows of: it holds a transactional id at its coordinator (`transactional_producer`,
`transactional_ids`), takes partitions into a transaction, and has it decided (`transaction`). It replicates nothing
itself.
"""
