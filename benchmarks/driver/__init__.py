"""A load driver for any AMQP 1.0 peer.

Problem: a benchmark compares brokers only when everything else is equal. So the client must be the same program
for every peer, must cost little beside what it measures, and must not share code with one of the contestants.

Rule never broken: this package imports neither `holdfast` nor any client library of a peer. It speaks AMQP through
the C functions of python-qpid-proton and moves the bytes itself, and what differs between peers (a link property,
a filter) is an option that the caller names. An event counts only when the peer said `accepted`; every other
outcome is reported, never dropped.

Rejected: proton's Python classes (17 us per event: the driver would be the bottleneck), and one process per
connection (on a small machine the processes would fight the brokers for the cores; one loop drives them all at
about 3 us per event).

    python -m benchmarks.driver send --url amqp://127.0.0.1:5672/log --size 1024 --window 1000 --seconds 10
"""
