"""A load driver for any AMQP 1.0 peer.

A benchmark compares brokers only if everything else is equal. So the client is the same program for every peer, costs
little compared with the broker, and shares no code with a contestant.

This package imports neither `holdfast` nor any client library of a peer. It speaks AMQP through the C functions of
python-qpid-proton and moves the bytes itself. Differences between peers (a link property, a filter) are options that
the caller names. An event counts only if the peer said `accepted`; the report shows every other outcome.

Rejected: proton's Python classes (the driver would be the bottleneck), and one process per connection (on a small
machine these would compete with the brokers for the cores; one loop drives all connections).

    python -m benchmarks.driver send --url amqp://127.0.0.1:5672/log --size 1024 --window 1000 --seconds 10
"""
