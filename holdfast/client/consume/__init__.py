"""Reading a log: a link for each partition, and consumer groups. Read `partition_receiver`, then `group_members`."""
