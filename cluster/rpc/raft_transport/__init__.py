"""The streams that carry Raft messages: one from each node to each other node, kept open for ever.

Read `peer_network` first, then `outbound` and `inbound`.
"""
