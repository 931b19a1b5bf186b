"""What clients do while the cluster suffers, and what they write down of it.

Problem: most losses are losses of what a client believed, so the client must be one that programs use, and everything
it was told must be kept, also what it was not told.
Rules never broken:
 - workloads use the public client, as any program would, through the proxies of their class;
 - an error is `fail` only where it proves that nothing was stored (`world.outcome_of`); else it is `info`, for ever;
 - each call has a deadline, and a client that misses it is a finding (CALLS);
 - a client that is beyond use is thrown away, and its successor has another name or epoch, as a program's would.
Rejected: clients of our own on the wire. They would test our idea of a client; stock ones have tests of their own.
"""
