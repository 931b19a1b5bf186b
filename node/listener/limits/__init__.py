"""Limits of one peer, in bytes (`accounts`) and time (`turns`), shared by all listeners of the node."""
