"""Start of a node until it serves: it finds the others, founds a cluster with them, or registers with one."""
