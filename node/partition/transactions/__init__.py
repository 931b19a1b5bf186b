"""Transactions that write to a partition: those that have begun, are undecided, or were aborted.

Read `transaction_state` (the rules), then `control_record` (how the end of one is stored in the log). The decision
whether a transaction commits is not made here: that is its coordinator's, a Raft group of its own.
"""
