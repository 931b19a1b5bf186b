"""Transactions of a producer.

`transaction` is the program's object, `transactor` begins and ends it. `control_link` and `transactional_sender` are
the links of its one connection.
"""
