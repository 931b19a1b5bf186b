"""Workloads: clients that use the cluster while faults strike, and record what they are told.

A loss is a broken promise to a client. So the workloads use the real client, and record every answer and every missing
answer.

Rules:
 - workloads use the public client, as any program would, through the proxies of their class;
 - an error is `fail` only if it proves that nothing was stored (`world.outcome_of`); else it is `info` for ever;
 - each call has a deadline, and a client that misses it is a finding (CALLS);
 - a client that failed for good is dropped, and its successor has another name or epoch, as in a program.

Rejected: clients of our own on the wire. They would test our idea of a client; other clients have tests of their own.
"""
