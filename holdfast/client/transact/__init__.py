"""Transactions of a producer.

`transaction` is the program's object, `transaction_manager` begins and ends it. `control_link` and
`transactional_sender` are the links of its one connection.
"""
