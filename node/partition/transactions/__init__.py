"""What a partition knows of transactions that write to it: who has begun, what is undecided, what was aborted.

Read `transaction_state` (the rules), then `control_record` (how the end of one stands in the log). Who decides whether
a transaction commits is not here: that is its coordinator, a Raft group of its own.
"""
