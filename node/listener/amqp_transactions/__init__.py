"""AMQP transactions on one connection: the control link (`control_link`), and what belongs to each transaction,
sent messages (`transactional_append_queue`) as well as received ones (`connection_transaction`)."""
