"""Transactions of a producer.

`transaction` is the program's object, with a sender for each partition. `transaction_manager` begins and ends it, over
one connection after another.
"""
