"""Transactions of a producer.

`transaction` is the program's object, `transaction_manager` begins and ends it, over one connection
(`transactor_session`) with a sender for each partition (`transactional_sender`).
"""
