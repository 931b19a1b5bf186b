"""Transactions of a producer: the program's object, and what begins and ends it over one connection after another."""
