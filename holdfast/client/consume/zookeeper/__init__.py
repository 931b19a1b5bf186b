"""Consumer groups that divide a log through ZooKeeper. Read `ownership` first: it has the table of what is done
when."""
