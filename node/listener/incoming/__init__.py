"""Links that bring events: the peer sends. Read `incoming_link` first, then `append_queue`."""
