"""What one peer may take of a node: bytes (`accounts`) and time (`turns`), shared by all listeners of the node."""
