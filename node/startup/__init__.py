"""What happens before a node serves: it finds the others, founds a cluster with them, or registers with one."""
