"""Commands that try a cluster, rather than use one."""
