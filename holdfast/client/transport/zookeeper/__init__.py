"""ZooKeeper as clients use it: to find a cluster's nodes, and to log in there."""
