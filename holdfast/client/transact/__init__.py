"""Transactions of a producer: what a program holds (`transaction`), who begins and ends it (`transactor`), and the one
connection that it belongs to (`control_link`, `transactional_sender`)."""
