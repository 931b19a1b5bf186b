"""Questions and bulk work between nodes: appends, reads and administration that a gateway passes on to a leader.

Read `peer_client` (asks) and `call_handlers` (answers); `methods` names the calls. Raft messages never pass here.
"""
