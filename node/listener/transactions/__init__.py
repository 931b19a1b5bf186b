"""AMQP transactions on one connection: the control link (`coordinator_link`), and what belongs to each transaction,
sent messages (`transaction_queue`) as well as received ones (`client_transaction`)."""
