"""Nodes that come and go: the commands on their states."""
