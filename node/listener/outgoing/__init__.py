"""Links that take events away: the peer receives. Read `outgoing_link` first, then `partition_cursor`."""
