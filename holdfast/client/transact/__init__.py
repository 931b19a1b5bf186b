"""Transactions of a producer: the program's object (`transaction`), its begin and end (`transactor`), and the links of
its one connection (`control_link`, `transactional_sender`)."""
